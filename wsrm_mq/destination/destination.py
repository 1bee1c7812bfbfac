"""The RM Destination: it reads a request, says what to commit, and turns what was committed into an answer.

It blocks nowhere and knows no front. A front calls ``examine``; gets an ``Answer``, a ``Forward`` (the wrapped
application's own business), or a ``Commit``: a verb for the store. It has the verb committed and calls ``conclude``
with the receipt, which says what is left to do: answer, run the message, or wait for it. See ``exchange``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from wsrm_mq import tracing
from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.destination import answers
from wsrm_mq.destination.addresses import check_create, check_reply_to
from wsrm_mq.destination.answers import EMPTY, Answer
from wsrm_mq.destination.body_check import check_body, needs_reading, shows_its_end, source_of
from wsrm_mq.destination.copies import Copies
from wsrm_mq.destination.exchange import Commit, Forward, HandOver, Peer, Request, Run, Wait
from wsrm_mq.envelope import Headers, Limits
from wsrm_mq.envelope.scanner import Scanner
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.accept import Arrival, Created, Receipt, Sender, accept, create
from wsrm_mq.queue.lifecycle import lifecycle, take_fault
from wsrm_mq.queue.lookup import turn_away
from wsrm_mq.queue.policy import Acknowledge
from wsrm_mq.queue.settle import Reply
from wsrm_mq.queue.unsequenced import accept_unsequenced
from wsrm_mq.remembered import Memory
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

CountRefusal = Callable[[str, str | None], object]
"""Counts a refusal by reason and partner."""
MayTake = Callable[[Sender, str], bool]
"""Looks up whether a sequence may still take messages of a sender; see ``queue.lookup``."""


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
        sender_fault_status: int = 500,
        events: Events | None = None,
        refused: CountRefusal = lambda _reason, _partner: None,
        may_take: MayTake = lambda _sender, _identifier: True,
    ) -> None:
        self._events = events or Events()
        self._refused = refused
        self._may_take = may_take
        self._known: Memory[tuple[object, ...], tuple[Any, ...]] = Memory(_REMEMBERED)
        self._copies = Copies()
        self._one_way = one_way
        self._understood = understood
        self._limits = limits
        self._scanner = Scanner(replace(limits, strict_addressing=False))
        self._strict = Scanner(replace(limits, strict_addressing=True))
        self._queue_one_way = queue_one_way
        self._sender_fault_status = sender_fault_status

    # first half: what to do

    def examine(self, request: Request) -> Answer | Forward | Commit:
        status, partner = self._sender_fault_status, None
        try:
            headers = self._scan(request, self._scanner)
            self._check_understood(headers)
            principal, peer = request.identify(headers)
            status, partner = peer.sender_fault_status, peer.name
            return self._examine(request, headers, principal, peer)
        except EnvelopeError as error:
            self._tell_refused(error.fault, partner)
            return answers.unreadable(error, request.caller.content_type, status)

    def _scan(self, request: Request, scanner: Scanner) -> Headers:
        caller = request.caller
        return scanner.scan(source_of(request, self._limits), caller.content_type, caller.soap_action)

    def _check_further(self, request: Request, headers: Headers, principal: str | None, peer: Peer) -> bool:
        """What is asked of this peer and not of everybody (who it is, only the headers tell), and of a body that is to
        be kept. False: no sequence takes the message, so its body was not read."""
        if peer.strict_addressing:
            self._scan(request, self._strict)
        is_kept = headers.sequence is not None or (self._queue_one_way and headers.is_plain)
        if not needs_reading(request, headers, peer, self._limits, is_kept=is_kept):
            return True
        if headers.sequence is not None and headers.rm is not None:
            sender = _sender(request, headers, principal, peer, headers.rm)
            if not self._may_take(sender, headers.sequence.identifier):
                return False
        check_body(request, peer, self._limits, is_kept=is_kept)
        return True

    def _examine(
        self, request: Request, headers: Headers, principal: str | None, peer: Peer
    ) -> Answer | Forward | Commit:
        is_usual = tracing.tracer is None and not (peer.strict_addressing or peer.verify_body)
        if headers.alike is not None and is_usual and shows_its_end(request, self._limits):
            return self._like_the_last(request, headers, principal, peer)
        is_taken = self._check_further(request, headers, principal, peer)
        examined = self._examine_for(request, headers, principal, peer)
        if is_taken or not isinstance(examined, Commit) or examined.arrival is None:
            return examined
        return examined._replace(verb=partial(turn_away, arrival=examined.arrival), size=0)

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
        self._tell_of_riders(headers)
        if headers.is_plain:
            return self._plain(request, headers, principal, peer)
        rm = headers.rm
        assert rm is not None  # without it a message is plain
        sender = _sender(request, headers, principal, peer, rm)
        policy, asked = peer.policy, headers.ack_requested
        element = headers.body
        if isinstance(element, SequenceFault):
            return Commit(lambda tx: take_fault(tx, sender, element), headers, request, peer)
        if isinstance(element, CreateSequence):
            check_create(element, headers)
            create_it = partial(
                create,
                sender=sender,
                request=element,
                message_id=headers.message_id,
                policy=policy,
                ack_requested=asked,
            )
            return Commit(create_it, headers, request, peer)
        if isinstance(element, CloseSequence | TerminateSequence):
            if rm.has_close:  # 1.0: TerminateSequence is one-way
                check_reply_to(headers)
            verb = partial(lifecycle, sender=sender, element=element, policy=policy, ack_requested=asked)
            return Commit(verb, headers, request, peer, who=sender.who, others=[])
        if headers.sequence is not None:
            return self._message(request, headers, sender, peer)
        if asked:
            return _asking(request, headers, sender, peer)
        if headers.acknowledgements:
            raise EnvelopeError(_stray_acknowledgement(headers), headers)
        raise EnvelopeError(
            faults.MalformedMessage("The message is one of WS-ReliableMessaging, but carries nothing to act on."),
            headers,
        )

    def _plain(
        self, request: Request, headers: Headers, principal: str | None, peer: Peer
    ) -> Answer | Forward | Commit:
        """An application's message outside of any sequence. What it asks for beside is answered, and changes nothing of
        what becomes of it (WS-RM 1.1 §3.9; D-ACK-015, D-ACK-018)."""
        then: Forward | faults.Fault | None
        if headers.is_protocol_fault:
            self._events.tell("fault.ignored", reason="It is none of WS-ReliableMessaging.", action=headers.action)
            then = None
        elif peer.require_rm:
            then = faults.WSRMRequired("This endpoint takes messages of a reliable sequence only.")
        else:
            then = Forward(headers, self._is_one_way(headers))
            if then.one_way and self._queue_one_way:
                return self._unsequenced(request, headers, principal, peer)
        if headers.ack_requested and headers.rm is not None:
            sender = _sender(request, headers, principal, peer, headers.rm)
            return _asking(request, headers, sender, peer, then)
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

    def _message(self, request: Request, headers: Headers, sender: Sender, peer: Peer) -> Commit:
        assert headers.sequence is not None
        policy = peer.policy
        empty_last = headers.sequence.last and headers.body_name is None
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
            environ = environ if receiving is None else receiving.environ
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
        asking = None
        if headers.ack_requested and headers.rm is not None:
            asking = _sender(request, headers, principal, peer, headers.rm)
        arrival = Arrival(
            sender=_sender(request, headers, principal, peer, UNSEQUENCED),
            header=_UNNUMBERED,
            message_id=headers.message_id,
            action=headers.action,
            environ=request.caller.environ,
            connection=request.caller.connection,
            body=request.body,
            policy=peer.policy,
            ack_requested=headers.ack_requested,
        )
        return _accepting(partial(accept_unsequenced, asking=asking), arrival, headers, request, peer)

    def _is_one_way(self, headers: Headers) -> bool:
        if headers.is_one_way_address or headers.action in self._one_way or headers.is_fault:
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

    def conclude(self, commit: Commit, receipt: Receipt | Created) -> Answer | Forward | Run | Wait:
        headers, status = commit.headers, commit.peer.sender_fault_status
        for fault in receipt.other_faults:
            self._events.tell("ack_requested.unknown", sequence=fault.identifier)
        if isinstance(receipt, Created):
            if receipt.fault is not None:
                self._tell_refused(receipt.fault, commit.peer.name)
            elif receipt.no_room:
                self._tell_no_room(receipt.no_room, commit.peer.name)
            return answers.created(receipt, headers, status)
        if commit.receiving is not None:
            commit.receiving.end(receipt.outcome, receipt.fault.name if receipt.fault is not None else None)
        if isinstance(headers.body, SequenceFault):
            return self._conclude_fault(headers.body, receipt)
        if receipt.fault is not None:
            self._tell_refused(receipt.fault, commit.peer.name)
            return answers.refused(receipt, headers, status)
        if receipt.no_room:
            self._tell_no_room(receipt.no_room, commit.peer.name)
            return self._no_room(commit, receipt)
        if commit.others is not None:
            commit.others.extend(receipt.others)
        if commit.arrival is not None:
            return self._conclude_message(commit, commit.arrival, receipt)
        if headers.body is not None:
            answer = answers.ended(receipt.acknowledgement, headers, receipt.others)
            return Wait(receipt.unfinished, answer, bounded=False) if receipt.unfinished is not None else answer
        if isinstance(commit.then, Forward):
            return commit.then._replace(acknowledgements=receipt.others)
        if commit.then is not None:
            self._tell_refused(commit.then, commit.peer.name)
            return answers.fault(commit.then, headers, receipt.others, sender_fault=status)
        if receipt.other_faults and not receipt.others:
            return answers.fault(receipt.other_faults[0], headers, sender_fault=status)
        return answers.acknowledgement(headers, receipt.others)

    def _conclude_fault(self, arrived: SequenceFault, receipt: Receipt) -> Answer:
        """A fault is never answered with one, and the application has nothing to do with it (F-024)."""
        if receipt.act is None:
            reason = receipt.fault.reason if receipt.fault is not None else "The sequence has ended already."
            self._events.tell("fault.ignored", fault=arrived.code, reason=reason, sequence=arrived.identifier)
        return EMPTY

    def _tell_refused(self, fault: faults.Fault, partner: str | None) -> None:
        self._refused(fault.subcode or type(fault).__name__, partner)
        self._events.tell("request.refused", fault=fault.name, reason=fault.reason, sequence=fault.identifier)

    def _tell_no_room(self, no_room: str, partner: str | None) -> None:
        self._refused(limit_named(no_room), partner)
        self._events.tell("request.no_room", reason=no_room)

    def _conclude_message(self, commit: Commit, arrival: Arrival, receipt: Receipt) -> Answer | Run | Wait:
        if not arrival.waits or (receipt.settled and not arrival.wants_reply):
            return self._one_way_answer(commit, receipt)
        if receipt.claim is not None and receipt.is_head:
            return Run(receipt.claim, self._delivery(arrival, receipt))
        if receipt.position is None:  # pruned: the sender is told that it arrived
            return self._one_way_answer(commit, receipt)
        if receipt.is_stuck:
            return EMPTY
        if receipt.reply_age is not None and self._copies.acknowledges_alone(receipt.position, receipt.reply_age):
            return self._one_way_answer(commit, receipt)
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
        headers, others = commit.headers, commit.others or ()
        if isinstance(headers.body, CloseSequence | TerminateSequence):
            return answers.ended(acknowledgement, headers, others)
        acknowledgements = (acknowledgement, *others)
        if reply is not None and reply.body:
            answer = answers.replied(reply, headers, acknowledgements)
            return answer if answer is not None else self._bare(reply, headers, acknowledgements)
        if outcome == "dead" and commit.arrival is not None and commit.arrival.wants_reply:
            fault = faults.ServiceFailure("The message could not be delivered to the service; it was set aside.")
            return answers.fault(fault, headers, acknowledgements)
        return answers.acknowledgement(headers, acknowledgements)

    def _bare(self, reply: Reply, headers: Headers, acknowledgements: tuple[SequenceAcknowledgement, ...]) -> Answer:
        """The reply as it is, which can carry no acknowledgement; to each second request for it that alone."""
        own = headers.sequence
        assert own is not None
        times = self._copies.of_bare(own.identifier, own.number)
        if times == 1:
            of = answers.content_type(reply)
            self._events.tell("reply.not_soap", sequence=own.identifier, number=own.number, content_type=of)
        return answers.as_it_is(reply) if times % 2 else answers.acknowledgement(headers, acknowledgements)

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
        if receipt.acknowledgement is None:  # it came outside of any sequence
            return answers.acknowledgement(commit.headers, receipt.others)
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


def _asking(
    request: Request, headers: Headers, sender: Sender, peer: Peer, then: Forward | faults.Fault | None = None
) -> Commit:
    """Have the AckRequested headers answered; then do with the message that carries them what is to be done."""
    verb = partial(lifecycle, sender=sender, element=None, policy=peer.policy, ack_requested=headers.ack_requested)
    return Commit(verb, headers, request, peer, then=then)


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
        others=[] if headers.ack_requested else None,
    )


def _stray_acknowledgement(headers: Headers) -> faults.Fault:
    """An acknowledgement alone is about a sequence that we send, and no such sequence exists."""
    identifier = headers.acknowledgements[0].identifier
    return faults.UnknownSequence("The identifier is not that of a sequence sent from here.", identifier)
