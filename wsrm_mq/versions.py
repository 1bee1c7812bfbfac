"""The protocol versions that this package speaks, as data: namespaces, action URIs, and the features that each version
lacks.

Nothing here computes. A rule that depends on a version asks a field of the version, never its name.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

MAX_MESSAGE_NUMBER: Final = 2**63 - 1
"""The largest MessageNumber (WS-RM 1.1 §3.7; the 1.0 schema allows more, the prose does not)."""


class SOAPVersion(enum.Enum):
    """SOAP 1.1 or 1.2: the value is the envelope namespace."""

    SOAP_1_1 = "http://schemas.xmlsoap.org/soap/envelope/"
    SOAP_1_2 = "http://www.w3.org/2003/05/soap-envelope"

    label: str
    media_type: str
    namespace: str

    # Plain attributes and an identity hash: every message asks for them several times.
    def __init__(self, namespace: str) -> None:
        is_1_1 = namespace.endswith("/soap/envelope/")
        self.namespace = namespace
        self.label = "1.1" if is_1_1 else "1.2"
        self.media_type = "text/xml" if is_1_1 else "application/soap+xml"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False)
class AddressingVersion:
    """One WS-Addressing version. ``none`` is empty in 2004/08, which has no such address."""

    label: str
    namespace: str
    anonymous: str
    none: str
    fault_action: str
    """Action of the faults that WS-Addressing itself defines."""
    header_required: str
    """Local name of the fault for a missing header."""
    invalid_header: str
    soap_fault_action: str
    """Action of a SOAP fault that no specification gives one of its own."""


WSA_2004: Final = AddressingVersion(
    label="2004/08",
    namespace="http://schemas.xmlsoap.org/ws/2004/08/addressing",
    anonymous="http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous",
    none="",
    fault_action="http://schemas.xmlsoap.org/ws/2004/08/addressing/fault",
    header_required="MessageInformationHeaderRequired",
    invalid_header="InvalidMessageInformationHeader",
    soap_fault_action="http://schemas.xmlsoap.org/ws/2004/08/addressing/fault",
)

WSA_2005: Final = AddressingVersion(
    label="1.0",
    namespace="http://www.w3.org/2005/08/addressing",
    anonymous="http://www.w3.org/2005/08/addressing/anonymous",
    none="http://www.w3.org/2005/08/addressing/none",
    fault_action="http://www.w3.org/2005/08/addressing/fault",
    header_required="MessageAddressingHeaderRequired",
    invalid_header="InvalidAddressingHeader",
    soap_fault_action="http://www.w3.org/2005/08/addressing/soap/fault",
)


@dataclass(frozen=True, slots=True, eq=False)
class MakeConnectionVersion:
    """One version of WS-MakeConnection. 1.0 and 1.1 share one namespace and one wire format."""

    namespace: str
    action: str
    """The wsa:Action of MakeConnection."""
    fault_action: str
    anonymous: str
    """The beginning of an address whose messages are fetched by MakeConnection; an id of the client's own follows."""

    def is_anonymous(self, address: str) -> bool:
        """Whether messages to ``address`` are fetched by MakeConnection."""
        return address.startswith(self.anonymous) and len(address) > len(self.anonymous)


FLOW_NAMESPACE: Final = "http://schemas.microsoft.com/ws/2006/05/rm"
"""The namespace of BufferRemaining, WCF's flow control."""
MAKE_CONNECTION_NAMESPACE: Final = "http://docs.oasis-open.org/ws-rx/wsmc/200702"
MAKE_CONNECTION: Final = MakeConnectionVersion(
    namespace=MAKE_CONNECTION_NAMESPACE,
    action=f"{MAKE_CONNECTION_NAMESPACE}/MakeConnection",
    fault_action=f"{MAKE_CONNECTION_NAMESPACE}/fault",
    anonymous=f"{MAKE_CONNECTION_NAMESPACE}/anonymous?id=",
)


@dataclass(frozen=True, slots=True, eq=False)
class RMVersion:
    """One WS-ReliableMessaging version. 1.1 and 1.2 share one namespace and one wire format.

    The flags say what the version has; the state tables of ``sequence.states`` are chosen by ``label``.
    """

    label: str
    namespace: str
    addressings: tuple[AddressingVersion, ...] = field(repr=False)
    """The WS-Addressing versions that may accompany it."""
    has_close: bool
    has_incomplete_behavior: bool
    has_last_message: bool
    has_none: bool
    """An acknowledgement of nothing can be written (``None``), and a last one marked (``Final``)."""
    own_fault_action: bool
    wraps_fault_detail: bool
    """SOAP 1.1 SequenceFault puts its detail into a ``Detail`` element."""
    make_connection: MakeConnectionVersion | None = field(default=None, repr=False)
    """The WS-MakeConnection that may accompany it; 1.0 has none."""

    def action(self, local_name: str) -> str:
        """The wsa:Action of the lifecycle message ``local_name``."""
        return f"{self.namespace}/{local_name}"

    def is_fetched(self, address: str) -> bool:
        """Whether messages to ``address`` are fetched by MakeConnection."""
        return self.make_connection is not None and self.make_connection.is_anonymous(address)

    def fault_action(self, addressing: AddressingVersion) -> str:
        """The wsa:Action of an RM fault (WS-RM 1.1 §4; 1.0 uses the addressing version's default)."""
        return f"{self.namespace}/fault" if self.own_fault_action else addressing.soap_fault_action


WSRM_1_0: Final = RMVersion(
    label="1.0",
    namespace="http://schemas.xmlsoap.org/ws/2005/02/rm",
    addressings=(WSA_2004, WSA_2005),
    has_close=False,
    has_incomplete_behavior=False,
    has_last_message=True,
    has_none=False,
    own_fault_action=False,
    wraps_fault_detail=False,
)

WSRM_1_1: Final = RMVersion(
    label="1.1",
    namespace="http://docs.oasis-open.org/ws-rx/wsrm/200702",
    addressings=(WSA_2005,),
    has_close=True,
    has_incomplete_behavior=True,
    has_last_message=False,
    has_none=True,
    own_fault_action=True,
    wraps_fault_detail=True,
    make_connection=MAKE_CONNECTION,
)

UNSEQUENCED: Final = RMVersion(
    label="none",
    namespace="",
    addressings=(WSA_2004, WSA_2005),
    has_close=False,
    has_incomplete_behavior=False,
    has_last_message=False,
    has_none=False,
    own_fault_action=False,
    wraps_fault_detail=False,
)
"""No WS-ReliableMessaging: of the sequences that this side makes of a connection's messages. No message speaks it, so
no sender can name such a sequence."""

RM_VERSIONS: Final = {v.namespace: v for v in (WSRM_1_0, WSRM_1_1)}
RM_OF_NAMESPACE: Final = {**RM_VERSIONS, MAKE_CONNECTION_NAMESPACE: WSRM_1_1}
"""The version of a message by the namespaces that are in it: WS-MakeConnection goes with 1.1."""
ADDRESSING_VERSIONS: Final = {v.namespace: v for v in (WSA_2004, WSA_2005)}
SOAP_VERSIONS: Final = {v.namespace: v for v in SOAPVersion}
RM_OF_LABEL: Final = {v.label: v for v in RM_VERSIONS.values()}
SOAP_OF_LABEL: Final = {v.label: v for v in SOAPVersion}
ADDRESSING_OF_LABEL: Final = {v.label: v for v in ADDRESSING_VERSIONS.values()}
"""The versions by their labels, which the store has."""
