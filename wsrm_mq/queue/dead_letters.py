"""Acts of an operator on a message: each is one transaction and leaves its ledger row.

A dead letter, like all that is settled, changes only so: it is redriven, which delivers it again; discarded, which can
be undone while ``retain`` lasts; or confirmed, which leaves it where it is and ends its alarm. What is not settled is
tried again, or discarded too. Redriven with another content, it is a new message in the place of the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue import requests
from wsrm_mq.queue.adding import Put, add_entry, add_message
from wsrm_mq.queue.declaring import declared
from wsrm_mq.queue.idle import make_idle
from wsrm_mq.queue.modes import goes_to_consumers
from wsrm_mq.queue.ownership import settle_cursor
from wsrm_mq.queue.put import with_promoted
from wsrm_mq.queue.replaying import add_replay, append_again, replays_of
from wsrm_mq.queue.withdrawing import Stored, check_body, put_back, stored, withdraw
from wsrm_mq.store import consuming, entries, repairs
from wsrm_mq.store.transaction import Transaction, as_json
from wsrm_mq.store.words import ANSWERED_WITH_FAULT, REPLAYED

Act = Callable[..., None]
"""``act(tx, position, actor=, reason=)``. Raises ``NotFound``, or ``NotAllowed`` with what to do instead; then nothing
is changed."""

BY_OPERATOR: Final = "by_operator"
"""Reason of what an operator has discarded."""

_INSTEAD: Final = {
    None: "`wsrm-mq message retry {0}` tries it now, `wsrm-mq message discard {0}` gives it up.",
    "delivered": "To have it delivered again, make a plan: `wsrm-mq replay plan pos:{0} -o plan.json`.",
    "dead": "`wsrm-mq dead-letter redrive {0}` delivers it again.",
    BY_OPERATOR: "`wsrm-mq message restore {0}` brings it back.",
}
"""The acts that a message allows, by its outcome or its reason, where another act was asked for."""


def redrive(
    tx: Transaction, position: int, *, actor: str, reason: str, to: str | None = None, counts: bool = True
) -> None:
    """Deliver a dead letter again, under its key: a new message, which is a dead letter again if it fails for good. One
    that is consumed by itself goes back to its queue, or to that of the name ``to``; of a group it is the last.
    ``counts``: its failures and cancels are counted anew."""
    one = stored(tx, position)
    check_outcome(tx, one, "dead")
    check_body(one)
    lane = one.lane
    is_consumed = goes_to_consumers(tx, lane)
    is_by_itself = lane.kind == "loose" and is_consumed
    if to is not None and not is_by_itself:
        raise NotAllowed(
            f"The message at position {position} is one of a sequence or group, or a service's: it goes back to where "
            "it came from. Leave out `to`."
        )
    if to is None and is_consumed:
        _refuse_deleted(tx, one, "redrive" if is_by_itself else "edit")
    again = position
    if is_by_itself:
        home = one.home if to is None else declared(tx, to).key
        tx.execute(consuming.REDRIVE, {"keys": as_json([position]), "queue": home})
        tx.add_unsettled(home, 1, one.size)
    elif (sent_again := requests.send_again(tx, one)) is not None:
        again = sent_again
    elif lane.kind == "group":
        again = append_again(tx, one)
    else:
        for_consumers = is_consumed and not one.wants_reply
        again = add_replay(tx, position, replays_of(tx, lane, one.home, is_consumed=for_consumers))
    if not counts:
        tx.execute(repairs.COUNT_ON, {"key": again, "failures": one.failures, "cancels": one.cancels})
    write_down(tx, "redriven", one, actor, reason)


def _refuse_deleted(tx: Transaction, one: Stored, act: str) -> None:
    """Raises ``NotAllowed`` where the queue is deleted that a dead letter would go back to: nothing consumes that."""
    name = tx.queue_name(one.home)
    queue = name.removesuffix(f"#{one.home}")
    if queue != name:
        raise NotAllowed(
            f"The queue {queue} is deleted that the message at position {one.position} came into. Say where it goes: "
            f"`wsrm-mq dead-letter {act} {one.position} --to QUEUE`, or `to=` in a program."
        )


def retry(tx: Transaction, position: int, *, actor: str, reason: str) -> None:
    """Try now, from the first step of the ladder, what waits for a retry or stops its sequence."""
    one = stored(tx, position)
    check_outcome(tx, one, None)
    lane, ordered = one.lane, one.lane.ordered
    explain = f"`wsrm-mq message explain {position}` says why."
    waits = NotAllowed(f"The message at position {position} waits for others before it: {explain}")
    if one.number >= lane.deliver_below:
        raise waits
    if lane.on_hold_since is not None:
        identifier = lane.identifier
        raise NotAllowed(f"An operator holds the sequence: `wsrm-mq sequence resume {identifier}` lets it go on.")
    left_by_dead = make_idle(tx, lane)
    settle_cursor(tx, lane)
    if ordered and one.number > lane.cursor:
        raise waits
    if lane.blocked not in (None, position):
        raise NotAllowed(f"Position {lane.blocked} stops the sequence of the message at position {position}: {explain}")
    is_stopped = lane.blocked is not None or lane.retry_at is not None or one.retry_at is not None
    if not (is_stopped or left_by_dead):
        raise NotAllowed(
            f"The message at position {position} waits for no retry: it is delivered in its turn. {explain}"
        )
    lane.blocked = None
    lane.wait(tx.now, None)
    tx.execute(entries.BEGIN_LADDER, {"key": position})
    tx.execute(consuming.HOLD, {"key": position, "hold": None})
    write_down(tx, "retried", one, actor, reason)


def discard(tx: Transaction, position: int, *, actor: str, reason: str) -> None:
    """Give up a dead letter, or what is not settled and does not run now; its sequence goes on without it."""
    one = stored(tx, position)
    check_outcome(tx, one, None, "dead")
    withdraw(tx, one, BY_OPERATOR)
    write_down(tx, "discarded", one, actor, reason)


def restore(tx: Transaction, position: int, *, actor: str, reason: str) -> None:
    """Bring back what an operator has discarded, as what it was: a dead letter, or a message of its sequence."""
    one = stored(tx, position)
    check_outcome(tx, one, "discarded")
    if one.reason != BY_OPERATOR:
        raise NotAllowed(f"No operator has discarded the message at position {position}. {_instead(tx, one)}".rstrip())
    check_body(one)
    put_back(tx, one)
    write_down(tx, "restored", one, actor, reason)


def confirm(tx: Transaction, position: int, *, actor: str, reason: str) -> None:
    """An operator has seen a dead letter, or what was answered with a fault: it stays as it is, and alarms no more."""
    one = stored(tx, position)
    alarms = one.outcome == "dead" or one.reason == ANSWERED_WITH_FAULT
    if not alarms or one.confirmed_at is not None:
        why = "it is confirmed already" if alarms else "it is no dead letter, nor was it answered with a fault"
        raise NotAllowed(f"The message at position {position} does not alarm: {why}.")
    tx.execute(repairs.CONFIRM, {"key": position, "now": tx.now})
    write_down(tx, "message_confirmed", one, actor, reason)


def check_outcome(tx: Transaction, one: Stored, *outcomes: str | None) -> None:
    if one.outcome not in outcomes:
        is_now = "not settled" if one.outcome is None else one.outcome
        raise NotAllowed(f"The message at position {one.position} is {is_now}. {_instead(tx, one)}".rstrip())


def _instead(tx: Transaction, one: Stored) -> str:
    """The acts that a message allows instead: a sentence, or nothing."""
    if one.reason == REPLAYED:
        found = tx.execute(repairs.REPLAY_OF, {"message": one.message, "key": one.position}).fetchone()
        return "" if found is None else f"Its replay is at position {found[0]}."
    what = one.reason if one.reason == BY_OPERATOR else one.outcome
    return _INSTEAD.get(what, "").format(one.position)


def write_down(tx: Transaction, event: str, one: Stored, actor: str, reason: str) -> None:
    tx.ledger(event, one.lane, number=one.number, position=one.position, reason=reason, actor=actor)


EDITED: Final = "edited"
"""Reason of a dead letter in whose place an edited message is delivered."""


def edit_and_redrive(
    tx: Transaction, position: int, one: Put, *, actor: str, reason: str, to: str | None = None
) -> int:
    """Put ``one`` into the queue that a dead letter came from, or into ``to``, in the place of that; answers its
    position. Raises ``NotAllowed`` for what a partner has sent: that is never changed."""
    letter = stored(tx, position)
    check_outcome(tx, letter, "dead")
    if letter.lane.kind not in ("loose", "group") or not letter.lane.is_consumed:
        raise NotAllowed(
            f"The message at position {position} came from a partner, and stays as it was sent. "
            f"`wsrm-mq message body {position} --output FILE` has it: edit that, and send it as a message of your own."
        )
    queue = declared(tx, to or tx.queue_name(letter.home))
    if letter.lane.kind == "group" and to is None and one.group is None:
        one = one._replace(group=letter.lane.identifier.split(":", 2)[2])
    withdraw(tx, letter, EDITED)
    message = add_message(tx, with_promoted(one, queue.policy.properties))
    added = add_entry(tx, queue, one, message, came_with=True)
    write_down(tx, "redriven", letter, actor, f"{reason}; as edited at position {added}")
    return added
