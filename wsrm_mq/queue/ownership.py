"""Who may run a lane, or an entry that is in none: a claim, which only a commit can give. And how far its delivery has
come: its cursor, the lowest accepted and unsettled number below ``limit``.

The commit that makes a message deliverable takes its lane for this process if it is free; the thread that gets the
claim runs the lane or hands the claim on. An owner that goes on gives a lane back only in a transaction that
sees nothing deliverable, so a message that arrives while it is owned is never forgotten: the owner sees it. An owner
that stops, failed or broke off gives it back as it is; then the watch of any process takes it up.

The cursor may lag behind over numbers that were settled out of turn; it never passes an unsettled one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from typing import Final, NamedTuple

from wsrm_mq.errors import FenceLost
from wsrm_mq.sequence.running import DeliveryState
from wsrm_mq.store import entries, lanes, queues
from wsrm_mq.store.channels import LEAVING
from wsrm_mq.store.entries import IS_LIVE_AT, LOOSE_NUMBER
from wsrm_mq.store.loose import LOOSE_CLAIMS_OF, RUNNABLE_LOOSE, LooseEntry
from wsrm_mq.store.records import Lane
from wsrm_mq.store.sql import storable
from wsrm_mq.store.transaction import Transaction

RUN_AHEAD: Final = 64
"""How many settlements may be under way. One message more may have been called: so many may be repeated after a
crash."""


class Claim(NamedTuple):
    """The right to run one lane, or one loose entry. ``fence`` proves it: a settlement under an older one is refused
    (I3)."""

    lane: int
    """Its key; 0: the claim is on a loose entry."""
    fence: int
    is_outgoing: bool = False
    """Its messages are sent, not delivered to the application."""
    entry: int = 0
    """Position of the loose entry."""


def take(tx: Transaction, lane: Lane, *, has_thread: bool = False) -> Claim | None:
    """Take a free lane that has something deliverable now; ``None`` where there is nothing to take, or no thread to
    run it: then it stays free for whichever process has one first. ``has_thread``: a request brings one along."""
    if lane.owner is not None or lane.delivery_state(tx.now) is not DeliveryState.READY:
        return None
    if lane.is_consumed and not _calls_next(tx, lane):
        return None
    is_outgoing = lane.kind == "outgoing"
    if not tx.serves(lane.queue) or not (has_thread or (_may_leave(tx, lane) if is_outgoing else tx.takes_slot())):
        return None
    lane.owner = tx.instance
    lane.fence += 1
    lane.running_since = tx.now
    if lane.retry_at is not None:
        lane.wait(tx.now, None)
    return Claim(lane.id, lane.fence, is_outgoing, lane.position if isinstance(lane, LooseEntry) else 0)


def _calls_next(tx: Transaction, lane: Lane) -> bool:
    """Whether the application is called with the next message of a lane that consumers lease: it is to be
    answered."""
    settle_cursor(tx, lane)
    tx.write_lanes()
    found = tx.execute(lanes.CALLS_NEXT, {"key": lane.id}).fetchone()
    return found is not None and found[0] == 1


def has_next(tx: Transaction, lane: Lane) -> bool:
    """Whether its owner goes on: something is to be delivered now or after a retry, to the application."""
    return lane.has_next and (not lane.is_consumed or _calls_next(tx, lane))


def _may_leave(tx: Transaction, lane: Lane) -> bool:
    """Whether what it has may be sent now; else it waits, and says why. What has waited for too long is taken, to be
    given up."""
    head = tx.execute(LEAVING, {"lane": lane.id, "number": lane.cursor}).fetchone()
    if head is None:
        return True
    address, position, received_at = head
    left_alone = tx.left_alone(address, lane.sender, (tx.now - received_at) / 1000)
    if left_alone is None or left_alone.is_given_up:
        return True
    wait_for_host(tx, lane, position, left_alone.seconds, str(left_alone))
    return False


def wait_for_host(tx: Transaction, lane: Lane, position: int, seconds: float, why: str) -> None:
    """Nothing of a lane can leave for so long. Waits of a second end in steps of a tenth, long ones in steps of a
    second: the watch looks once for all that end together."""
    tx.execute(entries.SAY_WHY, {"key": position, "error": storable(why)})
    until = tx.now + math.ceil(seconds * 1000)
    step = 1 if seconds < 1 else 100 if seconds < 10 else 1_000
    lane.wait(tx.now, -(-until // step) * step)


def claim(tx: Transaction, key: int) -> Claim | None:
    lane = tx.lane(key)
    return take(tx, lane) if lane is not None else None


def lane_of(tx: Transaction, held: Claim) -> Lane | None:
    """The lane or loose entry that a claim is on; ``None`` where it is gone."""
    return tx.loose_entry(held.entry) if held.entry else tx.lane(held.lane)


def still_mine(tx: Transaction, held: Claim) -> Lane:
    """The lane or loose entry that a claim is on. Raises ``FenceLost`` where the claim holds no longer."""
    lane = lane_of(tx, held)
    if lane is None or lane.owner != tx.instance or lane.fence != held.fence:
        what = f"message {held.entry}" if held.entry else f"sequence {held.lane}"
        raise FenceLost(f"{what} is no longer run under fence {held.fence}")
    return lane


def free(lane: Lane) -> None:
    lane.owner = None
    lane.running_since = None


def give_back(tx: Transaction, held: Claim, *, stopping: bool = False) -> bool:
    """Give the lane back if nothing is deliverable now, or in any case when ``stopping``. Answers whether it was
    given back; if not, the claim still holds and there is more to run."""
    lane = still_mine(tx, held)
    settle_cursor(tx, lane)
    if not stopping and has_next(tx, lane):
        waiting_until = _all_wait_until(tx, lane)
        if waiting_until is None:
            return False
        lane.wait(tx.now, waiting_until)
    free(lane)
    return True


def leave(tx: Transaction) -> None:
    """The instance ends in good order: nothing runs here any more, so whatever it still owns is free."""
    for lane in owned_by(tx, tx.instance, also=tx.changed_lanes):
        if lane.owner == tx.instance:
            free(lane)
            settle_cursor(tx, lane)
    tx.execute(queues.END_INSTANCE, {"key": tx.instance, "now": tx.now})
    tx.count_now()


def owned_by(tx: Transaction, instance: int, *, also: Iterable[int] = ()) -> list[Lane]:
    """The lanes and loose entries that an instance owns; ``also`` those lanes with these keys."""
    keys = {key for key, *_claim in tx.execute(lanes.CLAIMS_OF, {"owner": instance})}.union(also)
    positions = [position for position, _fence in tx.execute(LOOSE_CLAIMS_OF, {"owner": instance}).fetchall()]
    found = [*map(tx.lane, keys), *map(tx.loose_entry, positions)]
    return [lane for lane in found if lane is not None]


def _all_wait_until(tx: Transaction, lane: Lane) -> int | None:
    """Unordered lanes: when the first retry is due if everything deliverable waits for one."""
    if lane.ordered:
        return None
    bounds = {"lane": lane.id, "lower": lane.cursor, "upper": lane.deliver_below, "ordered": 0}
    runs_now = tx.execute(entries.RUN, {**bounds, "now": tx.now, "count": 1}).fetchone()
    if runs_now is not None:
        return None
    due, _count = tx.execute(entries.RETRIES, {**bounds, "now": tx.now}).fetchone()
    return int(due) if due is not None else tx.now


def runnable(tx: Transaction, count: int, after: int = 0, *, sends: bool = False) -> list[Claim]:
    """Take up to ``count`` lanes and loose entries that are deliverable and have no owner. Of lanes in turn: those that
    follow the key ``after``, then the others. Those that were freed earlier in this transaction are among them.
    ``sends``: those that are sent, else those that are delivered to the application. Neither lanes nor loose entries
    wait for all of the others: half of what is taken may be loose ones, and more where there is room."""
    tx.write_lanes()
    claims = [] if sends else _runnable_loose(tx, (count + 1) // 2)
    statements = (lanes.RUNNABLE_SENDS,) if sends else (lanes.RUNNABLE, lanes.RUNNABLE_CALLS)
    for begin, statement in product((after, 0) if after else (0,), statements):
        search = {"now": tx.now, "count": count - len(claims), "foreign": tx.foreign(sends=sends), "after": begin}
        keys = [key for (key,) in tx.execute(statement, search)]
        claims += [taken for key in keys if (taken := claim(tx, key)) is not None]
    if claims and claims[0].entry and len(claims) < count:
        tx.write_lanes()
        claims += _runnable_loose(tx, count - len(claims))
    return claims


def _runnable_loose(tx: Transaction, count: int) -> list[Claim]:
    search = {"now": tx.now, "count": count, "foreign": tx.foreign(sends=False)}
    found = [tx.loose_entry(position) for (position,) in tx.execute(RUNNABLE_LOOSE, search).fetchall()]
    return [taken for one in found if one is not None and (taken := take(tx, one)) is not None]


# how far it has come


def settle_cursor(tx: Transaction, lane: Lane) -> None:
    """Put the cursor exactly on the lowest unsettled number: gaps and early settlements are behind it then."""
    limit = lane.limit
    if isinstance(lane, LooseEntry):
        is_unsettled = tx.execute(IS_LIVE_AT, {"key": lane.position}).fetchone() is not None
        lane.cursor = LOOSE_NUMBER if is_unsettled else limit
        return
    bounds = {"lane": lane.id, "lower": lane.cursor, "upper": limit}
    (lowest,) = tx.execute(entries.NEXT_LIVE, bounds).fetchone()
    lane.cursor = limit if lowest is None else lowest


def count_unsettled(tx: Transaction, lane: Lane, lower: int) -> int:
    """Counts the unsettled numbers from ``lower`` on."""
    (count,) = tx.execute(entries.COUNT_UNSETTLED, {"lane": lane.id, "lower": lower}).fetchone()
    return int(count)


def count_again(tx: Transaction, lane: Lane, position: int) -> None:
    """The message at ``position`` is not settled any more: a declared queue counts it again."""
    if lane.is_consumed:
        found = tx.execute(entries.LEAVES, {"key": position}).fetchone()
        if found is not None:
            tx.add_unsettled(lane.queue, 1, found[1])


def move_past(tx: Transaction, lane: Lane, number: int) -> None:
    """``number`` was settled: the cursor goes to the next one that is not. Consumers settle in any order: one before it
    may be leased, one behind it settled; and what stopped their group may be it."""
    is_group = lane.is_consumed and not isinstance(lane, LooseEntry)
    if is_group and number == lane.cursor:
        lane.blocked = None
        lane.wait(tx.now, None)
    if is_group or not lane.passed(number):
        settle_cursor(tx, lane)
