"""The sending of stored messages, in requests of this side's own, with the acknowledgements that are true when they
leave.

It is called for a delivery as the application is, and the outcome is recorded the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from wsrm_mq.delivery.delivery import Call, Delivery, Outcome
from wsrm_mq.delivery.hanging import Patient
from wsrm_mq.delivery.hearing import Hearing
from wsrm_mq.delivery.outgoing_messages import own_message
from wsrm_mq.delivery.posted import UNREAD, Post, Posted, posted
from wsrm_mq.delivery.requesting import is_not_let_in, judge, ranges_in
from wsrm_mq.envelope.lexical import escape
from wsrm_mq.envelope.render import ack_requested, acknowledgement_request, reply_headers
from wsrm_mq.envelope.rewrite import piggyback
from wsrm_mq.queue.failure import NEVER_ANSWERED, NOT_LET_IN, NOT_TOLD, REFUSED_THERE, TOO_LARGE, Diagnosis
from wsrm_mq.queue.requests import is_over
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.store.channels import ANSWERED_THERE, Channel
from wsrm_mq.store.entries import HAS_REPLY, IS_LIVE_AT
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.records import About, outbound_of, read_about
from wsrm_mq.store.sql import storable
from wsrm_mq.store.store import Store
from wsrm_mq.versions import RM_VERSIONS

_CODE_LENGTH = 200
"""The most characters of a fault's code."""
_ENDS: Final = frozenset(rm.action("TerminateSequence") for rm in RM_VERSIONS.values())
_CLOSES: Final = frozenset(rm.action("CloseSequence") for rm in RM_VERSIONS.values() if rm.has_close)
_UNIMPORTANT: Final = _ENDS | frozenset(rm.action("AckRequested") for rm in RM_VERSIONS.values())
"""The actions of messages that an endpoint may miss: a sequence ends without its end, or is kept alive by the next."""
_GONE: Final = ("UnknownSequence", "SequenceTerminated")
"""Faults in answer to an end of a sequence that say that it is gone there: nothing more was asked for (S-TRM-002)."""
_TRIED: Final = 3
"""The number of times that such a message is sent to an endpoint that does not take it: the endpoint may have gone."""
_LAST_MOMENT: Final = 1_000
"""Milliseconds before the time of a sequence is over in which none of its messages leaves: what was acknowledged and is
not committed when it ends would go on in another sequence."""
_OVER: Final = "the time of its sequence is over: it goes on in another one"
_SILENT: Final = "{}: answered {} again, and acknowledged nothing. A partner may do so at an address alone: see acks_to"


def has_taken(store: Store, origin: str) -> bool:
    """Whether something that was sent to ``origin``, http://host:port, was taken there, as far as the store knows."""
    with store.reader() as db:
        return db.execute(ANSWERED_THERE, {"origin": origin, "beyond": f"{origin}0"}).fetchone() is not None


Written = Callable[[Store, Delivery], Delivery]
"""A numbered message as it leaves, where it is stored otherwise."""


class Posting:
    """Posts deliveries that have a channel, and calls the application for all others."""

    def __init__(
        self, store: Store, post: Patient, hearing: Hearing, call: Call, written: Written | None = None
    ) -> None:
        self._store = store
        self._written = written
        self._post = post
        self._hearing = hearing
        self._call = call

    def __call__(self, delivery: Delivery) -> Outcome:
        channel = delivery.channel
        if channel is None:
            return self._call(delivery)
        try:
            return self._sent(delivery, channel)
        except Exception as error:
            return Outcome(error=storable(f"{type(error).__name__}: {error}"), diagnosis=Diagnosis("exception"))

    def _sent(self, delivery: Delivery, channel: Channel) -> Outcome:
        if self._written is not None and channel.is_numbered:
            delivery = self._written(self._store, delivery)
        content_type = json.loads(delivery.environ)["CONTENT_TYPE"]
        with self._store.reader() as db:
            about: About
            if delivery.outbound is None or delivery.outbound.offered:  # acknowledges the replies that have come
                about = read_about(db, channel.answers, channel.outbound)
            else:
                about = delivery.outbound
            if isinstance(about, OutboundRecord) and not db.execute(IS_LIVE_AT, {"key": delivery.position}).fetchone():
                return Outcome(is_sent=True)  # acknowledged since it was read (S-RET-003)
            if delivery.wants_reply and db.execute(HAS_REPLY, {"entry": delivery.position}).fetchone():
                return Outcome()  # a process has died between its reply and its outcome
        requests = about if isinstance(about, OutboundRecord) and channel.is_numbered else None
        if requests is not None and is_over(requests, self._store.reached() + _LAST_MOMENT):
            return Outcome(error=_OVER, left_alone=_LAST_MOMENT / 1000)
        waited = (self._store.clock() - delivery.received_at) / 1000
        post = self._post.for_sender(about.sender, waited)
        answer: Posted | None = None
        # One that is acknowledged never leaves again: its reply comes by itself (S-RET-003, S-RET-011).
        if requests is not None and _is_replied_elsewhere(delivery, requests):
            is_acknowledged = delivery.number in requests.value.acknowledged
            if is_acknowledged or delivery.attempt % 2 == 0:
                answer = _ask(post, delivery, channel, requests)
        has_left = answer is None
        if answer is None:
            body = _as_it_leaves(delivery, channel, about, delivery.body.open().read(), content_type)
            answer = posted(post, channel.endpoint.address, content_type, delivery.action, body)
            if isinstance(about, OutboundRecord):
                answer = judge(delivery, about, answer)
        outcome = self._outcome(delivery, channel, about, answer)
        outcome.is_again = outcome.is_again and has_left
        outcome.heard = self._hearing.heard(channel, answer, delivery)
        return outcome

    def _outcome(self, delivery: Delivery, channel: Channel, about: About, answer: Posted) -> Outcome:
        if answer.failure is not None and not _is_gone(delivery, about, answer):
            is_over = delivery.action in _UNIMPORTANT and delivery.attempt >= _TRIED and not answer.left_alone
            code = None if answer.code is None else storable(answer.code, _CODE_LENGTH)
            kind = NEVER_ANSWERED if answer.is_given_up else NOT_TOLD if is_over else "not_sent"
            kind = TOO_LARGE if answer.status == UNREAD and channel.is_numbered else kind
            is_about_requests = isinstance(about, OutboundRecord) and not channel.is_numbered
            if is_about_requests and delivery.action not in _UNIMPORTANT and is_not_let_in(answer):
                kind = NOT_LET_IN
            if self._written is not None and channel.is_numbered and answer.is_refused:
                kind = REFUSED_THERE
            diagnosis = Diagnosis(kind, None if kind == TOO_LARGE else code)  # these are counted by their kind
            return Outcome(error=storable(answer.failure), diagnosis=diagnosis, left_alone=answer.left_alone)
        if isinstance(about, OutboundRecord) and answer.reply is not None:
            return Outcome()
        # What an operator has sent again is settled by that: acknowledgements are of the message that it was.
        is_sent = channel.is_numbered and delivery.source is None
        is_silent = isinstance(about, OutboundRecord) and about.principal is None and answer.said is None
        why = _SILENT.format(channel.endpoint.address, answer.status) if is_silent and delivery.attempt > 1 else None
        return Outcome(is_sent=is_sent, is_again=delivery.attempt > 1, remark=why if is_sent else None)


