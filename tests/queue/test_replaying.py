from __future__ import annotations

import pytest
from sqlalchemy import Text

from tests.queue.build import Instance
from tests.queue.test_operate import BLOCKS, do_skip, stopped
from tests.queue.test_retention import HOUR, claim_of, delivered, prune
from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue.dead_letters import discard, restore
from wsrm_mq.queue.ending import bury_tails
from wsrm_mq.queue.operate import terminate
from wsrm_mq.queue.plans import Planned, enter
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.replaying import add_replay, replays_of
from wsrm_mq.queue.withdrawing import stored
from wsrm_mq.sequence.elements import TerminateSequence
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.tables import plan as plans
from wsrm_mq.store.transaction import Transaction


def replay(one: Instance, *positions: int, plan: str | None = None, into: int | None = None) -> str:
    """Replay messages of one sequence; answers the identifier of the sequence of their replays."""

    def verb(tx: Transaction) -> str:
        source = stored(tx, positions[0])
        replays = replays_of(tx, source.lane, source.home if into is None else into, plan)
        for position in positions:
            add_replay(tx, position, replays)
        return replays.identifier

    identifier = one.run(verb)
    assert list(all_findings(one.db)) == []
    return identifier


def add_plan(one: Instance, name: str) -> None:
    needed = [column for column in plans.columns if not column.nullable and column.server_default is None]
    row = {column.name: "" if isinstance(column.type, Text) else 0 for column in needed}
    row |= {"id": name, "state": "running"}
    values = ", ".join(f":{column}" for column in row)
    one.db.execute(f"INSERT INTO plan ({', '.join(row)}) VALUES ({values})", row)


def positions(one: Instance, key: int) -> list[int]:
    return [row["id"] for row in one.rows("SELECT id FROM entry WHERE lane = ? ORDER BY number", key)]


@pytest.mark.invariant("I6")
def test_the_replay_of_a_dead_letter_settles_it_in_the_same_commit(one: Instance) -> None:
    identifier, key = stopped(one, 1, 2)
    letter = do_skip(one, identifier, 1)
    replays = one.record(replay(one, letter))
    (row,) = one.rows("SELECT * FROM entry WHERE lane = ?", replays.id)
    assert (row["number"], row["outcome"], row["replay_of"], row["message"]) == (1, None, letter, letter)
    was = one.entry(key, 1)
    assert (was["outcome"], was["reason"]) == ("discarded", "replayed")
    assert one.rows("SELECT name FROM queue WHERE id = ?", row["queue"]) == [{"name": "/orders"}]


def test_messages_of_one_sequence_are_replayed_in_one_in_the_order_in_which_they_are_added(one: Instance) -> None:
    identifier = delivered(one, 1, 2, 3)
    first, second, third = positions(one, one.record(identifier).id)
    replays = replay(one, second, first)
    assert replay(one, third) == replays
    assert one.to_run(claim_of(one, replays)) == [1, 2, 3]
    record = one.record(replays)
    rows = one.rows("SELECT replay_of FROM entry WHERE lane = ? ORDER BY number", record.id)
    assert [row["replay_of"] for row in rows] == [second, first, third]
    assert (record.kind, record.replay_of, record.ordered) == ("replay", one.record(identifier).id, True)


def test_each_plan_has_a_sequence_of_its_own(one: Instance) -> None:
    identifier = delivered(one, 1)
    (position,) = positions(one, one.record(identifier).id)
    for plan in ("one", "other"):
        add_plan(one, plan)
    assert len({replay(one, position, plan=plan) for plan in (None, "one", "other", "one")}) == 3


def test_what_was_delivered_stays_delivered_where_it_is_replayed(one: Instance) -> None:
    identifier = delivered(one, 1)
    key = one.record(identifier).id
    (position,) = positions(one, key)
    replays = replay(one, position)
    one.settle(claim_of(one, replays), 1, release=True)
    assert one.outcomes(key) == {1: "delivered"} == one.outcomes(one.record(replays).id)


def test_the_replay_of_what_waits_takes_it_out_of_its_sequence_which_goes_on(one: Instance) -> None:
    identifier, key = stopped(one, 1, 2)
    replay(one, positions(one, key)[0])
    assert one.outcomes(key) == {1: "discarded", 2: None}
    assert one.to_run(claim_of(one, identifier)) == [2]


def test_what_runs_now_is_not_replayed(one: Instance) -> None:
    identifier = one.create().terms.identifier
    one.take(identifier, 1)
    with pytest.raises(NotAllowed, match="not known to be dead"):  # the build's instances have no lock file
        replay(one, *positions(one, one.record(identifier).id))
    assert one.outcomes(one.record(identifier).id) == {1: None}


def test_what_is_held_is_replayed_whatever_runs_and_waits_no_more(one: Instance) -> None:
    identifier = one.create().terms.identifier
    one.take(identifier, 1)
    one.take(identifier, 3)
    key = one.record(identifier).id
    replay(one, one.entry(key, 3)["id"])
    record = one.record(identifier)
    assert (record.held, record.held_bytes) == (0, 0)
    one.settle(claim_of(one, identifier), 1)
    one.take(identifier, 2)
    assert one.to_run(claim_of(one, identifier)) == [2]


