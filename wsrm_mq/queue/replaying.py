"""A stored message is delivered again: a new entry in a sequence of replays, under the key that the message came under.

The messages of one sequence are replayed in a sequence of their own, in the order in which they are added: it has its
own cursor, owner and fence, and the one that they came in goes on undisturbed. It has ended from the beginning, as no
source speaks of it. The message itself is stored once; what was not delivered is settled in the same commit, so
nothing runs twice.
"""

from __future__ import annotations

from dataclasses import replace

from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue.creation import new_identifier
from wsrm_mq.queue.withdrawing import check_body, stored, withdraw
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.inbound import InboundSequence
from wsrm_mq.sequence.states import State
from wsrm_mq.store import repairs
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.tables import ANSWERED_WITH_FAULT
from wsrm_mq.store.transaction import Transaction

__all__ = ["REPLAYED", "add_replay", "replays_of"]

REPLAYED = "replayed"
"""Reason of what was not delivered and is settled: its replay is delivered in its place."""


def replays_of(tx: Transaction, source: SequenceRecord, queue: int, plan: str | None = None) -> SequenceRecord:
    """The sequence in which messages of ``source`` are replayed into ``queue``, by a plan or by none; it is made if it
    is missing, or was given up: nothing of that is delivered. What replays a replay is in the same sequence as that.
    Raises ``NotAllowed`` where a plan's was given up: that was an operator, who wants no more of it."""
    sequence = source.replay_of or source.id
    found = tx.execute(repairs.REPLAYS_OF, {"sequence": sequence, "queue": queue, "plan": plan}).fetchone()
    record = tx.sequence(found[0]) if found is not None else None
    if record is not None and record.value.discard_from is None:
        return record
    if record is not None and plan is not None:
        raise NotAllowed(f"its replays by this plan were given up: {record.value.discard_reason}")
    terms = replace(
        source.value.terms,
        identifier=new_identifier(),
        behavior=IncompleteSequenceBehavior.NO_DISCARD,
        expires_at=None,
        inactivity=None,
    )
    record = SequenceRecord(
        0,
        queue,
        InboundSequence(terms, active_at=tx.now, state=State.TERMINATED),
        principal=source.principal,
        peer=source.peer,
        partner=source.partner,
        created_at=tx.now,
        kind="replay",
        replay_of=sequence,
        plan=plan,
    )
    record.ended_at = tx.now
    return tx.add_sequence(record, None)


def add_replay(tx: Transaction, position: int, replays: SequenceRecord) -> int:
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
    number = replays.value.received.expected
    row = {
        "queue": replays.queue,
        "message": one.message,
        "sequence": replays.id,
        "number": number,
        "wants_reply": one.wants_reply,
        "replay_of": position,
    }
    replay = tx.add_replay(row)
    received = replays.value.received.add(number)
    replays.follow(replays.value._replace(received=received, limit=number + 1, active_at=tx.now), number)
    if not replays.value.terms.ordered:
        replays.wait(tx.now, None)  # it need not wait for another one's retry
    return replay
