"""The verbs that are committed for a request, made of its headers; and the checks before: its answers can leave, on its
own HTTP response or to an address, and its mandatory headers are understood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from wsrm_mq.delivery.outgoing_messages import own_message, with_end_of_outbound
from wsrm_mq.destination import answers
from wsrm_mq.destination.answers import EMPTY, Answer
from wsrm_mq.destination.exchange import Commit, Forward, Request
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.render import last_message
from wsrm_mq.errors import EnvelopeError, NameNotKnown, NameServerSilent, NotAllowed
from wsrm_mq.queue.arrival import Arrival, CreateReceipt, FetchReceipt, Receipt, Sender
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.lifecycle import lifecycle
from wsrm_mq.queue.outbound import acknowledged_with
from wsrm_mq.queue.sending import OutgoingMessage, send
from wsrm_mq.remembered import Recent
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import (
    CloseSequence,
    CreateSequence,
    EndpointReference,
    IncompleteSequenceBehavior,
    MakeConnection,
    Offer,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.store.records import About, SequenceRecord
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import (
    ADDRESSING_VERSIONS,
    MAKE_CONNECTION_NAMESPACE,
    UNSEQUENCED,
    WSA_2005,
    WSRM_1_0,
    WSRM_1_1,
    RMVersion,
)

if TYPE_CHECKING:
    from wsrm_mq.outbound.addresses import Allowed
    from wsrm_mq.outbound.names import Names

# The endpoints that this side sends to: those that a list of the operator's allows, and none where there is no list.
#
# They are judged before anything is stored, and the addresses that they resolve to are judged again when something is
# sent (``outbound``). Nothing here waits for a name server: a name that has to be looked up first is raised, and the
# front knows how to wait. The refusal that the sender gets does not say the addresses of a name.

OPTION: Final = "decoupled"
_SCHEMES: Final = ("http", "https")
_SYMBOLS: Final = (MAKE_CONNECTION_NAMESPACE, *ADDRESSING_VERSIONS)
"""The beginnings of addresses that stand for something (anonymous, none, to be fetched) and have the form of a host's:
a message that names one of another version means no web server of W3C or OASIS."""
_LONGEST: Final = 2_048
"""Characters: it is shown to operators, and stands in the log with each attempt."""
_JUDGED: Final = 1_024
"""Addresses that are known to be allowed: they are judged again when something is sent there."""


class Reach:
    """Judges endpoints by ``listed``, the value of the option ``decoupled``."""

    def __init__(self, listed: Sequence[str] = ()) -> None:
        self._allowed: Allowed | None = None
        self.names: Names
        """The names that were looked up; only where something is ``listed``."""
        if listed:
            from wsrm_mq.outbound.addresses import Allowed
            from wsrm_mq.outbound.names import Names

            self._allowed, self.names = Allowed.listed(OPTION, listed), Names()
        self._judged: Recent[str, bool] = Recent(_JUDGED)

    def refusal(self, endpoint: EndpointReference | None, header: str, headers: Headers) -> str:
        """The reason why nothing is sent to the endpoint in ``header``; empty: something may be, or nothing has to be.
        Raises ``NameNotKnown`` and ``NameServerSilent``."""
        addressing, rm = headers.addressing, headers.rm or WSRM_1_1
        assert addressing is not None
        if endpoint is None or endpoint.address == addressing.anonymous or rm.is_fetched(endpoint.address):
            return ""
        if len(endpoint.address) > _LONGEST:
            return f"{header} is no address that can be sent to: it has more than {_LONGEST} characters."
        scheme, host = _place(endpoint.address)
        is_address = scheme in _SCHEMES and bool(host) and endpoint.address != addressing.none
        if not is_address:
            return f"{header} is no address that can be sent to: it has to begin with http:// or https://."
        if endpoint.address.startswith(_SYMBOLS):
            return f"{header} is {endpoint.address}, which stands for no place in the versions of this message."
        if self._may_be_sent_to(endpoint.address):
            return ""
        return (
            f"{header} has to be the anonymous address {addressing.anonymous}: nothing is sent to "
            f'{scheme}://{host} from here. An operator can allow it: {OPTION} = ["{scheme}://{host}"].'
        )

    def _may_be_sent_to(self, url: str) -> bool:
        if self._allowed is None:
            return False
        if self._judged.get(url):
            return True
        from wsrm_mq.outbound.addresses import check_url

        try:
            check_url(url, self._allowed, self.names.known)
        except NotAllowed:
            return False
        if len(url) < 1_024:
            self._judged.keep(url, True)
        return True


def _place(address: str) -> tuple[str, str]:
    """Scheme and host; both empty where it is no URL."""
    try:
        parts = urlsplit(address)
    except ValueError:  # http://[::1
        return "", ""
    return parts.scheme, parts.netloc


_WITHOUT_EFFECT: Final = frozenset(
    (
        WSRM_1_0.action("LastMessage"),
        WSRM_1_1.action("CloseSequenceResponse"),
        WSRM_1_1.action("TerminateSequenceResponse"),
    )
)


def check_reply_to(headers: Headers, reach: Reach) -> None:
    """Check ReplyTo and FaultTo of a request that is answered: it is on its response, or at an address that is sent to.
    Raises ``EnvelopeError``."""
    if headers.is_one_way_address:
        return
    assert headers.addressing is not None
    for header, endpoint in (("ReplyTo", headers.reply_to), ("FaultTo", headers.fault_to)):
        is_used = header == "ReplyTo" or reply_endpoint_of(headers) is not None
        reason = reach.refusal(endpoint, header, headers) if is_used else ""
        if reason:
            fault = faults.InvalidAddressingHeader(reason, header=header, detail_code="OnlyAnonymousAddressSupported")
            raise EnvelopeError(fault, headers)


def reply_endpoint_of(headers: Headers) -> EndpointReference | None:
    """Where the answer is sent; ``None``: it leaves on the response, or there is none."""
    return None if headers.reply_anonymous or headers.is_one_way_address else headers.reply_to


def fault_endpoint_of(headers: Headers) -> EndpointReference | None:
    """FaultTo, where that is an address of its own; a fault that may be fetched is not sent."""
    addressing, fault_to = headers.addressing, headers.fault_to
    if fault_to is None or addressing is None or fault_to.address in (addressing.anonymous, addressing.none):
        return None
    is_of_a_kind = not headers.reply_is_fetched or (headers.rm is not None and headers.rm.is_fetched(fault_to.address))
    return fault_to if is_of_a_kind else None


def fault_place(receipt: Receipt, headers: Headers, reach: Reach) -> EndpointReference | None:
    """Where the fault that a receipt has is sent: to AcksTo where it is about a sequence that is known (F-022), else to
    FaultTo or ReplyTo (F-023); ``None``: it leaves on the response."""
    if receipt.faults_to is not None or headers.is_fault:
        return receipt.faults_to
    return own_fault_place(headers, reach)


def own_fault_place(headers: Headers, reach: Reach) -> EndpointReference | None:
    """Where the request itself wants a fault: its FaultTo, else its ReplyTo; ``None``: it leaves on the response, also
    where nothing is sent there, and where that is not known yet: no fault waits for a name server."""
    if headers.is_fault or headers.addressing is None:
        return None
    place = fault_endpoint_of(headers) or reply_endpoint_of(headers)
    try:
        return place if is_sent_to(place, headers, reach) else None
    except (NameNotKnown, NameServerSilent):
        return None


def is_sent_to(endpoint: EndpointReference | None, headers: Headers, reach: Reach) -> bool:
    """Whether it is an address of its own that something may be sent to."""
    if endpoint is None or (headers.rm or WSRM_1_1).is_fetched(endpoint.address):
        return False
    return not reach.refusal(endpoint, "FaultTo", headers)


def is_without_effect(headers: Headers) -> bool:
    """Whether a message asks for nothing: CXF ends a 1.0 sequence by a LastMessage that names none, and a source that
    was told of the end of its sequence may answer in a request of its own."""
    return headers.sequence is None and headers.action in _WITHOUT_EFFECT


def check_understood(headers: Headers, understood: frozenset[str] | None) -> None:
    """``understood``: the namespaces of header blocks that the application understands; ``None``: all."""
    unknown = tuple(name for name in headers.must_understand if understood is not None and name[0] not in understood)
    if unknown:
        raise EnvelopeError(
            faults.NotUnderstood("A mandatory header block is not understood here.", headers=unknown), headers
        )


def check_create(element: CreateSequence, headers: Headers, reach: Reach) -> None:
    """Raises ``EnvelopeError`` with CreateSequenceRefused for a CreateSequence that this side cannot keep (WS-RM 1.1
    §4.6)."""
    reason = _why_refused(element, headers, reach)
    if reason:
        raise EnvelopeError(faults.CreateSequenceRefused(reason), headers)


def _why_refused(element: CreateSequence, headers: Headers, reach: Reach) -> str:
    assert headers.addressing is not None
    if element.uses_security:
        return f"{element.uses_security} is not offered here: no sequence is bound to a token or a TLS session."
    if element.acks_to is None:
        return "AcksTo is missing."
    endpoints = (("AcksTo", element.acks_to), ("ReplyTo", headers.reply_to), ("FaultTo", headers.fault_to))
    reasons = (reach.refusal(endpoint, header, headers) for header, endpoint in endpoints)
    return next(filter(None, reasons), "")


def usable_offer(element: CreateSequence, headers: Headers, reach: Reach) -> Offer | None:
    """The offer, if replies can go out in its sequence, to a source that names an endpoint for it. In 1.0 an offer
    names none: messages about its sequence go to the address for acknowledgements."""
    addressing, rm, offer = headers.addressing, headers.rm, element.offer
    if offer is None or addressing is None or rm is None:
        return None
    has_place = not rm.has_incomplete_behavior or _is_place(element, headers, reach)
    is_reached = headers.to not in (None, "", addressing.anonymous, addressing.none)
    if not (has_place and is_reached):
        return None
    return offer if rm.has_incomplete_behavior else replace(offer, endpoint=element.acks_to)


def _is_place(element: CreateSequence, headers: Headers, reach: Reach) -> bool:
    """Whether the offer's endpoint is one: the responses, where all there is leaves on them (D-CRE-017), or an address
    that is sent to."""
    assert headers.addressing is not None
    anonymous = headers.addressing.anonymous
    if element.offer is None or element.offer.endpoint is None or element.acks_to is None:
        return False
    place, acks_to = element.offer.endpoint, element.acks_to
    if place.address == anonymous:
        return acks_to.address == anonymous and headers.reply_anonymous and not headers.reply_is_fetched
    return not reach.refusal(place, "Endpoint", headers)


# The verbs.


# Answers that do not leave on the response to their request: they are stored with the change that they tell of, and
# sent.


def _created_there(
    tx: Transaction, verb: Callable[[Transaction], CreateReceipt], headers: Headers, to: EndpointReference
) -> CreateReceipt:
    """Create a sequence, and have the response sent (D-CRE-006)."""
    receipt = verb(tx)
    record = None if receipt.created is None else tx.sequence_named(receipt.created.terms.identifier)
    if record is not None:
        body = answers.created(receipt, headers, to).body
        receipt.sends += send(tx, record, own_message(to, body, headers.soap)).claims
        receipt.is_answered_elsewhere = True
    return receipt


def ended_there(
    tx: Transaction,
    verb: Callable[[Transaction], Receipt],
    element: CloseSequence | TerminateSequence,
    headers: Headers,
    to: EndpointReference,
) -> Receipt:
    """Close or terminate a sequence, and have the response sent (H-018). Its acknowledgement is put in when it leaves,
    where acknowledgements go there too."""
    receipt = verb(tx)
    if receipt.fault is not None or receipt.no_room:
        return receipt
    about: About | None = tx.sequence_named(element.identifier)
    if about is None and (outbound := tx.outbound_named(element.identifier)) is not None:
        about = outbound.about
    if about is not None:
        final = None if isinstance(about, SequenceRecord) and about.acks_to == to else receipt.acknowledgement
        body = answers.ended(final, headers, to=to).body
        receipt.sends += send(tx, about, own_message(to, body, headers.soap)).claims
        receipt.is_answered_elsewhere = True
    return receipt


_UNNUMBERED: Final = SequenceHeader("", 0)
"""Stands in an ``Arrival`` until the transaction has given it its place."""


def sender_of(request: Request, rm: RMVersion) -> Sender:
    return Sender(
        queue=request.client.queue,
        rm=rm,
        soap=request.headers.soap,
        addressing=request.headers.addressing or WSA_2005,
        principal=request.principal,
        peer=request.client.address,
        partner=request.peer.name,
    )


def asking(
    request: Request,
    sender: Sender,
    element: CloseSequence | TerminateSequence | None = None,
    then: Forward | faults.Fault | None = None,
) -> Commit:
    """Make the commit that answers ``element`` and the AckRequested headers. ``then`` is the rest to do with an
    application's message that carries them."""
    asked = request.headers.ack_requested
    verb = partial(lifecycle, sender=sender, element=element, policy=request.peer.policy, ack_requested=asked)
    return Commit(verb, request, then=then)


