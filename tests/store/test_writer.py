from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.queue.build import sender
from tests.support.in_process import until
from tests.support.processes import Python
from wsrm_mq.errors import StoreBusy, StoreUnavailable
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import CreateSequence
from wsrm_mq.store import group_commit, writer
from wsrm_mq.store.cache import LaneCache
from wsrm_mq.store.group_commit import GroupCommit
from wsrm_mq.store.sqlite import connection, witness
from wsrm_mq.store.sqlite.connection import Connection
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

SHORT_BUSY_MS = 200


def note(event: str) -> Callable[[Transaction], str]:
    def verb(tx: Transaction) -> str:
        tx.ledger(event)
        return event

    return verb


def noted(store: Store) -> list[str]:
    with store.reader() as db:
        return [event for (event,) in db.execute("SELECT event FROM ledger ORDER BY id")]


class Held:
    """The writer's thread, stopped within a verb, so that what comes meanwhile makes one batch."""

    def __init__(self, store: Store) -> None:
        self._let_go = threading.Event()
        reached = threading.Event()

        def verb(_tx: Transaction) -> None:
            reached.set()
            self._let_go.wait(20)

        store.submit(verb, lambda _result, _error: None)
        assert reached.wait(20)

    def let_go(self) -> None:
        self._let_go.set()


class Told:
    """What callbacks were told, in order."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self._changed = threading.Condition()

    def __call__(self, result: Any, error: BaseException | None) -> None:
        with self._changed:
            self.results.append(result if error is None else error)
            self._changed.notify_all()

    def wait(self, count: int) -> list[Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.results) >= count, 20)
            return self.results


@pytest.fixture
def impatient(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that waits for another's lock a short time only."""
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", SHORT_BUSY_MS)
    store = Store(path)
    store.open()
    yield store
    store.close()


