"""The mode of endpoints: whether a queue is consumed; and where it is changed, what waits there goes where it says now.

A lane goes as a whole when no process runs it and no consumer has leased it; until then it stays. Where the application
is called from now on, nothing is leased any more. What programs have put stays with consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from wsrm_mq.queue.policy import Mode, PolicyOf, QueuePolicy
from wsrm_mq.store import queues
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction, as_json
from wsrm_mq.store.words import DEFAULT_PRIORITY

_FOR_EVER: Final = 1e10
"""Seconds."""


def endpoint_queue(tx: Transaction, name: str, policy: QueuePolicy) -> int:
    """The key of an endpoint's queue, which is made if it is missing, and consumed where the mode says so. What only
    some of its senders are to have consumed makes it so for all."""
    key = tx.queue(name)
    found = tx.queue_row(name)
    assert found is not None
    if policy.mode is Mode.PULL and found.mode != Mode.PULL:
        tx.set_mode(name, key, Mode.PULL, _as_kept(policy))
    elif policy.mode is not Mode.PULL and found.is_declared and found.mode is None:
        messages, _bytes = tx.unsettled_in(key)
        tx.set_mode(name, key, Mode.DISPATCH)
        tx.taken_from_programs(key, name, messages)
    return key


def claim(tx: Transaction, name: str) -> bool:
    """A service that is called has given its queue this name: no program declares it from now on. Answers whether none
    has."""
    row = tx.queue_row(name)
    if row is None:
        tx.queue(name)
    return row is None or not (row.is_declared and row.mode is None)


def _as_kept(policy: QueuePolicy) -> str:
    """A consumed message is kept as long as a dispatched one."""
    from wsrm_mq.queue import policies

    retain = _FOR_EVER if policy.retain is None else policy.retain / 1000
    return policies.encoded(policies.changed(policies.DEFAULT, {"retain": retain}))


def goes_to_consumers(tx: Transaction, lane: Lane) -> bool:
    """Whether a message that came in ``lane`` is for consumers if it is delivered again: as its queue is consumed now.
    What has ended before the mode was changed follows it, but for a partner's, whose own mode is not known here."""
    row = tx.queue_row(tx.queue_name(lane.queue))
    assert row is not None
    if row.mode == Mode.PULL and lane.is_over and lane.partner is None:
        return True
    return lane.is_consumed and row.mode != Mode.DISPATCH


class Changed(NamedTuple):
    """A queue whose mode was changed. ``moved``: lanes, and messages in none, that go elsewhere now; ``left``: those
    that are run or leased, and go later. ``consumed``: messages that are for consumers."""

    queue: str
    mode: Mode
    moved: int
    left: int
    consumed: int


class _Wrong(NamedTuple):
    """Messages of one partner that wait in a queue, in lanes or in none, for those that shall not have them."""

    move: Callable[[Transaction, Mapping[str, object]], tuple[int, int]] | None
    """How they go; ``None``: they are where they belong."""
    partner: str | None
    policy: QueuePolicy


def change_modes(tx: Transaction, policy_of: PolicyOf, *, pulls: bool) -> list[Changed]:
    """Have what waits in the queues of this process go where the policies of its senders say. ``pulls``: some policy of
    this process has messages consumed."""
    endpoints = {key: mode for key, mode in tx.execute(queues.ENDPOINTS).fetchall() if tx.serves(key)}
    if not (pulls or endpoints):
        return []
    tx.write_lanes()
    wrong: dict[int, list[_Wrong]] = {key: [] for key, mode in endpoints.items() if mode == Mode.PULL and not pulls}
    for statement, move in ((queues.LANES_BY_PARTNER, _move_lanes), (queues.LOOSE_BY_PARTNER, _move_loose)):
        for key, partner, is_consumed in tx.execute(statement).fetchall():
            policy = policy_of(partner)
            is_wrong = (policy.mode is Mode.PULL) != bool(is_consumed)
            was_called = bool(is_consumed) and endpoints.get(key) == Mode.DISPATCH  # and consumers still have it leased
            if (is_wrong or was_called) and tx.serves(key):
                wrong.setdefault(key, []).append(_Wrong(move if is_wrong else None, partner, policy))
    return [_change(tx, key, parts, pulls) for key, parts in wrong.items()]


def _change(tx: Transaction, key: int, parts: list[_Wrong], pulls: bool) -> Changed:
    name = tx.queue_name(key)
    if not pulls:
        tx.set_mode(name, key, Mode.DISPATCH)
    moved = left = 0
    for move, partner, policy in parts:
        is_pulled = policy.mode is Mode.PULL
        if is_pulled:
            endpoint_queue(tx, name, policy)
        priority = DEFAULT_PRIORITY if is_pulled else None
        search = {"queue": key, "partner": partner, "consumed": int(not is_pulled), "priority": priority}
        gone, stays = (0, 0) if move is None else move(tx, search)
        moved, left = moved + gone, left + stays
    (consumed,) = tx.execute(queues.RECOUNT, {"key": key}).fetchone()
    changed = Changed(name, Mode.PULL if pulls else Mode.DISPATCH, moved, left, consumed)
    if moved or not parts:
        tx.add_ledger("mode_changed", key, reason=f"{changed.mode}: {moved} moved, {left} left")
    return changed


def _move_lanes(tx: Transaction, search: Mapping[str, object]) -> tuple[int, int]:
    """Answers how many went, and how many are left."""
    found = tx.lanes_by(queues.LANES_OF, search)
    free = [lane for lane in found if lane.owner is None]
    for lane in free:
        lane.is_consumed = not search["consumed"]
        lane.wait(tx.now, None)
        tx.execute(queues.SERVE_LANE, {"key": lane.id, "served_at": 0 if lane.is_consumed else None})
        tx.execute(queues.MOVE_ENTRIES, {"lane": lane.id, "priority": search["priority"]})
    return len(free), len(found) - len(free)


def _move_loose(tx: Transaction, search: Mapping[str, object]) -> tuple[int, int]:
    found = tx.execute(queues.LOOSE_OF, search).fetchall()
    free = [key for key, owner in found if owner is None]
    tx.execute(queues.MOVE_LOOSE, {"keys": as_json(free), "priority": search["priority"]})
    return len(free), len(found) - len(free)
