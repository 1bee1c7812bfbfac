"""`store prune|backup|vacuum|adopt` as an operator runs them."""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import HOUR, Service
from tests.cli.test_store import LOOKING, contents
from tests.support.commands import Wsrm, document
from wsrm_mq.errors import StoreUnconfirmed
from wsrm_mq.sequence.elements import TerminateSequence
from wsrm_mq.store.sqlite import schema
from wsrm_mq.store.store import Store

WHY = ("--reason", "disk", "--yes")


@pytest.fixture
def copy(wsrm: Wsrm, service: Service, somewhere: Path) -> Path:
    """A backup of a store with a sequence that waits and one that is blocked."""
    service.deliver(service.sequence(1, 3), 1)
    service.fail(service.sequence(1, 2), 1, "no disk")
    assert wsrm("store", "backup", "copy.db").exit_code == 0
    return somewhere / "copy.db"


def serve(path: Path) -> None:
    store = Store(path)
    store.open()
    store.close()


# prune


def test_prune_says_what_it_would_delete_then_deletes_it_beside_a_service(wsrm: Wsrm, service: Service) -> None:
    service.deliver(service.sequence(1, 2, 4), 1, 2)
    expected = {"messages": 2, "bodies": 0, "size": 22, "sequences": 0, "ledger": 0, "plans": 0}
    tried = wsrm("store", "prune", "--older-than", "PT30M", "--dry-run", "--json")
    assert document(tried) == {**expected, "dry_run": True}
    assert document(wsrm("store", "info", "--json"))["messages"] == {"delivered": 2, "live": 1}
    done = wsrm("store", "prune", "--older-than", "PT30M", *WHY, "--json")
    assert document(done) == {**expected, "dry_run": False}
    told = document(wsrm("store", "info", "--json"))
    assert (told["messages"], told["pruned"]) == ({"live": 1}, 2)
    assert wsrm("store", "verify").exit_code == 0
    (row,) = service.instance.ledger("pruned")
    assert row["reason"].endswith(": disk")
    assert row["actor"]


def test_prune_leaves_what_is_younger(wsrm: Wsrm, service: Service) -> None:
    service.deliver(service.sequence(1), 1)
    assert document(wsrm("store", "prune", "--older-than", "P1D", *WHY, "--json"))["messages"] == 0


def test_prune_names_an_age_that_makes_room_where_the_one_that_was_said_does_not(wsrm: Wsrm, service: Service) -> None:
    service.deliver(service.sequence(1, 2, 4), 1, 2)
    told = wsrm("store", "prune", "--older-than", "P1D", *WHY)
    assert "With --older-than PT1H it would be 2 messages" in told.stderr
    assert "Deleted 0 messages" in told.stderr
    assert "--older-than PT1H" not in wsrm("store", "prune", "--older-than", "PT1H", *WHY).stderr
    assert "Nothing was settled" not in wsrm("store", "prune", "--older-than", "P1D", *WHY).stderr


@pytest.mark.parametrize("is_settled", [True, False])
def test_the_command_for_a_full_store_frees_something_or_nothing_is_said_to(
    wsrm: Wsrm, service: Service, is_settled: bool
) -> None:
    made = service.sequence(1, 2)
    if is_settled:
        service.deliver(made, 1, 2)
    (service.path.parent / "wsrm-mq.toml").write_text("max_store = 4096\n")
    shown = wsrm("status").stdout
    assert "max_store is reached" in shown
    assert ("Nothing may be pruned" in shown) == (not is_settled)
    commands = re.findall(r"next: wsrm-mq (store prune .*) --reason TEXT", shown)
    assert bool(commands) == is_settled
    for command in commands:
        freed = document(wsrm(*command.split(), "--reason", "full", "--yes", "--json"))
        assert freed["messages"] == 2


@pytest.mark.parametrize("words", ["TEXT", "...", " TEXT "])
def test_what_a_printed_command_has_in_place_of_a_reason_is_none(wsrm: Wsrm, service: Service, words: str) -> None:
    refused = wsrm("store", "prune", "--older-than", 0, "--reason", words, "--yes")
    assert (refused.exit_code, "stands for words of your own" in refused.stderr) == (4, True)
    renamed = wsrm("store", "application", "none", "NEW", "--reason", "moved", "--yes")
    assert (renamed.exit_code, "stand for the two names" in renamed.stderr) == (2, True)


def test_prune_forgets_ended_sequences_only_if_it_is_told_to(wsrm: Wsrm, service: Service) -> None:
    done = service.sequence(1)
    service.deliver(done, 1)
    service.instance.end(TerminateSequence(done.terms.identifier))
    service.sequence()
    tried = document(wsrm("store", "prune", "--older-than", 60, "--ended-before", 60, "--dry-run", "--json"))
    assert (tried["messages"], tried["sequences"]) == (1, 1)
    assert document(wsrm("store", "prune", "--older-than", 60, *WHY, "--json"))["sequences"] == 0
    assert document(wsrm("store", "prune", "--older-than", 60, "--ended-before", 60, *WHY, "--json"))["sequences"] == 1
    assert wsrm("sequence", "show", done.terms.identifier).exit_code == 3