def creating(request: Request, sender: Sender, element: CreateSequence, reach: Reach, *, has_replies: bool) -> Commit:
    """Make the commit that creates a sequence. ``has_replies``: operations of the service may answer. Raises
    ``EnvelopeError`` for a request that this side cannot keep."""
    headers, policy, is_cxf = request.headers, request.peer.policy, request.stack == "cxf"
    check_create(element, headers, reach)
    is_held_as_a_whole = policy.behavior is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE  # then nothing replies
    offer = usable_offer(element, headers, reach) if has_replies and not is_held_as_a_whole else None
    if offer is not None and is_cxf and sender.rm.has_close:
        offer = replace(offer, endpoint=None)  # CXF fails over the end there, and takes it on a response
    verb = partial(
        create,
        sender=sender,
        request=replace(element, offer=offer),
        message_id=headers.message_id,
        policy=policy,
        ack_requested=headers.ack_requested,
        acks_with_reply=is_cxf,  # it sends no more once any response has acknowledged, though the reply was lost
    )
    to = reply_endpoint_of(headers)
    return Commit(verb if to is None else partial(_created_there, verb=verb, headers=headers, to=to), request)


def acknowledging(commit: Commit) -> Commit:
    """Add to a commit the acknowledgements of the request, and the changes of an offered sequence that follow from
    them."""
    headers = commit.request.headers
    assert headers.rm is not None
    is_alone = headers.action == headers.rm.action("SequenceAcknowledgement") and not headers.ack_requested
    verb = partial(
        acknowledged_with,
        verb=commit.verb,
        sender=sender_of(commit.request, headers.rm),
        acknowledgements=headers.acknowledgements,
        is_alone=is_alone,
    )
    return commit._replace(verb=partial(with_end_of_outbound, verb=verb))


