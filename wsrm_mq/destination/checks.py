"""Checks of the headers of a request: its answers can leave, on its own HTTP response or to an address, and its
mandatory headers are understood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from wsrm_mq.envelope.headers import Headers
from wsrm_mq.errors import EnvelopeError, NameNotKnown, NameServerSilent, NotAllowed
from wsrm_mq.queue.arrival import Receipt
from wsrm_mq.remembered import Recent
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import CreateSequence, EndpointReference, Offer
from wsrm_mq.versions import ADDRESSING_VERSIONS, MAKE_CONNECTION_NAMESPACE, WSRM_1_0, WSRM_1_1

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