def test_a_replay_that_fails_for_good_is_a_dead_letter_again_and_one_of_a_plan_blocks(one: Instance) -> None:
    identifier, _ = stopped(one, 1)
    letter = do_skip(one, identifier, 1)
    replays = replay(one, letter)
    one.fail(claim_of(one, replays), 1, BLOCKS)
    record = one.record(replays)
    again = one.entry(record.id, 1)
    assert (again["outcome"], again["reason"], again["failures"]) == ("dead", "max_failures", 1)
    assert replay(one, again["id"]) == replays, "in the same sequence"
    one.settle(claim_of(one, replays), 2, release=True)
    assert one.outcomes(record.id) == {1: "discarded", 2: "delivered"}

    add_plan(one, "p")
    planned = replay(one, letter, plan="p")
    one.fail(claim_of(one, planned), 1, QueuePolicy(retry=()))
    assert one.record(planned).blocked is not None


def test_what_was_answered_with_a_fault_alarms_no_more_once_its_own_queue_replays_it(one: Instance) -> None:
    identifier = one.create().terms.identifier
    one.take(identifier, 1)
    one.settle(claim_of(one, identifier), 1, remark="answered 500 with a fault", release=True)
    (faulted,) = positions(one, one.record(identifier).id)
    elsewhere = one.run(lambda tx: tx.queue("elsewhere", "outgoing"))
    replay(one, faulted, into=elsewhere)
    assert one.rows("SELECT confirmed_at FROM entry WHERE id = ?", faulted) == [{"confirmed_at": None}]
    replay(one, faulted)
    assert one.rows("SELECT confirmed_at FROM entry WHERE id = ?", faulted) == [{"confirmed_at": one.clock()}]


def test_a_body_that_is_gone_cannot_be_replayed(one: Instance) -> None:
    identifier = delivered(one, 1)
    one.db.execute("UPDATE message SET body = NULL")
    with pytest.raises(NotAllowed, match="no body any more"):
        replay(one, *positions(one, one.record(identifier).id))


def test_retention_leaves_what_a_replay_needs_and_takes_it_when_the_replay_goes(one: Instance) -> None:
    identifier, key = stopped(one, 1)
    letter = do_skip(one, identifier, 1)
    one.end(TerminateSequence(identifier))
    replays = replay(one, letter)
    one.clock.advance(20 * HOUR)
    prune(one)
    assert one.outcomes(key) == {1: "discarded"}
    one.settle(claim_of(one, replays), 1, release=True)
    one.create()  # the newest sequence stays
    one.clock.advance(20 * HOUR)
    for _ in range(3):
        prune(one)
    assert one.rows("SELECT id FROM entry") == [] == one.rows("SELECT id FROM message")
    assert len(one.rows("SELECT id FROM lane")) == 1


def test_no_source_can_speak_of_a_sequence_of_replays(one: Instance) -> None:
    identifier = delivered(one, 1)
    replays = replay(one, *positions(one, one.record(identifier).id))
    receipt = one.take(replays, 2)
    assert receipt.act is None
    assert receipt.fault is not None
    assert receipt.fault.subcode == "UnknownSequence"


def test_what_is_replayed_after_its_replays_were_given_up_is_in_a_new_sequence(one: Instance) -> None:
    identifier, _key = stopped(one, 1, 2)
    letter = do_skip(one, identifier, 1)
    first = replay(one, letter)
    one.run(lambda tx: terminate(tx, first, drain=False, actor="alice", reason="enough"))
    one.run(bury_tails)
    (again,) = positions(one, one.record(first).id)
    second = replay(one, again)
    assert second != first
    (claim,) = [claim for claim in one.runnable() if claim.lane == one.record(second).id]
    assert one.to_run(claim) == [1]


def test_a_plan_enters_no_more_of_what_an_operator_gave_up(one: Instance) -> None:
    identifier = delivered(one, 1, 2)
    add_plan(one, "p")
    first, second = positions(one, one.record(identifier).id)
    replays = replay(one, first, plan="p")
    one.run(lambda tx: terminate(tx, replays, drain=False, actor="alice", reason="enough"))
    with pytest.raises(NotAllowed, match="given up: terminated_by_operator"):
        replay(one, second, plan="p")


def test_what_follows_a_message_that_could_not_be_taken_out_stays_behind_it(one: Instance) -> None:
    """The first is being run when its line is read; when the others' are, it waits for a retry."""
    identifier = one.create().terms.identifier
    claim = one.take(identifier, 1).claim
    assert claim is not None
    one.take(identifier, 2)
    one.take(identifier, 3)
    add_plan(one, "p")
    one.db.execute("UPDATE plan SET owner = ?", (one.key,))
    first, second, third = positions(one, claim.lane)

    def skipped(before: int, *lines: Planned) -> list[int]:
        one.run(lambda tx: enter(tx, "p", before, lines, to_app=True))
        return [row["position"] for row in one.ledger("replay_skipped")]

    assert skipped(0, Planned(claim.lane, first, "leased")) == [first]
    one.fail(claim, 1, QueuePolicy(retry=(HOUR,)))
    assert skipped(1, Planned(claim.lane, second, "ready")) == [first, second]
    assert skipped(2, Planned(claim.lane, third, "ready", breaks_order=True)) == [first, second]
    assert one.outcomes(claim.lane) == {1: None, 2: None, 3: "discarded"}


def test_what_was_discarded_is_not_restored_before_what_was_replayed_behind_it(one: Instance) -> None:
    identifier = one.create().terms.identifier
    claim = one.take(identifier, 1).claim
    assert claim is not None
    one.take(identifier, 2)
    one.take(identifier, 3)
    one.fail(claim, 1, QueuePolicy(retry=(HOUR,)))
    _first, second, third = positions(one, claim.lane)
    one.run(lambda tx: discard(tx, second, actor="alice", reason="wrong"))
    replay(one, third)
    with pytest.raises(NotAllowed, match="would come late"):
        one.run(lambda tx: restore(tx, second, actor="alice", reason="right after all"))
