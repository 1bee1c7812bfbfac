"""Messages that came in no lane: each is claimed, settled, tried again and put aside by itself, by the same verbs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue.build import Instance, Node, arrival, sender
from tests.queue.test_retention import count, prune
from wsrm_mq.errors import FenceLost
from wsrm_mq.queue.adopt import adopt
from wsrm_mq.queue.arrival import MessageReceipt
from wsrm_mq.queue.broken_run import let_go, let_go_dropped, take_over
from wsrm_mq.queue.dead_letters import confirm, discard, redrive, restore, retry
from wsrm_mq.queue.failure import Aftermath, Failed, fail
from wsrm_mq.queue.ownership import Claim, give_back, leave
from wsrm_mq.queue.policy import OnPoison, QueuePolicy
from wsrm_mq.queue.settle import Done, settle
from wsrm_mq.queue.unsequenced import accept_unsequenced
from wsrm_mq.store import entries, lanes
from wsrm_mq.store.loose import LOOSE_BOUNDS
from wsrm_mq.versions import UNSEQUENCED

POLICY = QueuePolicy(retry=(1_000,))
ACT: dict[str, Any] = {"actor": "op", "reason": "it is so"}


def take(one: Instance, **changes: Any) -> MessageReceipt:
    changes = {"sender": sender(UNSEQUENCED, partner="acme"), "policy": POLICY, **changes}
    return one.run(lambda tx: accept_unsequenced(tx, arrival("", 0, connection=None, **changes)))


def claim_of(receipt: MessageReceipt) -> Claim:
    assert receipt.claim is not None
    return receipt.claim


def done(one: Instance, held: Claim) -> bool:
    return one.run(lambda tx: settle(tx, held, held.entry, 1, Done(), release=True)).released


def failed(one: Instance, held: Claim, policy: QueuePolicy = POLICY) -> Failed:
    return one.run(lambda tx: fail(tx, held, held.entry, 1, "no answer", policy))


def entry(one: Instance, position: int) -> dict[str, Any]:
    (row,) = one.rows("SELECT * FROM entry WHERE id = ?", position)
    return row


def message(one: Instance, position: int) -> dict[str, Any]:
    (row,) = one.rows("SELECT * FROM messages WHERE position = ?", position)
    return row


def may_be_repeated(one: Instance, position: int) -> bool:
    return bool(one.db.execute(LOOSE_BOUNDS, {"key": position}).fetchone()[3]) or entry(one, position)["deliveries"] > 0


def test_one_is_stored_claimed_and_settled_and_leaves_no_lane(one: Instance) -> None:
    receipts = [take(one) for _ in range(3)]
    held = [claim_of(receipt) for receipt in receipts]
    assert [(claim.lane, claim.entry) for claim in held] == [(0, 1), (0, 2), (0, 3)]
    assert all(receipt.runs_here for receipt in receipts)
    assert len({receipt.given for receipt in receipts}) == 3, "the service knows each by another name"
    assert [message(one, at)["state"] for at in (1, 2, 3)] == ["leased"] * 3
    assert done(one, held[1])
    assert [(row["outcome"], row["owner"]) for row in one.rows("SELECT * FROM entry ORDER BY id")] == [
        (None, one.key),
        ("delivered", None),
        (None, one.key),
    ]
    assert one.rows("SELECT * FROM lane") == one.ledger() == [], "a row for each would be a way to fill the disk"


def test_a_run_is_told_of_one_what_it_is_told_of_a_lane(one: Instance) -> None:
    held = claim_of(take(one))
    identifier = one.create().terms.identifier
    sequence = one.record(identifier)
    of_lane = one.db.execute(lanes.RUN_BOUNDS, {"key": sequence.id}).fetchone()
    bounds = one.db.execute(LOOSE_BOUNDS, {"key": held.entry}).fetchone()
    assert len(bounds) == len(of_lane)
    assert bounds[:4] == (1, 2, None, 0)
    assert bounds[5:8] == ("acme", 1, "exactly_once")


def test_a_claim_that_is_not_the_last_settles_nothing(node: Node) -> None:
    first, second = node.start(), node.start()
    held = claim_of(take(first))
    first.run(lambda tx: give_back(tx, held, stopping=True))
    (again,) = second.runnable()
    assert again == Claim(0, held.fence + 1, entry=held.entry)
    with pytest.raises(FenceLost, match="message 1"):
        done(first, held)
    assert done(second, again)
    assert second.runnable() == []


def test_what_a_dead_process_ran_is_run_by_another_as_a_redelivery(node: Node) -> None:
    doomed, heir = node.start(), node.start()
    take(doomed)
    position = claim_of(take(doomed)).entry
    assert not may_be_repeated(heir, position)
    assert heir.run(lambda tx: take_over(tx, doomed.key, lambda _partner: POLICY)) == 2
    assert [claim.entry for claim in heir.runnable()] == [1, 2]
    assert may_be_repeated(heir, position)
    assert entry(heir, position)["deaths"] == 1
    assert [row["event"] for row in heir.ledger()] == ["holder_died", "holder_died", "instance_gone"]


def test_a_run_that_broke_off_or_was_dropped_is_taken_up_as_a_redelivery(one: Instance) -> None:
    held = claim_of(take(one))
    one.run(lambda tx: let_go(tx, held, lambda _partner: POLICY, None))
    (again,) = one.runnable()
    assert may_be_repeated(one, held.entry)
    dropped = [held, again]
    assert one.run(lambda tx: let_go_dropped(tx, dropped, lambda _partner: POLICY)) == [again]
    assert [claim.entry for claim in one.runnable()] == [held.entry]


def test_the_end_of_an_instance_leaves_what_it_took_to_the_others(node: Node) -> None:
    first, second = node.start(), node.start()
    take(first)
    first.run(leave)
    assert [claim.entry for claim in second.runnable()] == [1]


@pytest.mark.parametrize("on_poison", OnPoison)
def test_one_that_fails_waits_for_its_retry_and_ends_as_a_dead_letter(one: Instance, on_poison: OnPoison) -> None:
    policy = QueuePolicy(retry=(1_000,), on_poison=on_poison, connection_on_poison=on_poison)
    held = claim_of(take(one))
    assert failed(one, held, policy).aftermath is Aftermath.RETRY
    row = entry(one, held.entry)
    assert (row["retry_from"], row["retry_at"], row["owner"]) == (one.clock(), one.clock() + 1_000, None)
    assert one.runnable() == []
    one.clock.advance(1_000)
    (again,) = one.runnable()
    assert failed(one, again, policy).aftermath is Aftermath.BURIED
    row = message(one, held.entry)
    assert (row["state"], row["reason"], row["queue"], row["origin"]) == (
        "dead",
        "max_failures",
        "/orders#dead",
        "/orders",
    )
    assert one.runnable() == []


def test_an_operator_tries_one_again_at_once(one: Instance) -> None:
    held = claim_of(take(one))
    failed(one, held)
    one.run(lambda tx: retry(tx, held.entry, **ACT))
    assert [claim.entry for claim in one.runnable()] == [held.entry]


def test_an_operator_discards_and_restores_one(one: Instance) -> None:
    held = claim_of(take(one))
    failed(one, held)
    one.run(lambda tx: discard(tx, held.entry, **ACT))
    assert one.runnable() == []
    assert entry(one, held.entry)["outcome"] == "discarded"
    one.run(lambda tx: restore(tx, held.entry, **ACT))
    assert [claim.entry for claim in one.runnable()] == [held.entry]


def test_a_dead_letter_is_redriven_under_the_name_that_the_service_knows(one: Instance) -> None:
    receipt = take(one)
    held = claim_of(receipt)
    failed(one, held, QueuePolicy(retry=()))
    one.run(lambda tx: redrive(tx, held.entry, **ACT))
    (replayed,) = one.runnable()
    bounds = {"lane": replayed.lane, "lower": 1, "upper": 2, "ordered": 1, "now": one.clock(), "count": 9}
    (row,) = one.db.execute(entries.RUN_REPLAYS, bounds).fetchall()
    assert receipt.given is not None
    assert row[-2:] == (receipt.given.identifier, 1)
    one.settle(replayed, 1, release=True)
    assert [row["outcome"] for row in one.rows("SELECT * FROM entry ORDER BY id")] == ["discarded", "delivered"]


def test_a_dead_letter_is_confirmed(one: Instance) -> None:
    held = claim_of(take(one))
    failed(one, held, QueuePolicy(retry=()))
    one.run(lambda tx: confirm(tx, held.entry, **ACT))
    assert entry(one, held.entry)["confirmed_at"] == one.clock()


def test_neither_lanes_nor_loose_entries_wait_for_all_of_the_others(node: Node) -> None:
    busy, idle = node.start(), node.start()
    for _ in range(12):
        take(busy)
        created = busy.create()
        busy.take(created.terms.identifier, 1)
    busy.run(leave)
    taken = [bool(claim.entry) for claim in idle.runnable()]
    assert (taken.count(True), taken.count(False)) == (5, 5)
    assert len(idle.runnable()) == 10
    assert len(idle.runnable()) == 4


@pytest.mark.parametrize("deliver", [False, True])
def test_a_store_that_is_adopted_delivers_none_unless_it_is_told_to(node: Node, deliver: bool) -> None:
    before, after = node.start(), node.start()
    take(before)
    before.run(leave)
    adopted = after.run(lambda tx: adopt(tx, actor="op", reason="restored", deliver=deliver))
    assert adopted.undelivered == 1
    heir = node.start()
    assert len(heir.runnable()) == (1 if deliver else 0)
    assert may_be_repeated(heir, 1) is deliver
    assert entry(heir, 1)["outcome"] == (None if deliver else "dead")


def test_retention_takes_one_with_what_it_came_with(one: Instance) -> None:
    done(one, claim_of(take(one)))
    take(one)
    one.clock.advance(10**10)
    assert prune(one).messages == 1
    assert [count(one, table) for table in ("entry", "message", "loose")] == [1, 1, 1]