def _ask(post: Post, delivery: Delivery, channel: Channel, about: OutboundRecord) -> Posted | None:
    """Ask whether the request has come, and acknowledge the replies that have, before it leaves again: Metro loses the
    reply to a request of which a copy comes while it is done. ``None``: it has not come."""
    terms = about.value.terms
    body = acknowledgement_request(terms.soap, terms.addressing, terms.rm, terms.identifier, channel.endpoint)
    question = own_message(channel.endpoint, body, terms.soap)
    acks = reply_headers(terms.soap, terms.rm, None, about.reply_acknowledgements)
    body = piggyback(body, question.content_type, acks) if acks else body
    answer = posted(post, channel.endpoint.address, question.content_type, question.action, body)
    answer = judge(delivery._replace(wants_reply=False), about, answer)
    is_silent = answer.said is None or not answer.said.acknowledgements
    has_come = any(lower <= delivery.number <= upper for lower, upper in ranges_in(answer, about))
    return answer if has_come or is_silent or delivery.number in about.value.acknowledged else None


def _is_replied_elsewhere(delivery: Delivery, about: OutboundRecord) -> bool:
    """Whether the request asks for its reply elsewhere than on the response."""
    if about.principal is None or not delivery.wants_reply:
        return False
    return escape(about.principal).encode() in delivery.body.open().read()


def _is_gone(delivery: Delivery, about: About, answer: Posted) -> bool:
    """Whether the sent message ends a sequence, or keeps one alive, and its endpoint answers that it does not know the
    sequence, by name or without one (F-019)."""
    fault = None if answer.said is None else answer.said.fault
    if fault is None or fault.code not in _GONE or delivery.action not in _UNIMPORTANT | _CLOSES:
        return False
    outbound = outbound_of(about)
    own = None if outbound is None else outbound.value.terms.identifier
    return fault.identifier in (None, own, about.value.terms.identifier)


def _as_it_leaves(delivery: Delivery, channel: Channel, about: About, body: bytes, content_type: str) -> bytes:
    """The message with its place in the outbound sequence, and the acknowledgement of now where acknowledgements go
    there too (D-ACK-028)."""
    terms, outbound = about.value.terms, outbound_of(about)
    place = outbound.value.header(delivery.key.number) if channel.is_numbered and outbound is not None else None
    acks: tuple[SequenceAcknowledgement, ...] = ()
    asks = b""
    if isinstance(about, OutboundRecord):
        acks = about.reply_acknowledgements
        # At an address of this side each that is asked for is a request of its own.
        is_heard = about.principal is not None and not terms.rm.is_fetched(about.principal)
        is_asked = place is not None and (delivery.attempt > 1 or not is_heard)
        asks = ack_requested(terms.rm, terms.identifier) if is_asked else b""
    elif about.acks_to == channel.endpoint:
        acks = (about.value.acknowledgement(),)
    fragment = reply_headers(terms.soap, terms.rm, place, acks) + asks
    return piggyback(body, content_type, fragment) if fragment else body
