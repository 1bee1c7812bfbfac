"""What the store relies on, whatever its driver is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.store.conformance.conftest import Driver, Place
from tests.store.test_unit_of_work import entry, message
from wsrm_mq.errors import StoreBusy, StoreError, StoreUnavailable
from wsrm_mq.store import identity, pruning, queues
from wsrm_mq.store.bulk import MESSAGES
from wsrm_mq.store.cache import Cache
from wsrm_mq.store.port import Connection
from wsrm_mq.store.unit_of_work import Session, UnitOfWork, as_json

QUEUE = {"name": "/q", "kind": "app", "parent": None, "created_at": 1, "application": None}
COUNT = "SELECT count(*) FROM message"


@contextmanager
def unit(place: Place, db: Connection, cache: Cache) -> Iterator[UnitOfWork]:
    """As a group commit makes one."""
    version = db.begin()
    try:
        cache.validate(version)
        tx = UnitOfWork(Session(db, cache, 1, "one", place.instances()), 7)
        yield tx
        tx.flush()
        db.execute("COMMIT")
    except BaseException:
        cache.clear()
        db.execute("ROLLBACK")
        raise
    tx.committed()


def added(tx: UnitOfWork, count: int = 1) -> list[int]:
    queue = tx.queue("/q")
    keys = [tx.add_message(None, None, b"abc") for _ in range(count)]
    for key in keys:
        tx.add_entry(entry(queue, key))
    return keys


def broken_off(place: Place, db: Connection, cache: Cache, act: Callable[[UnitOfWork], object]) -> None:
    """Do this in a transaction that is rolled back."""

    def fail() -> None:
        with unit(place, db, cache) as tx:
            act(tx)
            tx.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


# transactions


def test_a_transaction_is_seen_as_a_whole_once_it_is_committed_and_not_before(place: Place) -> None:
    db, reader = place.writer(), place.reader()
    db.begin()
    assert db.in_transaction
    db.execute(queues.ADD_QUEUE, QUEUE).fetchall()
    db.execute(queues.ADD_QUEUE, {**QUEUE, "name": "/other"}).fetchall()
    assert reader.execute("SELECT count(*) FROM queue").fetchone() == (0,)
    db.execute("COMMIT")
    assert not db.in_transaction
    assert reader.execute("SELECT name FROM queue ORDER BY name").fetchall() == [("/other",), ("/q",)]


def test_nothing_is_left_of_a_transaction_that_is_rolled_back_or_whose_connection_ends(place: Place) -> None:
    db, dropped = place.writer(), place.writer()
    db.begin()
    db.execute(queues.ADD_QUEUE, QUEUE).fetchall()
    db.execute("ROLLBACK")
    dropped.begin()
    dropped.execute(queues.ADD_QUEUE, QUEUE).fetchall()
    dropped.close()
    assert place.reader().execute("SELECT count(*) FROM queue").fetchone() == (0,)


def test_a_connection_notices_that_another_one_has_committed_and_no_commit_of_its_own(place: Place) -> None:
    one, other = place.writer(), place.writer()

    def version() -> int:
        found = one.begin()
        one.execute("ROLLBACK")
        return found

    first = version()
    one.begin()
    one.execute(queues.ADD_QUEUE, QUEUE).fetchall()
    one.execute("COMMIT")
    assert version() == first
    other.begin()
    other.execute(queues.ADD_QUEUE, {**QUEUE, "name": "/other"}).fetchall()
    other.execute("COMMIT")
    assert version() != first


def test_who_does_not_wait_for_another_writer_is_told_at_once_that_the_store_is_busy(place: Place) -> None:
    one, other = place.writer(), place.writer()
    one.begin()
    with pytest.raises(StoreBusy), place.errors():
        other.begin(wait=False)
    one.execute("ROLLBACK")
    other.begin(wait=False)
    other.execute("ROLLBACK")


def test_transactions_that_write_come_one_after_the_other(place: Place) -> None:
    found: list[int] = []
    failures: list[BaseException] = []

    def run() -> None:
        db = place.driver.connect_writer(place.where)
        try:
            db.for_writing()
            for _ in range(20):
                db.begin()
                found.append(db.execute(identity.ADVANCE).fetchall()[0][1])
                db.execute("COMMIT")
        except BaseException as error:
            failures.append(error)
        finally:
            db.close()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert found == list(range(found[0], found[0] + 60)), "each saw what the one before it had committed"


# keys


@pytest.mark.parametrize("count", [1, 16, 17, 100])
def test_many_rows_are_inserted_with_the_keys_that_were_given_for_them(place: Place, count: int) -> None:
    db = place.writer()
    with unit(place, db, Cache()) as tx:
        keys = added(tx, count)
    assert keys == sorted(set(keys))
    found = place.reader().execute("SELECT id FROM message ORDER BY id").fetchall()
    assert [key for (key,) in found] == keys


def test_a_key_that_was_committed_is_given_to_nothing_else_whatever_is_deleted_or_rolled_back(place: Place) -> None:
    db, other, cache = place.writer(), place.writer(), Cache()
    with unit(place, db, cache) as tx:
        seen = added(tx, 3)
    broken_off(place, db, cache, lambda tx: added(tx, 5))
    with unit(place, db, cache) as tx:
        seen += added(tx)
    with unit(place, other, Cache()) as tx:
        seen += added(tx, 2)
    with unit(place, db, cache) as tx:
        seen += added(tx)
        tx.execute("DELETE FROM entry")
        tx.execute("DELETE FROM message")
    assert place.reader().execute(COUNT).fetchone() == (0,)
    with unit(place, place.writer(), Cache()) as tx:
        seen += added(tx)
    assert seen == sorted(set(seen))


def test_a_row_with_a_key_of_its_own_answers_it_and_no_deleted_one_comes_back(place: Place) -> None:
    db, seen = place.writer(), []
    for name in ("/a", "/b", "/c"):
        db.begin()
        (key,) = db.execute(queues.ADD_QUEUE, {**QUEUE, "name": name}).fetchone()
        db.execute(pruning.DROP_QUEUES, (as_json([key]),))
        db.execute("COMMIT")
        seen.append(key)
    assert seen == sorted(set(seen))


# statements


def test_parameters_go_by_name_or_position_rows_are_tuples_and_changes_are_counted(place: Place) -> None:
    db = place.writer()
    db.begin()
    keys = [db.execute(queues.ADD_QUEUE, {**QUEUE, "name": name}).fetchone()[0] for name in ("/a", "/b", "/c")]
    assert db.execute(queues.QUEUE_ROW, {"name": "/b"}).fetchone()[0] == keys[1]
    assert db.execute(pruning.QUEUES_LEFT, (as_json([*keys[:2], 99]),)).fetchall() == [(keys[0],), (keys[1],)]
    assert db.execute(pruning.DROP_QUEUES, (as_json(keys[:2]),)).rowcount == 2
    db.execute("COMMIT")


# bodies


def test_a_body_is_written_and_read_in_pieces_and_is_part_of_the_transaction(place: Place) -> None:
    db, reader, large = place.writer(), place.reader(), os.urandom(3_000_000)
    with unit(place, db, Cache()) as tx:
        (key,) = added(tx)
        tx.write_body(key, len(large), BytesIO(large))
    with reader.open_body(key) as body:
        assert body.read(1_000) == large[:1_000]
        body.seek(2_999_000)
        assert body.read() == large[2_999_000:]
    broken_off(place, db, Cache(), lambda tx: tx.write_body(key, 5, BytesIO(b"other")))
    with reader.open_body(key) as body:
        assert body.read() == large


# errors


def test_an_error_about_the_whole_store_is_a_store_error_and_any_other_stays_the_drivers(place: Place) -> None:
    db = place.writer()
    db.begin()
    db.execute(queues.ADD_QUEUE, QUEUE).fetchall()
    with pytest.raises(db.Error) as found, place.errors():
        db.execute(queues.ADD_QUEUE, QUEUE).fetchall()
    assert not isinstance(found.value, StoreError)
    db.execute("ROLLBACK")


def test_a_reader_writes_nothing_until_it_is_told_to(place: Place) -> None:
    reader = place.reader()
    row: dict[str, Any] = message(id=1)
    with pytest.raises(reader.Error):
        reader.execute(MESSAGES.text(1), MESSAGES.row(row))
    reader.for_writing()
    reader.begin()
    reader.execute(MESSAGES.text(1), MESSAGES.row(row))
    reader.execute("ROLLBACK")


def test_a_store_that_is_not_there_is_unavailable_and_is_not_made(place: Place) -> None:
    gone = place.where.with_name("gone.db")
    for connect in (place.driver.connect_writer, place.driver.connect_reader):
        with pytest.raises(StoreUnavailable):
            connect(gone)


# identity


def test_a_store_says_which_it_is_and_its_mark_never_falls(place: Place, tmp_path: Path) -> None:
    db = place.writer()
    first = identity.identify(db)
    db.begin()
    db.execute(identity.ADVANCE).fetchall()
    identity.begin_epoch(db)
    db.execute("COMMIT")
    then = identity.identify(place.reader())
    assert (then.id, then.mark, then.copied_at) == (first.id, first.mark + 1, None)
    db.begin()
    identity.begin_epoch(db)
    identity.stamp(db, 5)
    identity.stamp(db, 6)
    db.execute("COMMIT")
    assert identity.identify(db).copied_at == 5
    assert identity.epoch_at(db, then.mark) is not None
    assert identity.epoch_at(db, first.mark) is None
    (tmp_path / "another").mkdir()
    another = place.driver.connect_reader(place.driver.make(tmp_path / "another"))
    assert identity.identify(another).id != first.id
    another.close()


# instances

LIVES = """
import sys
from pathlib import Path
from tests.store.conformance.conftest import DRIVERS
driver = next(driver for driver in DRIVERS if driver.name == sys.argv[1])
presence = driver.instances(Path(sys.argv[2])).enter()
print(presence.name, flush=True)
print(*presence.wait(30), flush=True)
sys.stdin.readline()
"""


def started(driver: Driver, where: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LIVES, driver.name, str(where)]
    root = Path(__file__).parents[3]
    return subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_an_instance_of_another_process_is_woken_and_is_dead_once_it_is_killed(place: Place) -> None:
    process = started(place.driver, place.where)
    try:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        instances = place.instances()
        assert instances.lives(name)
        instances.wake([name], "42")
        assert process.stdout.readline() == "42\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        process.communicate()
    assert instances.lives(name) is False
    instances.bury(name)
    assert not instances.lives(name)


def test_an_instance_lives_until_it_leaves_and_none_does_under_a_name_that_was_not_taken(place: Place) -> None:
    instances = place.instances()
    presence = instances.enter()
    assert instances.lives(presence.name)
    assert presence.is_in_place
    assert not instances.lives("0123456789abcdef")
    presence.close()
    assert not instances.lives(presence.name)


def test_words_that_came_are_kept_until_they_are_waited_for_and_a_wait_ends(place: Place) -> None:
    instances = place.instances()
    presence = instances.enter()
    instances.wake([presence.name])
    instances.wake([presence.name, "gone"], "42")
    assert presence.wait(5) == {"look", "42"}
    assert presence.wait(0.01) == set()
    presence.close()


def test_one_instance_at_a_time_is_at_a_task(place: Place) -> None:
    place.instances().enter().close()
    one, other = place.instances(), place.instances()
    with one.alone("janitor") as is_first, other.alone("janitor") as is_second, other.alone("another") as is_other:
        assert (is_first, is_second, is_other) == (True, False, True)
    with place.instances().alone("janitor") as is_again:
        assert is_again


def test_a_ring_reaches_the_instances_that_listen_but_one(place: Place) -> None:
    instances = place.instances()
    one, other, deaf = instances.enter(), instances.enter(), instances.enter()
    for presence in (one, other, other):
        instances.listen(presence.name)
    instances.ring("queue", but=one.name)
    assert other.wait(5) == {"queue"}
    assert one.wait(0.01) == deaf.wait(0.01) == set()
    other.close()
    instances.ring("queue")
    assert one.wait(5) == {"queue"}
    one.close()
    deaf.close()
