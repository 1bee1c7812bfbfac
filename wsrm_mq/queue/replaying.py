"""A stored message is delivered again: a new entry in a lane of replays, under the key that the message came under.

The messages of one sequence are replayed in a lane of their own, in the order in which they are added: it has its own
cursor, owner and fence, and the one that they came in goes on undisturbed. So is each message that came in no lane. A
lane of replays has ended from the beginning, as no source speaks of it. The message itself is stored once; what was not
delivered is settled in the same commit, so nothing runs twice.
"""

from __future__ import annotations

from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue.creation import new_identifier
from wsrm_mq.queue.withdrawing import Stored, check_body, stored, withdraw
from wsrm_mq.sequence.states import State
from wsrm_mq.store import repairs
from wsrm_mq.store.bulk import PUT, REPLAYS
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.words import ANSWERED_WITH_FAULT, DEFAULT_PRIORITY, REPLAYED


def replays_of(
    tx: Transaction, source: Lane, queue: int, plan: str | None = None, *, is_consumed: bool = False
) -> Lane:
    """The lane in which messages of ``source`` are replayed into ``queue``, by a plan or by none; it is made if it
    is missing, or was given up: nothing of that is delivered. What replays a replay is in the same lane as that.
    Raises ``NotAllowed`` where a plan's was given up: that was an operator, who wants no more of it."""
    of = source.replay_of if source.kind == "replay" else source.id or None
    found = tx.execute(
        repairs.REPLAYS_OF, {"lane": of, "queue": queue, "plan": plan, "consumed": int(is_consumed)}
    ).fetchone()
    lane = tx.lane(found[0]) if found is not None else None
    if lane is not None and lane.discard_from is None:
        return lane
    if lane is not None and plan is not None:
        raise NotAllowed(f"its replays by this plan were given up: {lane.discard_reason}")
    lane = Lane(
        queue=queue,
        kind="replay",
        identifier=new_identifier(),
        soap=source.soap,
        addressing=source.addressing,
        assurance=source.assurance,
        ordered=source.ordered,
        principal=source.principal,
        peer=source.peer,
        partner=source.partner,
        created_at=tx.now,
        active_at=tx.now,
        ended=State.TERMINATED.value,
        ended_at=tx.now,
        replay_of=of,
        plan=plan,
        is_consumed=is_consumed,
    )
    tx.add_lane(lane)
    return lane


def add_replay(tx: Transaction, position: int, replays: Lane) -> int:
    """Have the message at ``position`` delivered again, as the next of ``replays``; answers the new position. A dead
    letter, and what is not settled, is settled as discarded: its replay has its place. What was answered with a fault
    alarms no more: its replay will, if that is answered so too. Raises ``NotAllowed`` where its body is gone, and where
    it may run now."""
    one = stored(tx, position)
    check_body(one)
    if one.outcome in (None, "dead"):
        withdraw(tx, one, REPLAYED)
    elif one.reason == ANSWERED_WITH_FAULT and one.confirmed_at is None and replays.queue == one.home:
        tx.execute(repairs.CONFIRM, {"key": position, "now": tx.now})
    is_consumed = replays.is_consumed and not one.wants_reply
    row = {
        "queue": replays.queue,
        "message": one.message,
        "lane": replays.id,
        "number": replays.append(tx.now),
        "wants_reply": one.wants_reply,
        "replay_of": position,
        "priority": DEFAULT_PRIORITY if is_consumed else None,
    }
    if is_consumed:
        tx.add_unsettled(replays.queue, 1, one.size)
    return tx.add_entry(row, REPLAYS)


def append_again(tx: Transaction, one: Stored) -> int:
    """Have a dead letter of an ordered group delivered again, as the last of that group; answers the new position."""
    withdraw(tx, one, REPLAYED)
    row = {
        "queue": one.home,
        "message": one.message,
        "lane": one.lane.id,
        "number": one.lane.append(tx.now),
        "priority": DEFAULT_PRIORITY,
        **dict.fromkeys(("expires_at", "retry_from", "retry_at", "hold", "journal_of", "asks")),
        "replay_of": one.position,
    }
    tx.add_unsettled(one.home, 1, one.size)
    return tx.add_entry(row, PUT)