def last_reply(headers: Headers, to: EndpointReference | None) -> OutgoingMessage:
    """The message that answers a LastMessage without a body, should it be the offered sequence's last message too.
    ``None``: on the response."""
    assert headers.rm is not None
    assert headers.addressing is not None
    body = last_message(headers.soap, headers.addressing, headers.rm, headers.message_id, to)
    content_type = f"{headers.soap.media_type}; charset=utf-8"
    if to is None:
        return OutgoingMessage(EndpointReference(headers.addressing.anonymous), "", "", content_type, body)
    return own_message(to, body, headers.soap)


def unsequenced(request: Request) -> Commit:
    """Make the commit that stores a one-way message without WS-RM, in its place among those of its connection."""
    from wsrm_mq.queue.unsequenced import accept_unsequenced  # which is configured where it is wanted

    client, headers = request.client, request.headers
    arrival = Arrival(
        sender=sender_of(request, UNSEQUENCED),
        header=_UNNUMBERED,
        message_id=headers.message_id,
        action=headers.action,
        environ=client.kept,
        connection=request.connection,
        body=request.body,
        policy=request.peer.policy,
        ack_requested=headers.ack_requested,
    )
    speaker = sender_of(request, headers.rm) if headers.ack_requested and headers.rm is not None else None
    return Commit(
        partial(accept_unsequenced, arrival=arrival, asking=speaker), request, request.body.size, arrival=arrival
    )