def test_prune_asks_and_wants_a_reason(wsrm: Wsrm, service: Service) -> None:
    service.deliver(service.sequence(1), 1)
    refused = wsrm("store", "prune", "--older-than", 60)
    assert refused.exit_code == 4
    assert "--reason" in refused.stderr
    refused = wsrm("store", "prune", "--older-than", 60, "--reason", "r")
    assert refused.exit_code == 4
    assert "--yes" in refused.stderr
    assert service.instance.rows("SELECT count(*) AS n FROM entry") == [{"n": 1}]


@pytest.mark.parametrize("age", ["long", "-1", "P1", ""])
def test_an_age_that_is_none_is_told_with_what_is_one(wsrm: Wsrm, path: Path, age: str) -> None:
    result = wsrm("store", "prune", "--older-than", age)
    assert result.exit_code == 2
    assert "seconds from 0 (or PT30S, P7D)" in result.stderr


# backup and adopt


def test_a_backup_is_good_and_says_what_it_is(wsrm: Wsrm, copy: Path) -> None:
    told = document(wsrm("store", "info", "--store", copy, "--json"))
    assert abs(told["copied_at"] - time.time() * 1000) < 60_000
    assert "and not adopted" in wsrm("store", "info", "--store", copy).stdout
    assert wsrm("store", "verify", "--store", copy).exit_code == 0


def test_info_and_verify_of_a_copy_say_that_it_awaits_confirmation_and_how_that_is_given(
    wsrm: Wsrm, copy: Path
) -> None:
    command = f"`wsrm-mq store adopt --store {copy}`"
    for verb, heading in (("info", "not served"), ("verify", "No service starts on it: it is a copy of")):
        shown = wsrm("store", verb, "--store", copy).output
        assert heading in shown
        assert command in shown
        assert command in document(wsrm("store", verb, "--store", copy, "--json"))["unconfirmed"]
    assert wsrm("store", "adopt", "--store", copy, *WHY).exit_code == 0
    for verb in ("info", "verify"):
        assert "adopt" not in wsrm("store", verb, "--store", copy).output
        assert document(wsrm("store", verb, "--store", copy, "--json"))["unconfirmed"] is None


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_looking_at_a_copy_works_and_leaves_no_trace(
    wsrm: Wsrm, copy: Path, somewhere: Path, command: tuple[str, ...]
) -> None:
    before = contents(somewhere)
    result = wsrm(*command, "--store", copy)
    assert contents(somewhere) == before
    assert result.exit_code in (0, 3), result.output


def test_a_backup_overwrites_nothing(wsrm: Wsrm, copy: Path) -> None:
    before = copy.read_bytes()
    result = wsrm("store", "backup", "copy.db")
    assert result.exit_code == 4
    assert "exists already; it stays as it is. Name another file, or say --force." in result.stderr
    assert copy.read_bytes() == before
    assert document(wsrm("store", "backup", "copy.db", "--force", "--json"))["size"] == len(before)


def test_a_copy_is_not_changed_nor_served_before_it_is_adopted(wsrm: Wsrm, copy: Path, service: Service) -> None:
    blocked = next(row["identifier"] for row in service.instance.rows("SELECT * FROM lane WHERE blocked"))
    for command in (("sequence", "resume", blocked), ("store", "prune", "--older-than", 1)):
        result = wsrm(*command, *WHY, "--store", copy)
        assert result.exit_code == 5
        assert "is a copy of" in result.stderr
        assert f"`wsrm-mq store rehearse --store {copy}`" in result.stderr
    with pytest.raises(StoreUnconfirmed):
        serve(copy)


def test_adopt_says_what_is_lost_and_a_service_can_start(wsrm: Wsrm, copy: Path) -> None:
    tried = wsrm("store", "adopt", "--store", copy, "--dry-run", "--json")
    assert document(tried) == {"ended": 2, "undelivered": 3, "dry_run": True}
    for sentence in (
        "Open sequences that end: 2.",
        "Messages that it has not delivered: 3. They go to the dead letters",
        "partners",
    ):
        assert sentence in tried.stderr
    assert "\n- Open sequences" in tried.stderr
    assert "it can be served as it is" not in tried.stderr
    assert wsrm("store", "adopt", "--store", copy, "--reason", "disk").exit_code == 4
    with pytest.raises(StoreUnconfirmed):
        serve(copy)
    assert wsrm("store", "adopt", "--store", copy, *WHY).exit_code == 0
    letters = document(wsrm("dead-letter", "list", "--store", copy, "--json"))["dead_letters"]
    assert [one["reason"] for one in letters] == ["store_adopted"] * 3, "before a service starts"
    assert "3 dead letters of /orders" in " ".join(wsrm("status", "--store", copy).stdout.split())
    serve(copy)
    assert wsrm("store", "verify", "--store", copy).exit_code == 0
    assert document(wsrm("store", "info", "--store", copy, "--json"))["copied_at"] is None
    (ended, *_), *_ = sqlite3.connect(copy).execute("SELECT DISTINCT ended FROM lane").fetchall()
    assert ended == "failed"


