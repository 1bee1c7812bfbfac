"""What a plan is made of, and what it says of it."""

from __future__ import annotations

import stat
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest

from tests.replay.build import House, numbers, read
from wsrm_mq.errors import NotAllowed, NotFound, QueryError
from wsrm_mq.replay import Wishes, force, make_plan
from wsrm_mq.replay.planning import Candidate, Ordering, Standing

DAY = 86_400_000


def flags(file: Path) -> dict[int | None, tuple[str, ...]]:
    return {line.number: line.flags for line in read(file)[1]}


def test_messages_run_in_the_order_of_receipt_and_those_of_a_sequence_in_that_of_their_numbers(house: House) -> None:
    one, other = house.rm.create(), house.rm.create()
    for identifier, number in ((one, 2), (other, 1), (one, 1), (other, 2), (one, 3)):
        house.rm.put(identifier, number)
    house.settled()
    _header, lines = read(house.plan("queue:/orders"))
    named = {one: "one", other: "other"}
    assert [(named[line.sequence or ""], line.number) for line in lines] == [
        *(("other", 1), ("one", 1), ("one", 2)),
        *(("other", 2), ("one", 3)),
    ]


def test_the_header_says_what_the_plan_is_about(house: House) -> None:
    house.sequence(1, 2, 4)
    header, lines = read(house.plan("queue:/orders", reason="the disk was full"))
    assert (header.actor, header.reason, header.query) == ("ann", "the disk was full", "queue:/orders")
    assert (header.messages, header.groups, header.bytes) == (3, 1, sum(line.size for line in lines))
    assert header.counts == {"delivered": 2, "duplicate": 2, "held": 1, "breaks_order": 1}


def test_the_store_knows_the_plan_by_its_digest(house: House) -> None:
    import hashlib

    house.sequence(1)
    file = house.plan("queue:/orders")
    assert house.rm.rows("SELECT digest, file, messages, state FROM plan") == [
        (hashlib.sha256(file.read_bytes()).hexdigest(), str(file), 1, "planned")
    ]


@pytest.mark.parametrize(
    ("query", "broken"),
    [
        ("msg:1-3", {1, 2, 3}),
        ("msg:4-5", set[int]()),
        ("outcome:delivered", set[int]()),
        ("msg:2,4", {2, 4}),
        ("msg:7", {7}),
    ],
)
def test_what_runs_out_of_the_order_of_its_sequence_is_marked(house: House, query: str, broken: set[int]) -> None:
    """Numbers 1 to 5 are delivered and 6 is missing, so 7 is held."""
    house.sequence(1, 2, 3, 4, 5, 7)
    found = flags(house.plan(query))
    assert {number for number, its in found.items() if "breaks_order" in its} == broken


def broken(file: Path) -> set[int | None]:
    return {number for number, its in flags(file).items() if "breaks_order" in its}


def test_a_number_that_a_sequence_was_forced_past_is_not_waited_for(house: House) -> None:
    identifier = house.sequence(1, 3, 5)
    force(house.path, identifier, to=3, actor="ann", reason="2 is lost")
    house.settled()
    assert broken(house.plan("queue:/orders")) == {5}, "number 4 may still come"
    force(house.path, identifier, past=4, actor="ann", reason="4 is lost too")
    house.settled()
    assert broken(house.plan("queue:/orders")) == set()
    assert broken(house.plan("msg:1,5")) == {1}, "number 3 was delivered after it"


def test_what_stands_behind_a_number_that_was_given_up_and_is_not_delivered_keeps_its_order(house: House) -> None:
    """Number 2 is not waited for any more, so 3, which the service does not take, follows 1; 6 waits for 5."""
    house.service.refused = {3}
    identifier = house.sequence(1, 3, 4, 6)
    force(house.path, identifier, to=3, actor="ann", reason="2 is lost")
    house.settled()
    assert broken(house.plan("queue:/orders")) == {6}
    assert broken(house.plan("msg:4")) == {4}, "number 3 is still to be delivered"


@pytest.mark.parametrize(
    ("outcome", "reason", "breaks"),
    [("discarded", "by_operator", False), ("dead", "skipped", False), ("discarded", "replayed", True)],
)
def test_only_what_the_service_has_had_comes_after_what_is_replayed(
    house: House, outcome: str, reason: str, *, breaks: bool
) -> None:
    house.sequence(1, 2, 3)
    house.rm.rows("UPDATE entry SET outcome = ?, reason = ? WHERE number = 3", outcome, reason)
    assert broken(house.plan("msg:1-2")) == ({1, 2} if breaks else set())


def test_what_was_discarded_is_replayed_only_if_it_is_asked_for(house: House) -> None:
    house.sequence(1, 2)
    house.rm.rows("UPDATE entry SET outcome = 'discarded', reason = 'wrong' WHERE number = 1")
    file = house.plan("queue:/orders")
    assert numbers(file) == [2]
    [left_out] = read(file)[0].left_out
    assert (left_out.messages, left_out.example) == (1, "position 1")
    assert "outcome:discarded" in left_out.why
    assert numbers(house.plan("outcome:discarded")) == [1]


def test_a_message_that_was_replayed_before_is_one_line_for_what_stands_for_it_now(house: House) -> None:
    house.service.refused = {2}
    house.sequence(1, 2)
    house.other.refused = {2}
    first = house.plan("msg:2")
    house.run(first)
    [line] = read(house.plan("msg:2 queue:/orders"))[1]
    assert (line.position, line.state, line.number) == (3, "ready", 2)


