"""The RM Destination: it reads a request, says what to commit, and turns what was committed into an answer.

It blocks nowhere and knows no front. A front calls ``begin``; gets an ``Answer``, a ``Forward`` (the wrapped
application's own business), or a ``Commit``: a verb for the store. It has the verb committed, and calls ``finish`` with
the receipt, which has the message run and says what is left to do: answer, or wait for it. See ``exchange``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from wsrm_mq import tracing
from wsrm_mq.delivery.application import Environ
from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.destination import answers
from wsrm_mq.destination.answers import EMPTY, Answer
from wsrm_mq.destination.checks import (
    check_body,
    check_create,
    check_reply_to,
    check_understood,
    needs_reading,
    shows_its_end,
    source_of,
)
from wsrm_mq.destination.client import Client, Peer
from wsrm_mq.destination.copies import Copies
from wsrm_mq.destination.exchange import Commit, Forward, Request, Wait, delivery_of
from wsrm_mq.envelope import Headers, Limits, scan
from wsrm_mq.envelope.scanner import Scanner
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.accept import accept, turn_away
from wsrm_mq.queue.arrival import Arrival, Body, Receipt, Sender
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.lifecycle import lifecycle, take_fault
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import Acknowledge
from wsrm_mq.queue.settle import ServiceReply, Settlement
from wsrm_mq.queue.unsequenced import accept_unsequenced
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import (
    CloseSequence,
    CreateSequence,
    IncompleteSequenceBehavior,
    SequenceAcknowledgement,
    SequenceFault,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.store.refusals import limit_named
from wsrm_mq.versions import UNSEQUENCED, WSA_2005, RMVersion

__all__ = ["RMDestination"]

_UNNUMBERED: Final = SequenceHeader("", 0)
"""Stands in an ``Arrival`` until the transaction has given it its place."""
_NO_BODY: Final = Body(b"")
"""Stands in an ``Arrival`` that says what messages have in common."""

Identify = Callable[[Environ, Headers], tuple[str | None, Peer]]
"""The sender of a request (the principal, before anything is stored) and what the configuration says of it."""
HandOver = Callable[[Receipt, Delivery | None], object]
"""Gives the dispatcher what a commit made deliverable: a claim, and a message that is in memory."""
RunForRequest = Callable[[Claim, Delivery], object]
"""Has a message run whose request waits for it, in whatever way a front has."""
CountRefusal = Callable[[str, str | None], object]
"""Counts a refusal by reason and partner."""
MayTake = Callable[[Sender, str], bool]
"""Looks up whether a sequence may still take messages of a sender; see ``queue.lookup``."""


class RMDestination:
    """``one_way`` holds actions and ``{namespace}operation`` names."""

    def __init__(
        self,
        *,
        one_way: frozenset[str],
        understood: frozenset[str] | None,
        limits: Limits,
        queue_one_way: bool,
        sender_fault_status: int,
        events: Events,
        identify: Identify,
        hand_over: HandOver,
        refused: CountRefusal,
        may_take: MayTake,
    ) -> None:
        self._events = events
        self._identify = identify
        self._hand_over = hand_over
        self._refused = refused
        self._may_take = may_take
        self._copies = Copies()
        self._one_way = one_way
        self._understood = understood
        self._limits = limits
        self._scanner = Scanner(limits)
        self._queue_one_way = queue_one_way
        self._sender_fault_status = sender_fault_status

    # begin: what to do

    def begin(self, client: Client, connection: str | None, body: Body, environ: Environ) -> Answer | Forward | Commit:
        """``environ`` is what ``identify`` gets. Raises what that raises."""
        status, partner = self._sender_fault_status, None
        try:
            source = source_of(client, body, self._limits)
            headers = self._scanner.scan(source, client.content_type, client.soap_action)
            if headers.must_understand:
                check_understood(headers, self._understood)
            principal, peer = client.identity or self._identify(environ, headers)
            status, partner = peer.sender_fault_status, peer.name
            request = Request(client, connection, body, headers, principal, peer)
            kind = self._kind(request)
            common = client.arrivals.get(kind) if kind is not None else None
            if common is None or headers.sequence is None:
                return self._begin_first(request, kind)
            arrival = common._replace(
                header=headers.sequence, message_id=headers.message_id, body=body, connection=connection
            )
            return Commit(partial(accept, arrival=arrival), request, body.size, arrival)
        except EnvelopeError as error:
            self._tell_refused(error.fault, partner)
            return answers.unreadable(error, client.content_type, status)

    def _kind(self, request: Request) -> tuple[object, ...] | None:
        """The same for messages of a client of which the same is decided; ``None``: this one is looked at by itself."""
        client, _connection, body, headers, principal, peer = request
        is_usual = tracing.tracer is None and not (peer.strict_addressing or peer.verify_body)
        if headers.alike is None or not is_usual or not shows_its_end(client, body, self._limits):
            return None
        return headers.alike, principal, peer.name

    def _begin_first(self, request: Request, kind: tuple[object, ...] | None) -> Answer | Forward | Commit:
        is_taken = self._check_further(request)
        begun = self._begin(request)
        if not isinstance(begun, Commit) or begun.arrival is None:
            return begun
        if not is_taken:
            return begun._replace(verb=partial(turn_away, arrival=begun.arrival), size=0)
        if kind is not None:
            request.client.keep(kind, begun.arrival._replace(body=_NO_BODY))
        return begun

    def _check_further(self, request: Request) -> bool:
        """What is asked of this peer alone (only the headers tell which it is), and of a body that is to be kept.
        False: no sequence takes the message, so its body was not read."""
        headers, peer = request.headers, request.peer
        if peer.strict_addressing:
            client = request.client
            strictly = source_of(client, request.body, self._limits)
            scan(strictly, client.content_type, client.soap_action, replace(self._limits, strict_addressing=True))
        is_kept = headers.sequence is not None or (self._queue_one_way and headers.is_plain)
        if not needs_reading(request, self._limits, is_kept=is_kept):
            return True
        sequence, rm = headers.sequence, headers.rm
        if sequence is not None and rm is not None and not self._may_take(_sender(request, rm), sequence.identifier):
            return False
        check_body(request, self._limits, is_kept=is_kept)
        return True

    def _begin(self, request: Request) -> Answer | Forward | Commit:
        headers = request.headers
        self._tell_of_riders(headers)
        if headers.is_plain:
            return self._plain(request)
        rm, element = headers.rm, headers.body
        assert rm is not None  # without it a message is plain
        sender = _sender(request, rm)
        if isinstance(element, SequenceFault):
            return Commit(lambda tx: take_fault(tx, sender, element), request)
        if isinstance(element, CreateSequence):
            check_create(element, headers)
            creating = partial(
                create,
                sender=sender,
                request=element,
                message_id=headers.message_id,
                policy=request.peer.policy,
                ack_requested=headers.ack_requested,
            )
            return Commit(creating, request)
        if isinstance(element, CloseSequence | TerminateSequence):
            if rm.has_close:  # 1.0: TerminateSequence is one-way
                check_reply_to(headers)
            return _asking(request, sender, element)
        if headers.sequence is not None:
            return self._message(request, sender, headers.sequence)
        if headers.ack_requested:
            return _asking(request, sender)
        if headers.acknowledgements:
            stray = headers.acknowledgements[0].identifier  # about a sequence of ours, and there is none
            raise EnvelopeError(
                faults.UnknownSequence("The identifier is not that of a sequence sent from here.", stray), headers
            )
        raise EnvelopeError(
            faults.MalformedMessage("The message is one of WS-ReliableMessaging, but carries nothing to act on."),
            headers,
        )

    def _plain(self, request: Request) -> Answer | Forward | Commit:
        """An application's message outside of any sequence. What it asks for beside is answered, and changes nothing of
        what becomes of it (WS-RM 1.1 §3.9; D-ACK-015, D-ACK-018)."""
        headers = request.headers
        then: Forward | faults.Fault | None
        if headers.is_protocol_fault:
            self._events.tell("fault.ignored", reason="It is none of WS-ReliableMessaging.", action=headers.action)
            then = None
        elif request.peer.require_rm:
            then = faults.WSRMRequired("This endpoint takes messages of a reliable sequence only.")
        else:
            then = Forward(headers, self._is_one_way(headers))
            if then.one_way and self._queue_one_way:
                return _unsequenced(request)
        if headers.ack_requested and headers.rm is not None:
            return _asking(request, _sender(request, headers.rm), then=then)
        if isinstance(then, faults.Fault):
            raise EnvelopeError(then, headers)
        return EMPTY if then is None else then

    def _tell_of_riders(self, headers: Headers) -> None:
        """Headers that ride on a message and are in error do not stop it; they are told (§6 row 44). An
        acknowledgement of nothing is in no error: Metro sends it with each message, about its offered sequence."""
        for reason in headers.ignored:
            self._events.tell("header.ignored", reason=reason)
        if headers.sequence is not None or headers.is_plain:
            for acknowledgement in headers.acknowledgements:
                if acknowledgement.ranges or acknowledgement.nacks:
                    self._events.tell("acknowledgement.unknown", sequence=acknowledgement.identifier)

    def _message(self, request: Request, sender: Sender, header: SequenceHeader) -> Commit:
        client, headers, policy = request.client, request.headers, request.peer.policy
        empty_last = header.last and headers.body_name is None
        one_way = empty_last or self._is_one_way(headers)
        if not one_way:
            check_reply_to(headers)
        robust = policy.acknowledge is Acknowledge.DELIVERED
        if not one_way and policy.behavior is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE:
            raise EnvelopeError(
                faults.MalformedMessage(
                    "The sequence is delivered only when it is complete, so no message of it can be answered; "
                    "send one-way messages."
                ),
                headers,
            )
        receiving = None
        if tracing.tracer is not None:
            receiving = tracing.receive(
                tracing.tracer, client.kept, client.queue, headers.message_id, header.identifier, header.number
            )
        arrival = Arrival(
            sender=sender,
            header=header,
            message_id=headers.message_id,
            action=headers.action,
            environ=client.kept if receiving is None else receiving.environ,
            connection=request.connection,
            body=request.body,
            policy=policy,
            wants_reply=not one_way,
            named=one_way and not robust,
            empty_last=empty_last,
            ack_requested=headers.ack_requested,
            waits=not one_way or robust,
        )
        return Commit(partial(accept, arrival=arrival), request, request.body.size, arrival, receiving)

    def _is_one_way(self, headers: Headers) -> bool:
        if headers.is_one_way_address or headers.action in self._one_way or headers.is_fault:
            return True
        if headers.body_name is None:
            return False
        namespace, local = headers.body_name
        return f"{{{namespace}}}{local}" in self._one_way or local in self._one_way

    # finish: what it came to

    def finish(self, commit: Commit, receipt: Receipt, run: RunForRequest) -> Answer | Forward | Wait:
        """What is left of a request whose verb is committed. To be called where the commit is told: here it is decided
        who runs the message, and the dispatcher has its work before the sender is answered."""
        arrival, delivery = commit.arrival, None
        if arrival is not None and (receipt.is_head or receipt.is_queued):
            delivery = delivery_of(arrival, receipt)
        try:
            if delivery is not None and receipt.claim is not None and delivery.is_waited_for:
                run(receipt.claim, delivery)
            else:
                self._hand_over(receipt, delivery)
        except BaseException as error:  # what is committed is told so, and the watch takes up what was dropped
            self._events.tell("store.callback_failed", trouble=error)
        for fault in receipt.other_faults:
            self._events.tell("ack_requested.unknown", sequence=fault.identifier)
        if commit.receiving is not None:
            commit.receiving.end(receipt.outcome, receipt.fault.name if receipt.fault is not None else None)
        if arrival is not None and receipt.fault is None and not receipt.no_room:
            return self._message_answer(commit.request, arrival, receipt)
        return self._other_answer(commit, receipt)

    def settled(self, commit: Commit, wait: Wait, settlement: Settlement) -> Answer:
        """The answer to a request whose message is settled: its stored reply with the current acknowledgement, or
        the acknowledgement alone."""
        headers, reply = commit.request.headers, settlement.reply
        if isinstance(headers.body, CloseSequence | TerminateSequence):
            return answers.ended(settlement.acknowledgement, headers, wait.others)
        acknowledgements = (settlement.acknowledgement, *wait.others)
        if reply is not None and reply.body:
            answer = answers.replied(reply, headers, acknowledgements)
            return answer if answer is not None else self._bare(reply, headers, acknowledgements)
        if settlement.outcome == "dead" and commit.arrival is not None and commit.arrival.wants_reply:
            fault = faults.ServiceFailure("The message could not be delivered to the service; it was set aside.")
            return answers.fault(fault, headers, acknowledgements)
        return answers.acknowledgement(headers, acknowledgements)

    def _message_answer(self, request: Request, arrival: Arrival, receipt: Receipt) -> Answer | Wait:
        """200 with an acknowledgement that covers the message: CXF, Metro, WCF, gSOAP and zeep all take it."""
        headers, position, age = request.headers, receipt.position, receipt.reply_age
        has_all = not arrival.waits or (receipt.settled and not arrival.wants_reply)
        if not has_all and position is not None:  # without one it was pruned: the sender is told that it arrived
            if receipt.is_stuck:
                return EMPTY
            if age is None or not self._copies.acknowledges_alone(position, age):
                return Wait(position, others=receipt.others)
        own = receipt.acknowledgement
        if own is None:  # it came outside of any sequence
            return answers.acknowledgement(headers, receipt.others)
        if request.peer.one_way_answer == "empty" and not (headers.ack_requested or receipt.acknowledge_now):
            return EMPTY
        return answers.acknowledgement(headers, (own, *receipt.others))

    def _other_answer(self, commit: Commit, receipt: Receipt) -> Answer | Forward | Wait:
        headers, peer, then = commit.request.headers, commit.request.peer, commit.then
        if isinstance(headers.body, SequenceFault):
            return self._fault_arrived(headers.body, receipt)
        if receipt.fault is not None:
            self._tell_refused(receipt.fault, peer.name)
            return answers.refused(receipt, headers, peer.sender_fault_status)
        if receipt.no_room:
            self._tell_no_room(receipt.no_room, peer.name)
            if peer.policy.tells_room and receipt.acknowledgement is not None:  # WCF takes a 503 for a broken line
                return answers.acknowledgement(headers, (receipt.acknowledgement, *receipt.others))
            return answers.unavailable(receipt.no_room)
        if receipt.created is not None:
            return answers.created(receipt, headers)
        if headers.body is not None:
            answer = answers.ended(receipt.acknowledgement, headers, receipt.others)
            if receipt.unfinished is None:
                return answer
            return Wait(receipt.unfinished, answer, bounded=False, others=receipt.others)
        if isinstance(then, Forward):
            return then._replace(acknowledgements=receipt.others)
        if then is not None:
            self._tell_refused(then, peer.name)
            return answers.fault(then, headers, receipt.others, sender_fault=peer.sender_fault_status)
        if receipt.other_faults and not receipt.others:
            return answers.fault(receipt.other_faults[0], headers, sender_fault=peer.sender_fault_status)
        return answers.acknowledgement(headers, receipt.others)

    def _fault_arrived(self, arrived: SequenceFault, receipt: Receipt) -> Answer:
        """A fault is never answered with one, and the application has nothing to do with it (F-024)."""
        if receipt.act is None:
            reason = receipt.fault.reason if receipt.fault is not None else "The sequence has ended already."
            self._events.tell("fault.ignored", fault=arrived.code, reason=reason, sequence=arrived.identifier)
        return EMPTY

    def _bare(
        self, reply: ServiceReply, headers: Headers, acknowledgements: tuple[SequenceAcknowledgement, ...]
    ) -> Answer:
        """The reply as it is, which can carry no acknowledgement; to each second request for it that alone."""
        own = headers.sequence
        assert own is not None
        times = self._copies.of_bare(own.identifier, own.number)
        if times == 1:
            of = answers.content_type(reply)
            self._events.tell("reply.not_soap", sequence=own.identifier, number=own.number, content_type=of)
        return answers.as_it_is(reply) if times % 2 else answers.acknowledgement(headers, acknowledgements)

    def _tell_refused(self, fault: faults.Fault, partner: str | None) -> None:
        self._refused(fault.subcode or type(fault).__name__, partner)
        self._events.tell("request.refused", fault=fault.name, reason=fault.reason, sequence=fault.identifier)

    def _tell_no_room(self, no_room: str, partner: str | None) -> None:
        self._refused(limit_named(no_room), partner)
        self._events.tell("request.no_room", reason=no_room)


def _sender(request: Request, rm: RMVersion) -> Sender:
    return Sender(
        queue=request.client.queue,
        rm=rm,
        soap=request.headers.soap,
        addressing=request.headers.addressing or WSA_2005,
        principal=request.principal,
        peer=request.client.address,
        partner=request.peer.name,
    )


def _asking(
    request: Request,
    sender: Sender,
    element: CloseSequence | TerminateSequence | None = None,
    then: Forward | faults.Fault | None = None,
) -> Commit:
    """Have ``element`` and the AckRequested headers answered; ``then`` do with an application's message that carries
    them what is to be done."""
    asked = request.headers.ack_requested
    verb = partial(lifecycle, sender=sender, element=element, policy=request.peer.policy, ack_requested=asked)
    return Commit(verb, request, then=then)


def _unsequenced(request: Request) -> Commit:
    """A one-way message without WS-RM is stored too, and gets its place among those of its connection."""
    client, headers = request.client, request.headers
    arrival = Arrival(
        sender=_sender(request, UNSEQUENCED),
        header=_UNNUMBERED,
        message_id=headers.message_id,
        action=headers.action,
        environ=client.kept,
        connection=request.connection,
        body=request.body,
        policy=request.peer.policy,
        ack_requested=headers.ack_requested,
    )
    asking = _sender(request, headers.rm) if headers.ack_requested and headers.rm is not None else None
    return Commit(
        partial(accept_unsequenced, arrival=arrival, asking=asking), request, request.body.size, arrival=arrival
    )
