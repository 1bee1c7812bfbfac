"""The RM Destination: it reads a request, makes the verb to commit, and turns the committed result into an answer.

It blocks nowhere and knows no front. A front calls ``begin``; gets an ``Answer``, a ``Forward`` (the wrapped
application's own business), or a ``Commit``: a verb for the store. It has the verb committed, and calls ``finish`` with
the receipt, which has the message run and answers the rest to do: an answer, or a wait for it. See ``exchange``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from wsrm_mq import tracing
from wsrm_mq.delivery.application import Environ
from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.delivery.outgoing_messages import UNDELIVERED, own_message, with_end_of_outbound, with_reply_endpoints
from wsrm_mq.destination import answers, commits
from wsrm_mq.destination.answers import EMPTY, Answer, Copies
from wsrm_mq.destination.connections import Connections
from wsrm_mq.destination.coverage import Operations
from wsrm_mq.destination.exchange import Client, Commit, Forward, Peer, Request, Wait
from wsrm_mq.destination.request_body import check_body, needs_reading, shows_its_end, source_of
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.scan import Scanner, scan
from wsrm_mq.envelope.stream import Limits, content_type_of
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.accept import accept, turn_away
from wsrm_mq.queue.arrival import Arrival, Body, CreateReceipt, EndReceipt, MessageReceipt, Receipt, Sender
from wsrm_mq.queue.lifecycle import take_fault
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import Acknowledge, Mode
from wsrm_mq.queue.sending import OutgoingMessage
from wsrm_mq.queue.settle import ServiceReply, Settlement
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import (
    CloseSequence,
    CreateSequence,
    IncompleteSequenceBehavior,
    MakeConnection,
    SequenceAcknowledgement,
    SequenceFault,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.store.counting import limit_named

_NO_BODY: Final = Body(b"")
"""The body of an ``Arrival`` that holds the common part of messages."""

Identify = Callable[[Environ, Headers], tuple[str | None, Peer]]
"""A function that answers the principal that sends a request, before anything is stored, and its peer in the
configuration."""
HandOver = Callable[[Receipt, Delivery | None], object]
"""A function that gives the dispatcher the work of a commit: a claim, and a message that is in memory."""
RunForRequest = Callable[[Claim, Delivery], object]
"""A function that has a message run whose request waits for it, in the way of its front."""
CountRefusal = Callable[[str, str | None, str], object]
"""Counts a refusal by reason and partner."""
MayTake = Callable[[Sender, str], bool]
"""Looks up whether a sequence may still take messages of a sender; see ``queue.arrival``."""
Say = Callable[[OutgoingMessage, str | None, int | None], bool]
"""A function that sends a fault, which is not stored, because of this sender, about the sequence with this key, if
there is one. It answers whether the fault can be sent."""


@dataclass(eq=False, kw_only=True)
class RMDestination:
    """``described``: the operations on a path, as the service's own WSDL says, for a peer of whom nothing else does."""

    described: Callable[[str], Operations]
    understood: frozenset[str] | None
    limits: Limits
    queue_one_way: bool
    sender_fault_status: int
    events: Events
    identify: Identify
    connections: Connections
    hand_over: HandOver
    refused: CountRefusal
    may_take: MayTake
    reach: commits.Reach
    say: Say
    fetching: commits.Fetching

    def __post_init__(self) -> None:
        self._copies = Copies()
        self._scanner = Scanner(self.limits)

    # begin: what to do

    def begin(self, client: Client, body: Body, environ: Environ, call: object) -> Answer | Forward | Commit:
        """Begin a request. ``environ`` is the argument of ``identify``; ``call`` as for ``Connections.name``. Raises
        their errors, and ``NameNotKnown`` where a name has to be looked up before it can be called again,
        ``NameServerSilent`` where the look-up failed."""
        connection = self.connections.name(environ, call)
        status, partner = self.sender_fault_status, None
        try:
            source = source_of(client, body, self.limits)
            headers = self._scanner.scan(source, client.content_type, client.soap_action)
            if headers.must_understand:
                commits.check_understood(headers, self.understood)
            principal, peer = client.identity or self.identify(environ, headers)
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
            return self._unreadable(error, client, environ, status)

    def _unreadable(self, error: EnvelopeError, client: Client, environ: Environ, status: int) -> Answer:
        """The fault leaves where the request wants it, if that could be read. For a stranger nothing is sent."""
        headers = error.context
        if (
            error.status is None
            and isinstance(headers, Headers)
            and commits.own_fault_place(headers, self.reach) is not None
        ):
            if client.identity is None:
                self.identify(environ, headers)
            return self._fault(client, error.fault, headers, status)
        return answers.unreadable(error, client.content_type, status)

    def _kind(self, request: Request) -> tuple[object, ...] | None:
        """A key that messages of a client have in common where the same is decided of them; ``None``: this one is
        looked at by itself."""
        client, _connection, body, headers, principal, peer = request
        is_usual = tracing.spans is None and not (peer.strict_addressing or peer.verify_body)
        if headers.alike is None or not is_usual or not shows_its_end(client, body, self.limits):
            return None
        return headers.alike, principal, peer.name

    def _begin_first(self, request: Request, kind: tuple[object, ...] | None) -> Answer | Forward | Commit:
        is_taken = self._check_further(request)
        begun = self._begin(request)
        if isinstance(begun, Commit) and begun.arrival is not None and not is_taken:
            begun = begun._replace(verb=partial(turn_away, arrival=begun.arrival), size=0)
        if isinstance(begun, Commit) and request.headers.acknowledgements:
            return commits.acknowledging(begun)
        if not isinstance(begun, Commit) or begun.arrival is None or not is_taken:
            return begun
        if kind is not None:
            request.client.keep(kind, begun.arrival._replace(body=_NO_BODY))
        return begun

    def _check_further(self, request: Request) -> bool:
        """Make the checks that hold for this peer alone, which only the headers tell, and those of a body that is to be
        kept. Answers ``False`` where no sequence takes the message; then its body was not read."""
        headers, peer = request.headers, request.peer
        if peer.strict_addressing:
            client = request.client
            strictly = source_of(client, request.body, self.limits)
            scan(strictly, client.content_type, client.soap_action, replace(self.limits, strict_addressing=True))
        is_kept = headers.sequence is not None or (headers.is_plain and self._is_kept(request))
        if not needs_reading(request, self.limits, is_kept=is_kept):
            return True
        sequence, rm = headers.sequence, headers.rm
        if (
            sequence is not None
            and rm is not None
            and not self.may_take(commits.sender_of(request, rm), sequence.identifier)
        ):
            return False
        check_body(request, self.limits, is_kept=is_kept)
        return True

    def _begin(self, request: Request) -> Answer | Forward | Commit:
        headers = request.headers
        self._tell_of_riders(headers)
        if headers.is_plain:
            return self._plain(request)
        rm, element = headers.rm, headers.body
        assert rm is not None  # without it a message is plain
        sender = commits.sender_of(request, rm)
        if isinstance(element, SequenceFault):
            return Commit(lambda tx: take_fault(tx, sender, element), request)
        if isinstance(element, CreateSequence):
            has_replies = self.operations(request).has_replies
            return commits.creating(request, sender, element, self.reach, has_replies=has_replies)
        if isinstance(element, MakeConnection):
            return self.fetching.begin(request, sender, element)
        if isinstance(element, CloseSequence | TerminateSequence):
            return self._ending(request, sender, element)
        if headers.sequence is not None:
            return self._message(request, sender, headers.sequence)
        if headers.ack_requested or headers.acknowledgements:
            return commits.asking(request, sender)
        if commits.is_without_effect(headers):
            return EMPTY
        raise EnvelopeError(
            faults.MalformedMessage("The message is one of WS-ReliableMessaging, but carries nothing to act on."),
            headers,
        )

    def _ending(self, request: Request, sender: Sender, element: CloseSequence | TerminateSequence) -> Commit:
        headers = request.headers
        commit = commits.asking(request, sender, element)
        if isinstance(element, TerminateSequence):
            commit = commit._replace(verb=partial(with_end_of_outbound, verb=commit.verb))
        if not sender.rm.has_close:  # 1.0: TerminateSequence is one-way
            return commit
        commits.check_reply_to(headers, self.reach)
        to = commits.reply_endpoint_of(headers)
        if to is None:
            return commit
        return commit._replace(
            verb=partial(commits.ended_there, verb=commit.verb, element=element, headers=headers, to=to)
        )

    def _plain(self, request: Request) -> Answer | Forward | Commit:
        """Begin an application's message outside of any sequence. Its requests for acknowledgements are answered, and
        change nothing of its outcome (WS-RM 1.1 §3.9; D-ACK-015, D-ACK-018)."""
        headers = request.headers
        then: Forward | faults.Fault | None
        if headers.is_protocol_fault:
            self.events.tell("fault.ignored", reason="It is none of WS-ReliableMessaging.", action=headers.action)
            then = None
        elif request.peer.require_rm:
            then = faults.WSRMRequired("This endpoint takes messages of a reliable sequence only.")
        else:
            one_way = self._is_one_way(request)
            if one_way and self._is_kept(request):
                return commits.unsequenced(request)
            says_so = headers.is_one_way_address or headers.is_fault
            then = Forward(headers, one_way and (says_so or not self.operations(request).pass_as_before))
        if (headers.ack_requested or headers.acknowledgements) and headers.rm is not None:
            return commits.asking(request, commits.sender_of(request, headers.rm), then=then)
        if isinstance(then, faults.Fault):
            raise EnvelopeError(then, headers)
        return EMPTY if then is None else then

    def _tell_of_riders(self, headers: Headers) -> None:
        """Headers that ride on a message and are in error do not stop it; they are told (§6 row 44)."""
        for reason in headers.ignored:
            self.events.tell("header.ignored", reason=reason)

    def _message(self, request: Request, sender: Sender, header: SequenceHeader) -> Commit:
        client, headers, policy = request.client, request.headers, request.peer.policy
        empty_last = header.last and headers.body_name is None
        one_way = empty_last or self._is_one_way(request)
        to = None if one_way else commits.reply_endpoint_of(headers)
        if not one_way:
            commits.check_reply_to(headers, self.reach)
        waits = not one_way and to is None
        is_fetched = waits and headers.reply_is_fetched
        endpoint = headers.reply_to if is_fetched else to
        is_only_answered_now = waits and not is_fetched
        robust = policy.acknowledge is Acknowledge.DELIVERED
        if is_only_answered_now and policy.behavior is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE:
            raise EnvelopeError(
                faults.MalformedMessage(
                    "The sequence is delivered only when it is complete, so no message of it can be answered; "
                    "send one-way messages."
                ),
                headers,
            )
        receiving, spans = None, tracing.spans
        if spans is not None:
            receiving = spans.receive(client.kept, client.queue, headers.message_id, header.identifier, header.number)
        environ = client.kept if receiving is None else receiving.environ
        fault_to = None if one_way else commits.fault_endpoint_of(headers)
        if endpoint is not None or commits.is_sent_to(fault_to, headers, self.reach):
            environ = with_reply_endpoints(environ, endpoint, fault_to)
        arrival = Arrival(
            sender=sender,
            header=header,
            message_id=headers.message_id,
            action=headers.action,
            environ=environ,
            connection=request.connection,
            body=request.body,
            policy=policy,
            wants_reply=not one_way,
            named=not (is_only_answered_now or robust),
            empty_last=empty_last,
            last_reply=partial(commits.last_reply, headers) if empty_last else None,
            ack_requested=headers.ack_requested,
            waits=waits or robust,
        )
        return Commit(partial(accept, arrival=arrival), request, request.body.size, arrival, receiving)

    def operations(self, request: Request) -> Operations:
        return request.peer.operations or self.described(request.client.path)

    def _is_kept(self, request: Request) -> bool:
        """Whether its one-way messages are stored too that come without WS-RM."""
        return self.queue_one_way or request.peer.policy.mode is Mode.PULL

    def _is_one_way(self, request: Request) -> bool:
        headers = request.headers
        return headers.is_one_way_address or headers.is_fault or self.operations(request).is_one_way(headers)

    # finish: what it came to

    def finish(self, commit: Commit, receipt: Receipt, run: RunForRequest) -> Answer | Forward | Wait:
        """Do the rest for a request whose verb is committed. To be called where the commit is told: here it is decided
        who runs the message, and the dispatcher has its work before the sender is answered."""
        delivery = None
        if isinstance(receipt, MessageReceipt) and receipt.runs_here:
            delivery = delivery_of(commit, receipt)
        try:
            if delivery is not None and receipt.claim is not None and delivery.is_waited_for:
                run(receipt.claim, delivery)
            else:
                self.hand_over(receipt, delivery)
        except BaseException as error:  # what is committed is told so, and the watch takes up what was dropped
            self.events.tell("store.callback_failed", trouble=error)
        if receipt.other_faults or receipt.wrong_acknowledgements:
            from wsrm_mq.delivery.hearing import tell_of_wrong

            tell_of_wrong(self.events, receipt)
        if commit.receiving is not None:
            commit.receiving.end(receipt.outcome, receipt.fault.name if receipt.fault is not None else None)
        if isinstance(receipt, MessageReceipt) and receipt.fault is None and not receipt.no_room:
            return self._message_answer(commit, receipt)
        return self._other_answer(commit, receipt)

    def settled(self, commit: Commit, wait: Wait, settlement: Settlement) -> Answer:
        """The answer to a request whose message is settled: its stored reply with the current acknowledgement, or
        the acknowledgement alone."""
        headers, reply = commit.request.headers, settlement.reply
        if isinstance(headers.body, CloseSequence | TerminateSequence):
            return answers.ended(settlement.acknowledgement, headers, wait.others)
        own = settlement.acknowledgement
        acknowledgements = wait.others if own is None else (own, *wait.others)
        leaves_elsewhere = settlement.outgoing_position is not None and not headers.reply_is_fetched
        if reply is not None and reply.body and not leaves_elsewhere:
            answer = answers.replied(reply, headers, acknowledgements)
            if answer is None:
                return self._bare(reply, headers, acknowledgements)
            if settlement.outgoing_position is None or reply.header is not None:
                return answer
            return self.fetching.leaving(answer, settlement.outgoing_position)
        if settlement.outcome == "dead" and commit.arrival is not None and commit.arrival.wants_reply:
            return answers.fault(UNDELIVERED, headers, acknowledgements)
        return answers.acknowledgement(headers, acknowledgements)

    def _message_answer(self, commit: Commit, receipt: MessageReceipt) -> Answer | Wait:
        """200 with an acknowledgement that covers the message: CXF, Metro, WCF, gSOAP and zeep all take it."""
        request, arrival, position, age = commit.request, commit.arrival, receipt.position, receipt.reply_age
        assert arrival is not None
        headers = request.headers
        if receipt.has_last_reply and position is not None:
            return Wait(position, others=receipt.others)
        has_all = not arrival.waits or (receipt.settled and not arrival.wants_reply)
        own = receipt.acknowledgement
        later = EMPTY  # an acknowledgement that leaves it out would tell the source that it is lost
        if arrival.wants_reply and commit.may_answer_later and arrival.named and own is not None:
            later = answers.acknowledgement(headers, (own, *receipt.others))
        if not has_all and position is not None:  # without one it was pruned: the sender is told that it arrived
            if receipt.is_stuck:
                return later
            if age is None or not self._copies.acknowledges_alone(position, age):
                return Wait(position, later, others=receipt.others)
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
            return self._refusal(commit.request.client, receipt, headers, peer)
        if receipt.no_room:
            self._tell_no_room(receipt.no_room, peer.name)
            if peer.policy.tells_room and receipt.acknowledgement is not None:  # WCF takes a 503 for a broken line
                return answers.acknowledgement(headers, (receipt.acknowledgement, *receipt.others))
            return answers.unavailable(receipt.no_room)
        if receipt.is_answered_elsewhere:
            return answers.acknowledgement(headers, receipt.others)
        if (fetched := self.fetching.answer(receipt, headers)) is not None:
            return fetched
        if isinstance(receipt, CreateReceipt):
            return answers.created(receipt, headers)
        if isinstance(headers.body, CloseSequence | TerminateSequence):
            assert isinstance(receipt, EndReceipt)
            final = () if receipt.acknowledgement is None else (receipt.acknowledgement,)
            if receipt.terminates is not None:
                return answers.terminating(receipt.terminates, headers, (*final, *receipt.others))
            answer = answers.ended(receipt.acknowledgement, headers, receipt.others)
            if receipt.unfinished is None:
                return answer
            return Wait(receipt.unfinished, answer, bounded=False, others=receipt.others)
        if isinstance(then, Forward):
            return then._replace(acknowledgements=receipt.others)
        if then is not None:
            self._tell_refused(then, peer.name)
            return self._fault(commit.request.client, then, headers, peer.sender_fault_status, receipt.others)
        if receipt.terminates is not None:
            return answers.terminating(receipt.terminates, headers)
        wrong = (*receipt.other_faults, *receipt.wrong_acknowledgements)
        if wrong and not receipt.others:
            return self._fault(commit.request.client, wrong[0], headers, peer.sender_fault_status)
        return answers.acknowledgement(headers, receipt.others)

    def _fault(
        self,
        client: Client,
        fault: faults.Fault,
        headers: Headers,
        status: int,
        others: tuple[SequenceAcknowledgement, ...] = (),
    ) -> Answer:
        """A fault about no sequence that is known: it leaves where the request wants it, else on the response."""
        place = commits.own_fault_place(headers, self.reach)
        if place is not None:
            body = answers.fault(fault, headers, to=place).body
            if self.say(own_message(place, body, headers.soap), client.who, None):
                return answers.acknowledgement(headers, others)
        return answers.fault(fault, headers, others, sender_fault=status)

    def _refusal(self, client: Client, receipt: Receipt, headers: Headers, peer: Peer) -> Answer:
        place = commits.fault_place(receipt, headers, self.reach)
        if place is not None:
            fault = answers.refused(receipt, headers, to=place)
            about = receipt.lane or None
            if fault.status >= 400 and self.say(own_message(place, fault.body, headers.soap), client.who, about):
                return answers.acknowledgement(headers, receipt.others)
        return answers.refused(receipt, headers, peer.sender_fault_status)

    def _fault_arrived(self, arrived: SequenceFault, receipt: Receipt) -> Answer:
        """A fault is never answered with one, and the application has nothing to do with it (F-024)."""
        from wsrm_mq.delivery.hearing import tell_of_fault

        tell_of_fault(self.events, arrived, receipt)
        return EMPTY

    def _bare(
        self, reply: ServiceReply, headers: Headers, acknowledgements: tuple[SequenceAcknowledgement, ...]
    ) -> Answer:
        """The reply as it is, which can carry no acknowledgement; each second request for it gets the acknowledgement
        alone."""
        own = headers.sequence
        assert own is not None
        times = self._copies.of_bare(own.identifier, own.number)
        if times == 1:
            of = content_type_of(reply.headers)
            self.events.tell("reply.not_soap", sequence=own.identifier, number=own.number, content_type=of)
        return answers.as_it_is(reply) if times % 2 else answers.acknowledgement(headers, acknowledgements)

    def _tell_refused(self, fault: faults.Fault, partner: str | None) -> None:
        self.refused(fault.subcode or type(fault).__name__, partner, fault.reason)
        self.events.tell("request.refused", fault=fault.name, reason=fault.reason, sequence=fault.identifier)

    def _tell_no_room(self, no_room: str, partner: str | None) -> None:
        self.refused(limit_named(no_room), partner, no_room)
        self.events.tell("request.no_room", reason=no_room)


def delivery_of(commit: Commit, receipt: MessageReceipt) -> Delivery:
    """The message that was stored, for a run that need not read it again."""
    arrival = commit.arrival
    assert arrival is not None
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
        late=receipt.is_late,
        at_most_once=receipt.at_most_once,
        is_waited_for=arrival.waits,
    )