# MakeConnection: the messages that it may ask for, its answer, and the time when a message need not be asked for
# again.


class Fetching:
    """Answers a MakeConnection with a message that waits for its address. ``is_waiting(sender, address)`` looks
    whether one does, and ``left(position)`` writes down that the message at this position has left."""

    def __init__(self, is_waiting: Callable[[Sender, str], bool], left: Callable[[int], object]) -> None:
        self._is_waiting = is_waiting
        self._left = left

    def begin(self, request: Request, sender: Sender, element: MakeConnection) -> Answer | Commit:
        """Begin to answer a MakeConnection. Where nothing waits the answer is empty, whether the address is known or
        not (SEC-029)."""
        headers = request.headers
        check_selection(element, headers)
        address = element.address or ""
        if sender.rm.is_fetched(address) and self._is_waiting(sender, address):
            from wsrm_mq.queue.polling import fetch

            policy, asked = request.peer.policy, headers.ack_requested
            verb = partial(fetch, sender=sender, address=address, policy=policy, ack_requested=asked)
            return Commit(verb, request)
        return asking(request, sender) if headers.ack_requested or headers.acknowledgements else EMPTY

    def answer(self, receipt: Receipt, headers: Headers) -> Answer | None:
        """The message that waited, or the acknowledgements alone; ``None``: neither was fetched."""
        if not (isinstance(receipt, FetchReceipt) and (receipt.fetched or receipt.others)):
            return None
        found, element = receipt.fetched, headers.body
        assert isinstance(element, MakeConnection)
        if found is None:
            return answers.acknowledgement(headers, receipt.others, EndpointReference(element.address or ""))
        answer = answers.fetched(found, receipt.others)
        return answer if found.place is not None else self.leaving(answer, found.position)

    def leaving(self, answer: Answer, position: int) -> Answer:
        """``answer`` carries the message at ``position``, which is not numbered: gone is gone."""
        return answer._replace(left=partial(self._left, position))


def check_selection(element: MakeConnection, headers: Headers) -> None:
    """Raises ``EnvelopeError`` for anything but an Address, which alone the Reliable Secure Profile knows (MC-004,
    MC-005, RSP-006, RSP-007)."""
    if element.unsupported:
        named = ", ".join(local for _namespace, local in element.unsupported)
        reason = f"Messages are selected by Address only; this MakeConnection has {named}."
        raise EnvelopeError(faults.UnsupportedSelection(reason, elements=element.unsupported), headers)
    if element.address is None:
        raise EnvelopeError(faults.MissingSelection("MakeConnection has no Address to select messages by."), headers)