def test_what_a_replay_has_not_delivered_is_planned_and_not_its_original_beside_it(house: House) -> None:
    """The original was delivered. It and its replay fit the query, in whatever order they are found."""
    house.sequence(1)
    house.service.refused = {1}
    house.run_to_service(house.plan("queue:/orders", target="app"))
    file = house.plan("queue:/orders", target="app")
    assert [(line.position, line.number, line.state) for line in read(file)[1]] == [(2, 1, "held")]
    house.service.refused = set()
    house.service.calls.clear()
    house.run_to_service(file)
    house.settled()
    assert house.service.numbers == [1]
    assert house.rm.rows("SELECT id, outcome FROM entry") == [(1, "delivered"), (2, "discarded"), (3, "delivered")]


@pytest.mark.parametrize("of_same", list(permutations(Standing, 2)), ids=str)
def test_of_two_entries_of_a_message_the_one_that_stands_higher_is_planned(
    tmp_path: Path, of_same: tuple[Standing, Standing]
) -> None:
    each = (Candidate(1, one + 10, 1, 1, "/orders", "urn:s", None, None, 1, 0, "", one) for one in of_same)
    with Ordering(tmp_path) as ordering:
        ordering.add(each)
        ordering.end()
        assert [one.standing for one, _breaks_order in ordering.ordered()] == [max(of_same)]
    assert max(Standing) is Standing.LIVE
    assert min(Standing) is Standing.SETTLED


def test_only_its_owner_may_read_a_plan(house: House) -> None:
    house.sequence(1)
    assert stat.S_IMODE(house.plan("queue:/orders").stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", ["UPDATE message SET body = NULL WHERE id = 1", "UPDATE lane SET pruned = 7"])
def test_what_retention_has_taken_is_refused_or_left_out(house: House, damage: str) -> None:
    house.sequence(1, 2)
    house.rm.rows(damage)
    with pytest.raises(NotAllowed, match=r"--skip-missing"):
        house.plan("queue:/orders")
    assert not list(house.directory.glob("*.json"))
    file = house.plan("queue:/orders", skip_missing=True)
    assert read(file)[0].left_out[0].messages in (1, 7)


def test_a_sequence_that_retention_has_taken_whole_is_missed_where_it_may_have_fitted(house: House) -> None:
    gone, kept = house.sequence(1, 2), house.sequence(1, 2)
    for table, column in (("entry", "id"), ("message", "id")):
        house.rm.rows(f"DELETE FROM {table} WHERE {column} IN (1, 2)")
    house.rm.rows("UPDATE lane SET pruned = 2 WHERE identifier = ?", gone)
    for query in (f"seq:{gone},{kept}", "queue:/orders", "outcome:delivered", "since:7d", "until:0s"):
        with pytest.raises(NotAllowed, match=rf"2 deleted by retention \(such as sequence {gone}\)"):
            house.plan(query)
    for query in (f"seq:{kept}", "pos:3-"):
        assert numbers(house.plan(query)) == [1, 2]
    [left] = read(house.plan("queue:/orders", skip_missing=True))[0].left_out
    assert (left.messages, left.example) == (2, f"sequence {gone}")


def test_a_plan_says_in_words_that_effects_repeat(house: House) -> None:
    house.sequence(1)
    plain, _ = read(house.plan("queue:/orders"))
    new, _ = read(house.plan("queue:/orders", as_new=True))
    assert "Delivered before: 1." in plain.warnings[0]
    assert new.warnings[0].startswith("Effects repeat")


def test_messages_older_than_the_marks_of_the_service_are_marked(house: House) -> None:
    house.sequence(1, 2)
    house.rm.rows("UPDATE message SET received_at = received_at - ? WHERE id = 1", 10 * DAY)
    file = house.plan("queue:/orders", marks_kept=7 * DAY)
    assert flags(file) == {1: ("duplicate", "old"), 2: ("duplicate",)}
    assert "Older than the 7 days for which the service keeps its marks: 1." in " ".join(read(file)[0].warnings)


def test_a_file_that_is_there_is_not_overwritten(house: House) -> None:
    house.sequence(1)
    file = house.plan("queue:/orders")
    before = file.read_bytes()
    with pytest.raises(NotAllowed, match="is there already"):
        make_plan(house.path, Wishes("queue:/orders"), file)
    assert file.read_bytes() == before
    assert house.rm.rows("SELECT count(*) FROM plan") == [(1,)]


def test_nothing_is_left_of_a_plan_that_could_not_be_made(house: House) -> None:
    house.sequence(1)
    for query, error in (("pos:999", NotFound), ("queue:/nowhere", QueryError), ("colour:red", QueryError)):
        with pytest.raises(error):
            house.plan(query)
    with pytest.raises(NotAllowed, match="cannot be written"):
        make_plan(house.path, Wishes("queue:/orders"), house.directory / "missing" / "plan.json")
    assert not [one for one in house.directory.iterdir() if "plan" in one.name]
    assert house.rm.rows("SELECT count(*) FROM plan") == [(0,)]


@pytest.mark.parametrize("size", ["8k", "16k", "32k"])
def test_a_disk_too_full_for_a_plan_is_told_by_the_name_of_its_file(
    house: House, mount: Callable[..., Path], size: str
) -> None:
    house.sequence(*range(1, 101))
    full = mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs")
    told = r"day\.json: cannot be written: (database or disk is full|No space left on device)\. No plan was made"
    with pytest.raises(NotAllowed, match=told):
        make_plan(house.path, Wishes("queue:/orders"), full / "day.json")
    assert not [*full.iterdir()]
    assert house.rm.rows("SELECT count(*) FROM plan") == [(0,)]
