"""This side speaks of its own accord by a stored message that leaves in a request of its own, or waits to be fetched.

It is an entry like any other, in a lane of kind ``outgoing`` that leads to one endpoint, written in the transaction
that makes it true. So it has its attempts, retries, dead letter and owner as what is delivered to the application has
them, and a crash loses none. What of it changes until it leaves is not stored with it: its place in the offered
sequence is its number, the acknowledgement is put in when it is sent.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wsrm_mq.queue.creation import new_identifier
from wsrm_mq.queue.outbound import lanes_of, may_leave
from wsrm_mq.queue.ownership import Claim, take
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.sequence.states import State
from wsrm_mq.store.applications import fetched_queue, sent_queue
from wsrm_mq.store.channels import SENT, Channel
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.records import About, Lane, SequenceRecord
from wsrm_mq.store.transaction import Transaction, as_json

LENT_FOR: Final = 3_000
"""Milliseconds for which what is fetched is on its way and no other request gets it: longer than a response is under
way, and about as long as a client waits that polls again."""
_KEPT_FOR: Final = 600_000
"""Milliseconds for which a message may be fetched at least, however soon its sequence expires."""


class OutgoingMessage(NamedTuple):
    """A message of this side, without its place and acknowledgements."""

    to: EndpointReference
    message_id: str
    action: str
    content_type: str
    body: bytes


class Sent(NamedTuple):
    """The entry that was written for a message that is to leave."""

    position: int | None
    claim: Claim | None = None
    """The claim on it where this process is to send it."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claim, where there is one. It has to come into a hand, or it counts as a run that broke off."""
        return () if self.claim is None else (self.claim,)


NOT_SENT: Final = Sent(None)


def send(
    tx: Transaction,
    about: About,
    message: OutgoingMessage,
    number: int | None = None,
    *,
    is_awaited: bool = False,
    wants_reply: bool = False,
    expires_at: int | None = None,
) -> Sent:
    """Have a message about a sequence leave. ``number``: its place in the outbound sequence, which is the one that this
    is about, or that answers it; it leaves again until that is acknowledged. ``is_awaited``: it is fetched, and
    leaves on a response now; if that fails, it can be fetched. ``wants_reply``: it leaves again until it is
    replied to (S-RET-011)."""
    channel = _lead(tx, about, _channel(about, message.to, is_numbered=number is not None))
    number = place_in(tx, about, channel, number, len(message.body))
    environ = as_json({"CONTENT_TYPE": message.content_type})
    key = tx.add_message(message.message_id, message.action, message.body, environ=environ, principal=about.principal)
    entry = {"id": key, "queue": channel.queue, "message": key, "lane": channel.id, "number": number}
    tx.add_entry({**_FRESH, **entry, "wants_reply": int(wants_reply), "expires_at": expires_at})
    if isinstance(about, SequenceRecord) and message.to == about.acks_to:
        about.ack_due_at = None  # this takes it along
    if about.value.terms.rm.is_fetched(message.to.address):
        channel.due_at = max(tx.now + _KEPT_FOR, about.value.terms.expires_at or 0)
        if is_awaited:
            tx.execute(SENT, {"key": key, "now": tx.now, "retry_at": tx.now + LENT_FOR})
        return Sent(key)
    return Sent(key, take(tx, channel))


def place_in(tx: Transaction, about: About, channel: Lane, number: int | None, size: int) -> int:
    """Give a message its place in a lane; answers its number there."""
    if number is None or not isinstance(about, OutboundRecord) or may_leave(about, number):
        return channel.append(tx.now, number)
    return channel.put_off(tx.now, number, size)


_FRESH: Final = {"named": 1, "waiter": None, "outcome": None, "reason": None, "settled_at": None, "priority": None}


def _channel(about: About, to: EndpointReference, *, is_numbered: bool) -> Channel:
    if isinstance(about, OutboundRecord):
        return Channel(to, None, about.id, is_numbered)
    outbound = about.outbound.id if is_numbered and about.outbound is not None else None
    return Channel(to, about.id, outbound, is_numbered)


def channel_of(tx: Transaction, outbound: OutboundRecord) -> Lane:
    """The lane that the messages of a sequence of requests leave in."""
    assert outbound.endpoint is not None
    return _lead(tx, outbound, _channel(outbound, outbound.endpoint, is_numbered=True))


def _lead(tx: Transaction, about: About, channel: Channel) -> Lane:
    """The lane of kind outgoing that leads there; it is made if it is missing. It has ended from the beginning, as no
    source speaks of it, and has no order: nothing waits for what is not taken."""
    if isinstance(about, OutboundRecord) and channel.is_numbered:
        known = next(iter(lanes_of(tx, about)), None)
    else:
        known = tx.channel(channel)
    if known is not None:
        return known
    home = tx.queue_name(about.queue)
    is_fetched = about.value.terms.rm.is_fetched(channel.endpoint.address)
    made = Lane(
        queue=tx.queue(fetched_queue(home) if is_fetched else sent_queue(home), "outgoing", about.queue),
        kind="outgoing",
        identifier=new_identifier(),
        soap=about.value.terms.soap,
        addressing=about.value.terms.addressing,
        ordered=False,
        principal=about.principal,
        peer=about.peer,
        partner=about.partner,
        created_at=tx.now,
        active_at=tx.now,
        ended=State.TERMINATED.value,
        ended_at=tx.now,
    )
    tx.add_channel(made, channel)
    return made
