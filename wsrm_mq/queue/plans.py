"""A frozen plan is run: who runs it, which of its messages are entered, how it ends. Each act is one transaction.

The line that was read last moves in the transaction that enters its message, so a crash anywhere neither enters a
message twice nor leaves one out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue.broken_run import take_from_dead
from wsrm_mq.queue.ending import bury
from wsrm_mq.queue.idle import owner_lives
from wsrm_mq.queue.modes import goes_to_consumers
from wsrm_mq.queue.ownership import RUN_AHEAD, Claim, settle_cursor, take
from wsrm_mq.queue.replaying import add_replay, replays_of
from wsrm_mq.queue.reporting import settled
from wsrm_mq.queue.withdrawing import Stored, stored
from wsrm_mq.store import entries
from wsrm_mq.store import plans as sql
from wsrm_mq.store.applications import outgoing_queue
from wsrm_mq.store.driver import file_of, instances_of
from wsrm_mq.store.port import Database
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction, as_json
from wsrm_mq.store.words import REPLAYED

CANCELLED: Final = "replay_cancelled"
SERVICE: Final = "app"
"""The target of a plan that the running service delivers."""
_MAY_RUN: Final = 2 * RUN_AHEAD
"""How many messages from its cursor on an owner may have read already."""
_BATCH: Final = 500


class Plan(NamedTuple):
    """A row of ``plan``, as far as running it depends on it; times in ms since the epoch. ``views.plans`` tells all."""

    id: str
    digest: str
    file: str
    target: str
    messages: int
    state: str
    """``planned``, ``running``, ``done`` or ``cancelled``."""
    runner: str | None
    """Name of the instance that runs it."""
    pid: int | None
    line: int
    """How many of its lines were read."""
    ended_at: int | None


class Planned(NamedTuple):
    """A message of a plan: ``group`` is the key of its sequence; ``breaks_order``: it is known to run out of its
    order."""

    group: int
    position: int
    state: str
    breaks_order: bool = False


class Entered(NamedTuple):
    claims: tuple[Claim, ...]
    groups: frozenset[int]
    """Keys of the sequences of replays that have something new."""


class Withdrawn(NamedTuple):
    messages: int
    """The number of messages that were taken back."""
    left: int
    """Not taken back yet: a process may be delivering them, or they are more than one transaction takes."""


def plan_of(db: Database, plan: str) -> Plan:
    """The plan with this id, or ``NotFound``."""
    row = db.execute(sql.PLAN, (plan,)).fetchone()
    if row is None:
        raise NotFound(f"The store knows no plan {plan}.")
    return Plan._make(row)


def is_run(db: Database, plan: Plan) -> bool | None:
    """Whether a process that lives runs it. ``None``: its lock file is missing, so that is known only later."""
    return plan.runner is not None and instances_of(file_of(db)).lives(plan.runner)


def refuse(db: Database, known: Plan, digest: str, target: str | None = None) -> None:
    """Raises ``NotAllowed`` for a plan that cannot be run: ``digest``, that of the file, is not what was planned, it is
    run already, it is over, or a part of it went to another target than ``target``."""
    plan = known.id
    if digest != known.digest:
        raise NotAllowed(
            f"The file is not the plan {plan} as it was written to {known.file}; it was changed. Make a new plan."
        )
    if known.state in ("done", "cancelled"):
        how = "ran to its end" if known.state == "done" else "was cancelled"
        raise NotAllowed(f"The plan {plan} {how} at {_moment(known.ended_at or 0)}. Make a new plan to run it again.")
    if is_run(db, known):
        raise NotAllowed(f"The plan {plan} is being run by process {known.pid}.")
    if known.line and target not in (None, known.target):
        raise NotAllowed(f"The plan {plan} has begun with the target {known.target}; go on with that.")


def begin(tx: Transaction, plan: str, digest: str, target: str, actor: str) -> Plan | None:
    """Take a plan for this process, to run it from the line on that it has come to. ``None``: another process may run
    it still; ask again. Raises ``NotAllowed`` as ``refuse`` does."""
    known = plan_of(tx.db, plan)
    refuse(tx.db, known, digest, target)
    if is_run(tx.db, known) is None:
        return None
    tx.execute(sql.BEGIN, {"id": plan, "owner": tx.instance, "now": tx.now, "target": target})
    tx.ledger("replay_began", reason=f"plan {plan} to {target}, behind line {known.line}", actor=actor)
    return known


def enter(tx: Transaction, plan: str, before: int, lines: Sequence[Planned], *, to_app: bool) -> Entered:
    """Enter the messages of ``lines``, which follow line ``before``, to be delivered again: ``to_app`` in the queues
    that they came into, for consumers where these have that mode, else in queues that this process alone serves."""
    became = {row[0]: row[1:] for row in tx.execute(sql.PRESENT, (as_json([line.position for line in lines]),))}
    groups: dict[int, Lane] = {}
    skipped: list[tuple[int, str]] = []
    missing = 0
    for line in lines:
        outcome, has_body = became[line.position]
        why = _changed(line.state, outcome)
        if not has_body:
            missing += 1
        elif why:
            skipped.append((line.position, why))
        else:
            try:
                replays = groups.get(line.group) or _group(tx, plan, line.group, to_app=to_app)
                groups[line.group] = replays
                undelivered = stored(tx, line.position) if outcome is None else None
                if undelivered is not None and not line.breaks_order:
                    _refuse_overtaking(tx, undelivered)
                add_replay(tx, line.position, replays)
                if undelivered is not None:
                    _hold(tx, plan, undelivered.lane)
            except NotAllowed as error:  # it runs, or is on its way to the dead letters
                skipped.append((line.position, str(error)))
    for position, why in skipped:
        tx.ledger("replay_skipped", position=position, reason=f"plan {plan}: {why}")
    moved = {"skipped": len(skipped), "missing": missing, "before": before, "line": before + len(lines)}
    if not tx.execute(sql.MOVE, {"id": plan, "owner": tx.instance, **moved}).rowcount:
        raise NotAllowed(f"The plan {plan} was cancelled.")
    claims = tuple(claim for lane in groups.values() if (claim := take(tx, lane)) is not None)
    return Entered(claims, frozenset(one.id for one in groups.values()))


def _changed(planned: str, outcome: str | None) -> str:
    """Why a message is left alone that was in the state ``planned``; empty: it is as the plan says."""
    was_settled = planned not in ("held", "ready", "leased", "dead")
    if outcome == planned or (not was_settled and outcome in (None, "dead")):
        return ""
    return f"{outcome or 'back in its queue'} since the plan was made"


def _refuse_overtaking(tx: Transaction, one: Stored) -> None:
    """Raises ``NotAllowed`` for a message that is not settled where one before it is not either: that was in the plan
    too and could not be taken out, so this one is delivered behind it."""
    lane = one.lane
    bounds = {"lane": lane.id, "lower": lane.cursor, "upper": one.number}
    (before,) = tx.execute(entries.NEXT_LIVE, bounds).fetchone()
    if before is not None and lane.ordered:
        raise NotAllowed(f"number {before}, which comes before it, is still to be delivered")


def _hold(tx: Transaction, plan: str, lane: Lane) -> None:
    """Until the plan has run to its end, what else a sequence has does not overtake what it had not delivered."""
    is_due = lane.ordered and lane.kind not in ("replay", "loose") and not lane.is_over
    if is_due and lane.on_hold_since is None:
        lane.on_hold_since = tx.now
        tx.ledger("held", lane, reason="the plan delivers what it had not delivered", actor=_holder(plan))


def _holder(plan: str) -> str:
    """The actor of what a plan holds: what an operator holds is not let go on."""
    return f"plan {plan}"


def is_held_by_plan(tx: Transaction, lane: Lane) -> bool:
    """An operator may hold it then all the same, for longer than the plan does."""
    holding = {"lane": lane.id, "holder": _holder("")}
    return lane.on_hold_since is not None and tx.execute(sql.HOLDING, holding).fetchone() is not None


def let_go_on(tx: Transaction, plan: str) -> int:
    """Let sequences go on that the plan holds, some hundred; answers how many. 0: it holds none."""
    tx.write_lanes()
    held = tx.lanes_by(sql.HELD_BY, {"plan": plan, "actor": _holder(plan), "count": _BATCH})
    for lane in held:
        lane.on_hold_since = None
        tx.ledger("resumed", lane, reason="the plan has ended", actor=_holder(plan))
    return len(held)


def _group(tx: Transaction, plan: str, sequence: int, *, to_app: bool) -> Lane:
    source = tx.lane(sequence) if sequence > 0 else tx.loose_entry(-sequence)
    if source is None:
        raise NotAllowed("its sequence is forgotten")
    queue = source.queue
    if to_app:
        return replays_of(tx, source, queue, plan, is_consumed=goes_to_consumers(tx, source))
    name = f"{outgoing_queue(plan)}{tx.queue_name(queue)}"
    return replays_of(tx, source, tx.queue(name, "outgoing", queue), plan)


def try_again(tx: Transaction, plan: str) -> tuple[Claim, ...]:
    """Let the groups go on that are blocked, from the first step of their ladder: the plan is run again."""
    claims = []
    for lane in tx.lanes_by(sql.UNSETTLED_GROUPS, {"plan": plan}):
        if lane.blocked is not None:
            tx.execute(entries.BEGIN_LADDER, {"key": lane.blocked})
            lane.blocked = None
            lane.wait(tx.now, None)
            claims.append(take(tx, lane))
    return tuple(claim for claim in claims if claim is not None)


def leave(tx: Transaction, plan: str) -> bool:
    """This process runs it no more. It is done where all was entered and settled and it holds no sequence any more,
    else it can be run again. Answers ``False`` where it has let some sequences go on that it holds: call it again."""
    known = plan_of(tx.db, plan)
    if known.state != "running":
        return True
    is_left = tx.execute(sql.UNSETTLED_GROUPS, {"plan": plan}).fetchone() is not None
    state = "running" if is_left or known.line < known.messages else "done"
    if state == "done" and let_go_on(tx, plan):
        return False
    tx.execute(sql.LEAVE, {"id": plan, "state": state, "now": tx.now})
    tx.ledger("replay_ended" if state == "done" else "replay_stopped", reason=f"plan {plan}, line {known.line}")
    return True


def cancel(tx: Transaction, plan: str, *, actor: str, reason: str) -> Plan:
    """Let a plan run no more. What it has entered and was not delivered is to be withdrawn (``withdraw_entered``), and
    what it holds to be let go on (``let_go_on``)."""
    known = plan_of(tx.db, plan)
    if known.state == "done":
        raise NotAllowed(f"The plan {plan} ran to its end at {_moment(known.ended_at or 0)}; nothing is left of it.")
    if is_run(tx.db, known) is not False:
        raise NotAllowed(f"The plan {plan} is being run by process {known.pid}; stop that first (Ctrl-C, or kill).")
    if known.target != SERVICE and _is_being_delivered(tx, plan):
        raise NotAllowed(f"A message of the plan {plan} is still being delivered; try again when that has ended.")
    if known.state != "cancelled":
        tx.execute(sql.LEAVE, {"id": plan, "state": "cancelled", "now": tx.now})
        tx.ledger("replay_cancelled", reason=f"plan {plan}, line {known.line}: {reason}", actor=actor)
    for lane in tx.lanes_by(sql.UNSETTLED_GROUPS, {"plan": plan}):
        if lane.on_hold_since is None:
            lane.on_hold_since = tx.now  # who delivers it stops behind the message that it is at
    return known


def _is_being_delivered(tx: Transaction, plan: str) -> bool:
    """Whether a process that was stopped still lets calls of the plan end."""
    groups = tx.lanes_by(sql.UNSETTLED_GROUPS, {"plan": plan})
    owners = {lane.owner for lane in groups if lane.owner is not None}
    return any(owner_lives(tx, owner) is not False for owner in owners)


def withdraw_entered(tx: Transaction, plan: str) -> Withdrawn:
    """Take back what a cancelled plan has entered, as far as no process may run it now, some hundred messages. One that
    was not delivered before goes to the dead letters: only its replay would have been delivered."""
    tx.write_lanes()
    withdrawn = left = 0
    for lane in tx.lanes_by(sql.CANCELLED_GROUPS, {"plan": plan}):
        if lane.owner is not None and owner_lives(tx, lane.owner) is False:
            take_from_dead(tx, lane)
        withdrawn += _withdraw_from(tx, lane, _BATCH - withdrawn)
        (waiting,) = tx.execute(entries.COUNT_UNSETTLED, {"lane": lane.id, "lower": 1}).fetchone()
        left += waiting
        if not waiting:
            lane.on_hold_since = None
    return Withdrawn(withdrawn, left)


def _withdraw_from(tx: Transaction, lane: Lane, most: int) -> int:
    lower = lane.cursor if lane.owner is None else lane.cursor + _MAY_RUN
    live = tx.execute(sql.LIVE_OF, (REPLAYED, lane.id, lower, most)).fetchall()
    for position, number, was_waiting in live:
        if was_waiting:
            bury(tx, lane, position, number, CANCELLED)
        else:
            row = {"key": position, "now": tx.now, "outcome": "discarded", "reason": CANCELLED, "delivered": 0}
            tx.execute(entries.SETTLE, row)
            settled(tx, lane, position, "discarded", CANCELLED)
    if lane.owner is None:
        lane.blocked = None
        settle_cursor(tx, lane)
    return len(live)


def _moment(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