def test_a_copy_that_is_the_newest_state_goes_on_as_it_was(wsrm: Wsrm, copy: Path) -> None:
    result = wsrm("store", "adopt", "--current", "--store", copy, *WHY)
    assert result.exit_code == 0
    assert "messages are lost and others run twice" in result.stderr
    serve(copy)
    assert document(wsrm("store", "info", "--store", copy, "--json"))["sequences"] == {"created": 2}


def test_what_was_run_where_a_copy_comes_from_has_no_owner_once_it_is_adopted(
    wsrm: Wsrm, service: Service, somewhere: Path
) -> None:
    sequence = service.sequence(1)
    assert wsrm("store", "backup", "copy.db").exit_code == 0
    copy = ("--store", somewhere / "copy.db")
    assert wsrm("store", "adopt", "--current", *copy, *WHY).exit_code == 0
    assert wsrm("store", "verify", *copy).exit_code == 0
    told = document(wsrm("status", *copy, "--json"))
    assert (told["instances"], told["dead_instances"]) == ([], 0)
    told = document(wsrm("sequence", "explain", sequence.terms.identifier, *copy, "--json"))
    assert "is ready, but no process of the service lives" in told["sentence"]
    done = wsrm("sequence", "skip", sequence.terms.identifier, 1, *copy, *WHY)
    assert done.exit_code == 0, done.output


def test_a_file_that_the_witness_proves_to_be_older_is_not_called_current(wsrm: Wsrm, path: Path) -> None:
    service = Service(path, 0)
    service.deliver(service.sequence(1), 1)
    service.close()
    serve(path)
    before = Path(shutil.copy(path, "before.db"))
    serve(path)
    before.replace(path)
    result = wsrm("store", "adopt", "--current", *WHY)
    assert result.exit_code == 4
    assert "is older than what was here before" in result.stderr
    assert wsrm("store", "info").exit_code == 0
    assert wsrm("store", "adopt", *WHY).exit_code == 0
    serve(path)


def test_a_store_that_stands_in_the_place_of_another_may_be_called_current(
    wsrm: Wsrm, path: Path, tmp_path: Path
) -> None:
    """What the witness knows of the other does not make this one older."""
    other = tmp_path / "other.db"
    schema.ensure(other)
    for file, starts in ((path, 5), (other, 1)):
        service = Service(file, 0)
        service.deliver(service.sequence(1), 1)
        service.close()
        for _ in range(starts):
            serve(file)
    other.replace(path)
    result = wsrm("store", "adopt", "--current", *WHY)
    assert result.exit_code == 0, result.output
    serve(path)


def test_adopt_says_where_it_is_not_needed(wsrm: Wsrm, path: Path) -> None:
    service = Service(path, 0)
    service.sequence(1)
    service.close()
    serve(path)
    assert "it can be served as it is" in wsrm("store", "adopt", "--dry-run").stderr


def test_adopt_is_refused_while_a_service_runs(wsrm: Wsrm, service: Service) -> None:
    result = wsrm("store", "adopt", *WHY)
    assert result.exit_code == 4
    assert "Stop it first" in result.stderr
    assert wsrm("store", "adopt", "--deliver", "--current", *WHY).exit_code == 2


def test_a_store_of_an_older_schema_is_copied_as_it_is(wsrm: Wsrm, path: Path, somewhere: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE identity")
        db.commit()
    result = wsrm("store", "backup", "copy.db")
    assert result.exit_code == 4
    assert "Stop the service and copy the file" in result.stderr
    assert not (somewhere / "copy.db").exists()


# vacuum


def test_vacuum_gives_back_what_prune_made_free(wsrm: Wsrm, path: Path) -> None:
    from wsrm_mq.queue.arrival import Body

    service = Service(path, time.time_ns() // 1_000_000 - HOUR)
    service.deliver(service.sequence(*range(1, 41), body=Body(bytes(20_000))), *range(1, 41))
    assert wsrm("store", "prune", "--older-than", 60, *WHY).exit_code == 0
    refused = wsrm("store", "vacuum", "--yes")
    assert refused.exit_code == 4
    assert "is used by 1 process," in refused.stderr
    service.close()
    assert document(wsrm("store", "info", "--json"))["reclaimable"] > 700_000
    tried = document(wsrm("store", "vacuum", "--dry-run", "--json"))
    done = document(wsrm("store", "vacuum", "--yes", "--json"))
    assert max(done["after"], tried["after"]) < done["before"] - 700_000
    assert done["after"] == pytest.approx(tried["after"], abs=16_384)  # rows are packed anew: a page more or less
    assert document(wsrm("store", "info", "--json"))["reclaimable"] == 0
    assert wsrm("store", "verify").exit_code == 0