@pytest.fixture
def locked(path: Path, python: Python) -> Callable[[], None]:
    """Another process holds the write lock; calling it makes the process let go."""
    process = python(
        """
        import sqlite3, sys
        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        print("locked", flush=True)
        sys.stdin.readline()
        db.execute("ROLLBACK")
        db.close()
        print("free", flush=True)
        sys.stdin.readline()
        """,
        path,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"

    def let_go() -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "free\n"

    return let_go


def test_calls_that_come_at_once_share_commits_and_each_gets_its_own_answer(store: Store) -> None:
    calls, before = 200, store.writer.commits
    with ThreadPoolExecutor(32) as threads:
        answers = list(threads.map(lambda n: store.call(note(str(n))), range(calls)))
    assert answers == [str(n) for n in range(calls)]
    assert sorted(noted(store)) == sorted(answers)
    assert store.writer.commits - before < calls


def test_what_waits_is_one_batch_in_the_order_of_arrival(store: Store) -> None:
    before, told = store.writer.commits, Told()
    held = Held(store)
    for number in range(10):
        store.submit(note(str(number)), told)
    held.let_go()
    assert told.wait(10) == [str(n) for n in range(10)]
    assert noted(store) == [str(n) for n in range(10)]
    assert store.writer.commits - before == 2


@pytest.mark.spec("D-DUR-002", versions="all")
@pytest.mark.invariant("I7")
def test_no_result_is_told_before_it_is_on_disk(store: Store) -> None:
    seen: list[list[str]] = []
    done = threading.Event()
    other = sqlite3.connect(store.path, check_same_thread=False)

    def told(_result: str | None, _error: BaseException | None) -> None:
        seen.append([event for (event,) in other.execute("SELECT event FROM ledger")])
        done.set()

    store.submit(note("stored"), told)
    assert done.wait(20)
    other.close()
    assert seen == [["stored"]]


def test_a_batch_is_bounded_by_its_bytes(store: Store) -> None:
    before, told = store.writer.commits, Told()
    held = Held(store)
    for number in range(4):
        store.submit(note(str(number)), told, size=writer.MAX_BATCH_BYTES // 2)
    held.let_go()
    told.wait(4)
    assert store.writer.commits - before == 3


def test_a_mistake_of_one_verb_fails_only_that_verb(store: Store) -> None:
    def breaks(tx: Transaction) -> str:
        tx.ledger("half")
        raise KeyError("mine")

    def forbidden(tx: Transaction) -> None:
        tx.execute("INSERT INTO queue (name, kind, created_at) VALUES ('q', 'no such kind', 0)")

    told = Told()
    held = Held(store)
    for verb in (note("before"), breaks, forbidden, note("after")):
        store.submit(verb, told)
    held.let_go()
    results = told.wait(4)
    assert results[0] == "before"
    assert isinstance(results[1], KeyError)
    assert isinstance(results[2], sqlite3.IntegrityError)
    assert results[3] == "after"
    assert noted(store) == ["before", "after"]


def test_what_a_rolled_back_verb_read_or_made_is_not_remembered(store: Store) -> None:
    def breaks(tx: Transaction) -> None:
        tx.queue("/made-and-gone")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.call(breaks)
    key = store.call(lambda tx: tx.queue("/made-and-gone"))
    with store.reader() as db:
        assert db.execute("SELECT id FROM queue WHERE name = '/made-and-gone'").fetchall() == [(key,)]


def test_call_raises_what_the_verb_raised(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        store.call(lambda tx: 1 // 0)
    assert store.call(note("on")) == "on"


def test_a_callback_that_raises_stops_no_other(store: Store) -> None:
    def breaks(_result: object, _error: object) -> None:
        raise RuntimeError

    store.submit(note("one"), breaks)
    assert store.call(note("two")) == "two"
    assert noted(store) == ["one", "two"]


@pytest.mark.spec("D-DUR-003", versions="all")
@pytest.mark.invariant("I16")
def test_while_another_process_holds_the_lock_an_acceptance_fails_and_leaves_nothing(
    impatient: Store, locked: Callable[[], None]
) -> None:
    begun = time.monotonic()
    with pytest.raises(StoreBusy) as refused:
        impatient.call(note("refused"))
    assert SHORT_BUSY_MS / 1000 * 0.9 < time.monotonic() - begun < 5
    assert "write lock" in refused.value.hint
    locked()
    assert impatient.call(note("again")) == "again"
    assert noted(impatient) == ["again"]


@pytest.mark.timed
@pytest.mark.invariant("I16")
def test_what_comes_while_the_lock_is_waited_for_does_not_wait_for_it_twice(
    impatient: Store, locked: Callable[[], None]
) -> None:
    first, late = Told(), Told()
    impatient.submit(note("first"), first)
    begun = time.monotonic()
    time.sleep(SHORT_BUSY_MS / 1000 / 2)
    impatient.submit(note("late"), late)
    assert isinstance(late.wait(1)[0], StoreBusy)
    assert time.monotonic() - begun < 1.5 * SHORT_BUSY_MS / 1000
    assert isinstance(first.wait(1)[0], StoreBusy)
    locked()
    assert noted(impatient) == []


def test_a_settlement_outlasts_the_lock_of_another_process(impatient: Store, locked: Callable[[], None]) -> None:
    kept, refused = Told(), Told()
    impatient.submit(note("settled"), kept, keep=True)
    impatient.submit(note("refused"), refused)
    assert isinstance(refused.wait(1)[0], StoreBusy)
    assert kept.results == []
    locked()
    assert kept.wait(1) == ["settled"]
    assert noted(impatient) == ["settled"]


def test_kept_verbs_stay_in_their_order(impatient: Store, locked: Callable[[], None]) -> None:
    kept, refused = Told(), Told()
    for number in range(3):
        impatient.submit(note(str(number)), kept, keep=True)
    impatient.submit(note("refused"), refused)
    refused.wait(1)
    impatient.submit(note("3"), kept, keep=True)
    locked()
    assert kept.wait(4) == ["0", "1", "2", "3"]


def test_closing_writes_what_waits_and_then_refuses(path: Path) -> None:
    store, told = Store(path), Told()
    store.open()
    writer = store.writer
    held = Held(store)
    for number in range(5):
        store.submit(note(str(number)), told)
    held.let_go()
    store.close()
    assert told.results == [str(n) for n in range(5)]
    with pytest.raises(StoreUnavailable, match="closed"):
        store.call(note("late"))
    with pytest.raises(StoreUnavailable, match="closed"):
        writer.call(note("late"))
    with pytest.raises(StoreUnavailable, match="closed"), store.reader():
        pass


def test_what_is_asked_while_a_process_forks_waits_and_is_written(store: Store) -> None:
    told, names = Told(), []
    store.suspend()
    store.submit(note("meanwhile"), told)
    reading = threading.Thread(target=lambda: names.extend(noted(store)))
    reading.start()
    assert told.results == []
    assert reading.is_alive()
    store.resume()
    assert told.wait(1) == ["meanwhile"]
    reading.join(20)
    assert not reading.is_alive()


def test_a_suspended_store_has_no_connection_open(store: Store) -> None:
    store.call(note("something"))
    noted(store)
    store.suspend()
    lsof = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not {f"{store.path}{suffix}" for suffix in ("", "-wal", "-shm")} & {str(target) for target in lsof}
    store.resume()


def test_the_wal_is_checkpointed_once_for_so_many_bytes_and_not_after_every_commit(store: Store) -> None:
    statements: list[str] = []

    def traced(tx: Transaction) -> None:
        tx.db.set_trace_callback(statements.append)

    store.call(traced)
    written = group_commit.CHECKPOINT_BYTES // 4
    for _ in range(9):
        store.call(note("large"), size=written)
    for _ in range(20):
        store.call(note("small"))
    assert sum("wal_checkpoint" in text for text in statements) == 2


def test_a_large_wal_left_by_a_crash_does_not_slow_the_next_writer(store: Store) -> None:
    """The file keeps its size after a checkpoint, so its size says nothing of what is in it."""
    body = b"x" * 1_000_000

    def large(tx: Transaction) -> None:
        row = "INSERT INTO message (environ, received_at, body_size, body) VALUES ('{}', 0, ?, ?)"
        tx.execute(row, (len(body), body))

    for _ in range(18):
        store.call(large, size=len(body))
    assert Path(f"{store.path}-wal").stat().st_size > 16_000_000
    statements: list[str] = []
    store.call(lambda tx: tx.db.set_trace_callback(statements.append))
    for _ in range(20):
        store.call(note("small"))
    assert not [text for text in statements if "wal_checkpoint" in text]


def test_no_error_ends_the_writer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its thread every request would wait for ever."""

    def broken() -> None:
        raise RuntimeError("unforeseen")

    reserve = store.writer._reserve
    assert reserve is not None
    monkeypatch.setattr(reserve, "restore", broken)
    store.call(note("before"))  # it goes wrong after the commit, when every waiter was told
    monkeypatch.setattr(store.writer, "_write", lambda _batch: broken())
    with pytest.raises(StoreUnavailable, match="unforeseen"):
        store.call(note("refused"))
    monkeypatch.undo()
    store.call(note("after"))
    assert noted(store) == ["before", "after"]


# many that wait


def test_who_waits_while_another_thread_writes_is_written_with_the_others(store: Store) -> None:
    held = Held(store)
    with ThreadPoolExecutor(10) as pool:
        waiting = [pool.submit(store.call, note(str(number))) for number in range(10)]
        assert until(lambda: len(store.writer._queue.waiting) == 10)
        before = store.writer.commits
        held.let_go()
        assert [one.result(20) for one in waiting] == list(map(str, range(10)))
    assert store.writer.commits - before == 2, "the held one, and one for all"


def test_many_that_wait_are_each_told_their_own(store: Store) -> None:
    def some(first: int) -> list[str]:
        return [store.call(note(str(number))) for number in range(first, first + 25)]

    with ThreadPoolExecutor(8) as pool:
        told = [one for results in pool.map(some, range(0, 200, 25)) for one in results]
    assert told == list(map(str, range(200)))
    assert sorted(noted(store), key=int) == told


@pytest.mark.timed
def test_what_lingers_is_written_when_no_more_calls_come(store: Store) -> None:
    told = Told()
    for number in range(5):
        store.call(note(f"called {number}"))
        store.submit(note(str(number)), told, lingers=True)
    begun = time.monotonic()
    told.wait(5)
    assert time.monotonic() - begun < writer.NET_SECONDS / 2


# a loop that writes in its own thread


@pytest.mark.parametrize(("owner", "step"), [(Transaction, "committed"), (GroupCommit, "_count")])
@pytest.mark.parametrize("keep", [False, True])
def test_what_is_committed_is_told_as_committed_and_not_run_again_whatever_happens_after(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    keep: bool,
    owner: type[object],
    step: str,
) -> None:
    rightly, raised = getattr(owner, step), threading.Event()

    def once_not(*arguments: object) -> None:
        if not raised.is_set():
            raised.set()
            raise RuntimeError("unforeseen")
        rightly(*arguments)

    monkeypatch.setattr(owner, step, once_not)
    told = Told()
    store.submit(note("settled"), told, keep=keep)
    assert told.wait(1) == ["settled"]
    assert store.call(note("next")) == "next"
    assert noted(store) == ["settled", "next"]
    assert "unforeseen" in caplog.text


def test_what_is_remembered_and_counted_is_right_although_something_broke_after_the_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = store.call(lambda tx: create(tx, sender(), CreateSequence(None), None, QueuePolicy()))
    assert receipt.created is not None
    key = store.call(lambda tx: count_and_change(tx))
    with monkeypatch.context() as broken:
        broken.setattr(LaneCache, "keep", lambda *_: 1 / 0)
        assert store.call(lambda tx: count_and_change(tx)) == key
    assert store.call(lambda tx: count_and_change(tx)) == key
    with store.reader() as db:
        assert db.execute("SELECT duplicates FROM sequence").fetchall() == [(3,)]
        assert db.execute("SELECT value FROM counter WHERE name = 'duplicate'").fetchall() == [(3,)]


def count_and_change(tx: Transaction) -> int:
    record = tx.sequence(1)
    assert record is not None
    record.duplicates += 1
    tx.counts["duplicate", record.queue, ""] += 1
    tx.count_now()
    return record.id


def test_what_is_led_is_one_commit_in_the_leaders_own_thread(store: Store) -> None:
    before, told, threads = store.writer.commits, Told(), []
    for number in range(10):
        store.writer.submit(note(str(number)), told, is_led=True)
    store.writer.submit(lambda _tx: threads.append(threading.current_thread()), told, is_led=True)
    store.writer.lead()
    assert told.results == [*map(str, range(10)), None]
    assert threads == [threading.current_thread()]
    assert store.writer.commits - before == 1


@pytest.mark.timed
def test_what_is_too_much_for_the_loop_is_written_by_the_thread_at_once(store: Store) -> None:
    """No loop leads a second time."""
    told = Told()
    for number in range(4):
        store.writer.submit(note(str(number)), told, size=writer.LED_BYTES // 2, is_led=True)
    begun = time.monotonic()
    store.writer.lead()
    assert told.results[:2] == ["0", "1"]
    assert told.wait(4) == ["0", "1", "2", "3"]
    assert time.monotonic() - begun < writer.NET_SECONDS / 2


def test_a_loop_leaves_what_is_written_last_of_all_to_the_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the loop could not write at once it would put back when the thread has ended."""
    stop, threads = store.writer.suspend, list[threading.Thread]()

    def lead_then_stop() -> None:
        store.writer.lead()
        stop()

    monkeypatch.setattr(store.writer, "suspend", lead_then_stop)
    store.writer.close(lambda _tx: threads.append(threading.current_thread()))
    assert threads[0] is not threading.current_thread()


def test_one_large_verb_does_not_keep_the_loop(store: Store) -> None:
    told, threads = Told(), []
    store.writer.submit(
        lambda _tx: threads.append(threading.current_thread()), told, size=writer.LED_BYTES + 1, is_led=True
    )
    store.writer.lead()
    told.wait(1)
    assert threads[0] is not threading.current_thread()


@pytest.mark.timed
def test_what_a_loop_that_has_ended_left_is_written_all_the_same(store: Store) -> None:
    told = Told()
    store.writer.is_attended = True
    store.writer.submit(note("led"), told, is_led=True)
    store.submit(note("settled"), told, lingers=True)
    assert told.wait(2) == ["led", "settled"]
    for number in range(5):  # and from then on it is not counted on
        begun = time.monotonic()
        store.submit(note(str(number)), told, lingers=True)
        told.wait(3 + number)
        assert time.monotonic() - begun < writer.NET_SECONDS / 2


def test_what_is_thrown_into_a_thread_that_leads_leaves_the_batch_to_the_writers_thread(store: Store) -> None:
    thrown, told = [KeyboardInterrupt()], Told()

    def broken_off(tx: Transaction) -> str:
        if thrown:
            raise thrown.pop()
        return note("led")(tx)

    store.writer.submit(note("beside"), told, is_led=True)
    with pytest.raises(KeyboardInterrupt):
        store.call(broken_off, leads=True)
    assert told.wait(1) == ["beside"]
    store.call(note("behind"))
    assert noted(store) == ["beside", "led", "behind"]


def test_what_is_thrown_into_a_thread_that_leads_while_it_commits_is_raised_and_all_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, told = Connection.execute, Told()

    def broken_off(self: Connection, statement: str, *parameters: Any) -> Any:
        result = execute(self, statement, *parameters)
        if statement == "COMMIT":
            monkeypatch.undo()
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(Connection, "execute", broken_off)
    with pytest.raises(KeyboardInterrupt):
        store.call(note("led"), leads=True, committed=lambda result: told(result, None))
    assert told.results == noted(store) == ["led"]
    assert store.call(note("behind"), leads=True) == "behind"


@pytest.mark.timed
def test_a_loop_does_not_wait_for_the_lock_of_another_process(store: Store, locked: Callable[[], None]) -> None:
    told = Told()
    for number in range(3):  # the second and the third come while the thread waits
        store.writer.submit(note(str(number)), told, is_led=True)
        begun = time.monotonic()
        store.writer.lead()
        assert time.monotonic() - begun < writer.LEAD_SECONDS / 2
        time.sleep(0.05)
    assert told.results == []
    locked()
    assert told.wait(3) == ["0", "1", "2"]
    assert noted(store) == ["0", "1", "2"]


@pytest.mark.timed
def test_a_loop_does_not_wait_for_a_checkpoint(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, let_go = threading.Event(), threading.Event()
    checkpoint = GroupCommit.checkpoint

    def slow(self: GroupCommit) -> None:
        if self.checkpoint_due:
            begun.set()
            let_go.wait(20)
        checkpoint(self)

    monkeypatch.setattr(GroupCommit, "checkpoint", slow)
    told = Told()
    store.call(note("large"), size=group_commit.CHECKPOINT_BYTES)
    assert begun.wait(20)
    store.writer.submit(note("led"), told, is_led=True)
    asked_at = time.monotonic()
    store.writer.lead()
    assert time.monotonic() - asked_at < writer.LEAD_SECONDS / 2
    assert told.results == []
    let_go.set()
    assert told.wait(1) == ["led"]


@pytest.mark.timed
@pytest.mark.invariant("I16")
def test_what_is_led_while_the_lock_is_waited_for_does_not_wait_for_it_twice(
    impatient: Store, locked: Callable[[], None]
) -> None:
    told = Told()
    begun = time.monotonic()
    for number in range(2):
        impatient.writer.submit(note(str(number)), told, is_led=True)
        impatient.writer.lead()
        time.sleep(SHORT_BUSY_MS / 1000 / 2)
    assert all(isinstance(error, StoreBusy) for error in told.wait(2))
    assert time.monotonic() - begun < 3 * SHORT_BUSY_MS / 1000
    locked()


def test_a_mistake_of_one_led_verb_fails_only_that_verb(store: Store) -> None:
    def breaks(tx: Transaction) -> str:
        tx.ledger("half")
        raise KeyError("mine")

    told = Told()
    for verb in (note("before"), breaks, note("after")):
        store.writer.submit(verb, told, is_led=True)
    store.writer.lead()
    results = told.wait(3)
    assert (results[0], results[2]) == ("before", "after")
    assert isinstance(results[1], KeyError)
    assert noted(store) == ["before", "after"]


def test_an_unforeseen_error_leaves_no_led_verb_waiting(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> None:
        raise RuntimeError("unforeseen")

    told = Told()
    monkeypatch.setattr(witness, "file_ids", broken)
    store.writer.submit(note("refused"), told, is_led=True)
    store.writer.lead()
    assert isinstance(told.wait(1)[0], StoreUnavailable)
    monkeypatch.undo()
    store.writer.submit(note("after"), told, is_led=True)
    store.writer.lead()
    assert told.wait(2)[1] == "after"
    assert noted(store) == ["after"]


def test_what_is_led_and_what_is_called_keep_their_order(store: Store) -> None:
    """The thread and a loop write by turns, each what came first."""
    told, stopping = Told(), threading.Event()

    def settle() -> None:
        number = 0
        while not stopping.is_set():
            store.submit(note(f"s{number}"), told, keep=True, lingers=number % 3 > 0)
            number += 1
            time.sleep(0.0005)

    settling = threading.Thread(target=settle)
    settling.start()
    led = Told()
    for number in range(200):
        store.writer.submit(note(f"l{number}"), led, is_led=True)
        store.writer.lead()
    led.wait(200)
    stopping.set()
    settling.join()
    store.call(note("last"))
    written = noted(store)
    assert [event for event in written if event.startswith("l") and event != "last"] == [f"l{n}" for n in range(200)]
    settled = [event for event in written if event.startswith("s")]
    assert settled == [f"s{n}" for n in range(len(settled))]
    assert len(told.results) == len(settled)


def test_what_is_led_while_the_process_forks_is_written_after_it(store: Store) -> None:
    told = Told()
    store.suspend()
    store.writer.submit(note("meanwhile"), told, is_led=True)
    store.writer.lead()
    assert told.results == []
    store.resume()
    assert told.wait(1) == ["meanwhile"]
