"""The RM Destination: it reads a request, says what to commit, and turns what was committed into an answer.

It blocks nowhere and knows no front. A front calls ``examine``; gets an ``Answer``, a ``Forward`` (the wrapped
application's own business), or a ``Commit``: a verb for the store. It has the verb committed and calls ``conclude``
with the receipt, which says what is left to do: answer, run the message, or wait for it. These are in ``exchange``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from wsrm_mq import answers, tracing
from wsrm_mq.answers import EMPTY, Answer
from wsrm_mq.envelope import Headers, Limits
from wsrm_mq.envelope.scanner import Scanner
from wsrm_mq.envelope.source import Source
from wsrm_mq.envelope.stream import check_whole, expand
from wsrm_mq.envelope.wellformed import TAIL_BYTES, check_well_formed, looks_whole
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.events.telling import Events
from wsrm_mq.exchange import Commit, Forward, HandOver, Peer, Request, Run, Wait
from wsrm_mq.queue.accept import Arrival, Created, Receipt, Sender, accept, create, lifecycle
from wsrm_mq.queue.policy import Acknowledge
from wsrm_mq.queue.settle import Reply
from wsrm_mq.queue.unsequenced import accept_unsequenced
from wsrm_mq.remembered import Memory
from wsrm_mq.replay.delivery import Delivery
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import (
    CloseSequence,
    CreateSequence,
    EndpointReference,
    IncompleteSequenceBehavior,
    SequenceAcknowledgement,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import UNSEQUENCED, WSA_2005, RMVersion

__all__ = ["RMDestination"]


_USUAL_LIMITS: Final = Limits()
_REMEMBERED: Final = 4_096
"""Kinds of messages of a client."""
_OWN_FIELDS: Final = 3
"""Of an ``Arrival``: what is another in each message; the others are alike."""
_UNNUMBERED: Final = SequenceHeader("", 0)
"""Stands in an ``Arrival`` until the transaction has given it its place."""


class RMDestination:
    """Remembers nothing of a request that it could not do without. ``one_way`` holds actions and
    ``{namespace}operation`` names."""

    def __init__(
        self,
        *,
        one_way: frozenset[str] = frozenset(),
        understood: frozenset[str] | None = None,
        limits: Limits = _USUAL_LIMITS,
        queue_one_way: bool = False,
        events: Events | None = None,
    ) -> None:
        self._events = events or Events()
        self._known: Memory[tuple[object, ...], tuple[Any, ...]] = Memory(_REMEMBERED)
        self._one_way = one_way
        self._understood = understood
        self._limits = limits
        self._scanner = Scanner(replace(limits, strict_addressing=False))
        self._strict = Scanner(replace(limits, strict_addressing=True))
        self._queue_one_way = queue_one_way

    # first half: what to do

    def examine(self, request: Request) -> Answer | Forward | Commit:
        try:
            headers = self._scan(request, self._scanner)
            return self._examine(request, headers)
        except EnvelopeError as error:
            self._events.tell("request.refused", fault=error.fault.name, reason=error.fault.reason)
            return answers.unreadable(error, request.caller.content_type)

    def _scan(self, request: Request, scanner: Scanner) -> Headers:
        caller = request.caller
        return scanner.scan(self._source(request), caller.content_type, caller.soap_action)

    def _check_further(self, request: Request, headers: Headers, peer: Peer) -> None:
        """What is asked of this peer and not of everybody (who it is, only the headers tell), and of a body that is to
        be kept."""
        if peer.strict_addressing:
            self._scan(request, self._strict)
        is_kept = headers.sequence is not None or (self._queue_one_way and not headers.is_rm)
        if not is_kept:
            return
        if peer.verify_body or not self._looks_whole(request):
            check_well_formed(self._source(request), request.caller.content_type, self._limits)
        elif request.caller.content_encoding == "gzip":
            check_whole(expand(request.body.open(), self._limits))

    def _looks_whole(self, request: Request) -> bool:
        """What is compressed, or has parts, does not show its end."""
        caller = request.caller
        is_bare = not caller.content_encoding and caller.content_type[:10].lower() != "multipart/"
        return not is_bare or looks_whole(request.body.tail(TAIL_BYTES))

    def _source(self, request: Request) -> Source:
        body = request.body
        source: Source = body.content if body.content is not None else body.open()
        return expand(source, self._limits) if request.caller.content_encoding == "gzip" else source

    def _examine(self, request: Request, headers: Headers) -> Answer | Forward | Commit:
        self._check_understood(headers)
        principal, peer = request.identify(headers)
        is_usual = tracing.tracer is None and not (peer.strict_addressing or peer.verify_body)
        if headers.alike is not None and is_usual and self._looks_whole(request):
            return self._like_the_last(request, headers, principal, peer)
        self._check_further(request, headers, peer)
        return self._examine_for(request, headers, principal, peer)

    def _like_the_last(
        self, request: Request, headers: Headers, principal: str | None, peer: Peer
    ) -> Answer | Forward | Commit:
        """What was decided of a message of the same client that is alike is decided of this one: most are."""
        key = (headers.alike, request.caller, principal, peer.name)
        known = self._known.get(key)
        if known is not None and headers.sequence is not None:
            arrival = Arrival(headers.sequence, headers.message_id, request.body, *known)
            return _accepting(accept, arrival, headers, request, peer)
        examined = self._examine_for(request, headers, principal, peer)
        if isinstance(examined, Commit) and examined.arrival is not None and request.caller.is_remembered:
            self._known.keep(key, examined.arrival[_OWN_FIELDS:])
        return examined

    def _examine_for(
        self, request: Request, headers: Headers, principal: str | None, peer: Peer
    ) -> Answer | Forward | Commit:
        rm = headers.rm
        if rm is None or not headers.is_rm:
            if peer.require_rm:
                fault = faults.WSRMRequired("This endpoint takes messages of a reliable sequence only.")
                return answers.fault(fault, headers)
            one_way = self._is_one_way(headers)
            if one_way and self._queue_one_way:
                return self._unsequenced(request, headers, principal, peer)
            return Forward(one_way, headers)
        sender = _sender(request, headers, principal, peer, rm)
        policy = peer.policy
        element = headers.body
        if isinstance(element, CreateSequence):
            _check_create(element, headers)
            return Commit(lambda tx: create(tx, sender, element, headers.message_id, policy), headers, request, peer)
        if isinstance(element, CloseSequence | TerminateSequence):
            if rm.has_close:  # 1.0: TerminateSequence is one-way
                _check_reply_to(headers)
            verb = partial(
                lifecycle, sender=sender, element=element, policy=policy, ack_requested=headers.ack_requested
            )
            return Commit(verb, headers, request, peer, who=sender.who)
        if headers.sequence is not None:
            return self._message(request, headers, sender, peer)
        if headers.ack_requested:
            verb = partial(lifecycle, sender=sender, element=None, policy=policy, ack_requested=headers.ack_requested)
            return Commit(verb, headers, request, peer)
        if headers.acknowledgements:
            return self._stray_acknowledgement(headers)
        return answers.fault(
            faults.MalformedMessage("The message is one of WS-ReliableMessaging, but carries nothing to act on."),
            headers,
        )

    def _message(self, request: Request, headers: Headers, sender: Sender, peer: Peer) -> Commit:
        assert headers.sequence is not None
        policy = peer.policy
        empty_last = headers.sequence.last and headers.body_name is None
        one_way = empty_last or self._is_one_way(headers)
        if not one_way:
            _check_reply_to(headers)
        robust = policy.acknowledge is Acknowledge.DELIVERED
        if not one_way and policy.behavior is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE:
            raise EnvelopeError(
                faults.MalformedMessage(
                    "The sequence is delivered only when it is complete, so no message of it can be answered; "
                    "send one-way messages."
                ),
                headers,
            )
        environ, receiving = request.caller.environ, None
        if tracing.tracer is not None:
            receiving = tracing.receive(
                tracing.tracer,
                environ,
                request.caller.queue,
                headers.message_id,
                headers.sequence.identifier,
                headers.sequence.number,
            )
            environ = receiving.environ
        arrival = Arrival(
            sender=sender,
            header=headers.sequence,
            message_id=headers.message_id,
            action=headers.action,
            environ=environ,
            connection=request.caller.connection,
            body=request.body,
            policy=policy,
            wants_reply=not one_way,
            named=one_way and not robust,
            empty_last=empty_last,
            ack_requested=headers.ack_requested,
            waits=not one_way or robust,
        )
        return _accepting(accept, arrival, headers, request, peer, receiving)

    def _unsequenced(self, request: Request, headers: Headers, principal: str | None, peer: Peer) -> Commit:
        """A one-way message without WS-RM is stored too, and gets its place among those of its connection."""
        arrival = Arrival(
            sender=_sender(request, headers, principal, peer, UNSEQUENCED),
            header=_UNNUMBERED,
            message_id=headers.message_id,
            action=headers.action,
            environ=request.caller.environ,
            connection=request.caller.connection,
            body=request.body,
            policy=peer.policy,
        )
        return _accepting(accept_unsequenced, arrival, headers, request, peer)

    def _is_one_way(self, headers: Headers) -> bool:
        if headers.is_one_way_address or headers.action in self._one_way:
            return True
        if headers.body_name is None:
            return False
        namespace, local = headers.body_name
        return f"{{{namespace}}}{local}" in self._one_way or local in self._one_way

    def _check_understood(self, headers: Headers) -> None:
        if self._understood is None:
            return
        unknown = tuple(name for name in headers.must_understand if name[0] not in self._understood)
        if unknown:
            raise EnvelopeError(
                faults.NotUnderstood("A mandatory header block is not understood here.", headers=unknown), headers
            )

    def _stray_acknowledgement(self, headers: Headers) -> Answer:
        """An acknowledgement alone is about a sequence that we send, and no such sequence exists."""
        identifier = headers.acknowledgements[0].identifier
        fault = faults.UnknownSequence("The identifier is not that of a sequence sent from here.", identifier)
        return answers.fault(fault, headers)

    # second half: what it came to

    def hand_over(self, commit: Commit, receipt: Receipt | Created) -> HandOver | Run | None:
        """What the dispatcher, or the request itself, can begin with before the sender is answered; a front calls it
        in the writer's thread."""
        if isinstance(receipt, Created):
            return None
        arrival = commit.arrival
        in_hand = arrival is not None and (receipt.is_head or receipt.is_queued)
        if arrival is not None and receipt.is_head and arrival.waits:
            return Run(receipt.claim, self._delivery(arrival, receipt)) if receipt.claim is not None else None
        if receipt.claim is None and not in_hand:
            return None
        delivery = self._delivery(arrival, receipt) if arrival is not None and in_hand else None
        return HandOver(receipt.claim, receipt.sequence, delivery)

    def conclude(self, commit: Commit, receipt: Receipt | Created) -> Answer | Run | Wait:
        headers = commit.headers
        if isinstance(receipt, Created):
            if receipt.fault is not None:
                self._events.tell("request.refused", fault=receipt.fault.name, reason=receipt.fault.reason)
            return answers.created(receipt, headers)
        if commit.receiving is not None:
            commit.receiving.end(receipt.outcome, receipt.fault.name if receipt.fault is not None else None)
        for fault in receipt.other_faults:
            self._events.tell("ack_requested.unknown", sequence=fault.identifier)
        if receipt.fault is not None:
            fault = receipt.fault
            self._events.tell("request.refused", fault=fault.name, reason=fault.reason, sequence=fault.identifier)
            return answers.refused(receipt, headers)
        if receipt.no_room:
            self._events.tell("request.no_room", reason=receipt.no_room)
            return self._no_room(commit, receipt)
        if commit.arrival is not None:
            return self._conclude_message(commit, commit.arrival, receipt)
        if headers.body is not None:
            answer = answers.ended(receipt.acknowledgement, headers)
            return Wait(receipt.unfinished, answer, bounded=False) if receipt.unfinished is not None else answer
        if receipt.other_faults and not receipt.others:
            return answers.fault(receipt.other_faults[0], headers)
        return answers.acknowledgement(headers, receipt.others)

    def _conclude_message(self, commit: Commit, arrival: Arrival, receipt: Receipt) -> Answer | Run | Wait:
        if not arrival.waits or (receipt.settled and not arrival.wants_reply):
            return self._one_way_answer(commit, receipt)
        if receipt.claim is not None and receipt.is_head:
            return Run(receipt.claim, self._delivery(arrival, receipt))
        if receipt.position is None:  # pruned: the sender is told that it arrived
            return self._one_way_answer(commit, receipt)
        if receipt.is_stuck:
            return EMPTY
        return Wait(receipt.position, EMPTY, bounded=True)

    def settled(
        self,
        commit: Commit,
        outcome: str | None,
        reply: Reply | None,
        acknowledgement: SequenceAcknowledgement,
    ) -> Answer:
        """The answer to a request whose message is settled: its stored reply with the current acknowledgement, or
        the acknowledgement alone."""
        headers = commit.headers
        if isinstance(headers.body, CloseSequence | TerminateSequence):
            return answers.ended(acknowledgement, headers)
        if reply is not None and reply.body:
            return answers.replied(reply, headers, acknowledgement)
        if outcome == "dead" and commit.arrival is not None and commit.arrival.wants_reply:
            fault = faults.ServiceFailure("The message could not be delivered to the service; it was set aside.")
            return answers.fault(fault, headers, (acknowledgement,))
        return answers.acknowledgement(headers, [acknowledgement])

    def _delivery(self, arrival: Arrival, receipt: Receipt) -> Delivery:
        assert receipt.position is not None
        header = receipt.given or arrival.header
        return Delivery(
            position=receipt.position,
            number=header.number,
            identifier=header.identifier,
            partner=receipt.partner,
            rm=arrival.sender.rm.label,
            soap=arrival.sender.soap.label,
            addressing=arrival.sender.addressing.label,
            action=arrival.action,
            message_id=arrival.message_id,
            environ=arrival.environ,
            principal=arrival.sender.principal,
            connection=arrival.connection,
            body=arrival.body,
            wants_reply=arrival.wants_reply,
            at_most_once=receipt.at_most_once,
            is_waited_for=arrival.waits,
        )

    def _no_room(self, commit: Commit, receipt: Receipt) -> Answer:
        """503; to WCF, for which that is an error of the line, an acknowledgement that leaves the message out."""
        if commit.peer.policy.tells_room and receipt.acknowledgement is not None:
            return answers.acknowledgement(commit.headers, [receipt.acknowledgement, *receipt.others])
        return answers.unavailable(receipt.no_room)

    def _one_way_answer(self, commit: Commit, receipt: Receipt) -> Answer:
        """200 with an acknowledgement that covers the message: CXF, Metro, WCF, gSOAP and zeep all take it."""
        if receipt.acknowledgement is None:  # it came without WS-RM
            return EMPTY
        acknowledgements = [receipt.acknowledgement, *receipt.others]
        if commit.peer.one_way_answer == "empty" and not (commit.headers.ack_requested or receipt.acknowledge_now):
            return EMPTY
        return answers.acknowledgement(commit.headers, acknowledgements)


def _sender(request: Request, headers: Headers, principal: str | None, peer: Peer, rm: RMVersion) -> Sender:
    return Sender(
        queue=request.caller.queue,
        rm=rm,
        soap=headers.soap,
        addressing=headers.addressing or WSA_2005,
        principal=principal,
        peer=request.caller.address,
        partner=peer.name,
    )


def _accepting(
    verb: Callable[[Transaction, Arrival], Receipt],
    arrival: Arrival,
    headers: Headers,
    request: Request,
    peer: Peer,
    receiving: tracing.Receive | None = None,
) -> Commit:
    return Commit(
        lambda tx: verb(tx, arrival),
        headers,
        request,
        peer,
        size=request.body.size,
        arrival=arrival,
        receiving=receiving,
        who=arrival.sender.who,
    )


def _check_reply_to(headers: Headers) -> None:
    """Replies leave on the response they belong to; another address has no channel yet."""
    reply_to = headers.reply_to
    if reply_to is None or headers.reply_anonymous or headers.is_one_way_address:
        return
    raise EnvelopeError(
        faults.InvalidAddressingHeader(
            "Replies are sent on the HTTP response only: ReplyTo has to be anonymous or none.",
            header="ReplyTo",
            detail_code="OnlyAnonymousAddressSupported",
        ),
        headers,
    )


def _check_create(element: CreateSequence, headers: Headers) -> None:
    reason = _why_refused(element, headers)
    if reason:
        raise EnvelopeError(faults.CreateSequenceRefused(reason), headers)


def _why_refused(element: CreateSequence, headers: Headers) -> str:
    assert headers.addressing is not None
    if element.uses_security:
        return f"{element.uses_security} is not offered here: no sequence is bound to a token or a TLS session."
    if element.acks_to is None:
        return "AcksTo is missing."
    if not _is_anonymous(element.acks_to, headers):
        return (
            f"AcksTo has to be the anonymous address {headers.addressing.anonymous}: "
            "acknowledgements are sent on the HTTP response only."
        )
    if headers.reply_to is not None and not headers.reply_anonymous:
        return "ReplyTo has to be anonymous: the response is sent on the HTTP response only."
    return ""


def _is_anonymous(reference: EndpointReference, headers: Headers) -> bool:
    assert headers.addressing is not None
    return reference.address == headers.addressing.anonymous
