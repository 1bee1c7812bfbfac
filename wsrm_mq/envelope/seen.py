"""The header blocks that were seen, and the rules of an RM message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from xml.etree.ElementTree import Element

from wsrm_mq.envelope.lexical import WHITE_SPACE, is_true, simple_text
from wsrm_mq.envelope.outline import NAME_SEPARATOR, Outline, split_name
from wsrm_mq.envelope.stream import Limits
from wsrm_mq.sequence.faults import (
    ActionNotSupported,
    AddressingHeaderRequired,
    CreateSequenceRefused,
    Fault,
    InvalidAddressingHeader,
    MalformedMessage,
    NotUnderstood,
)
from wsrm_mq.versions import (
    ADDRESSING_VERSIONS,
    MAKE_CONNECTION,
    RM_OF_NAMESPACE,
    RM_VERSIONS,
    SOAP_VERSIONS,
    WSA_2004,
    WSA_2005,
    AddressingVersion,
    RMVersion,
    SOAPVersion,
)

_ADDRESSING_HEADERS: Final = {
    f"{ns}{NAME_SEPARATOR}{local}": (version, local)
    for ns, version in ADDRESSING_VERSIONS.items()
    for local in ("Action", "MessageID", "To", "RelatesTo", "ReplyTo", "FaultTo", "From")
}
_RM_ACTIONS: Final = tuple((ns + "/", version) for ns, version in RM_OF_NAMESPACE.items())
_OURS: Final = frozenset((*SOAP_VERSIONS, *ADDRESSING_VERSIONS, *RM_OF_NAMESPACE))

_SOAP_1_1, _SOAP_1_2 = (f"{soap.namespace}{NAME_SEPARATOR}" for soap in SOAPVersion)
_ROLE: Final = {SOAPVersion.SOAP_1_1: f"{_SOAP_1_1}actor", SOAPVersion.SOAP_1_2: f"{_SOAP_1_2}role"}
_MUST_UNDERSTAND: Final = {
    SOAPVersion.SOAP_1_1: f"{_SOAP_1_1}mustUnderstand",
    SOAPVersion.SOAP_1_2: f"{_SOAP_1_2}mustUnderstand",
}
_OUR_ROLES: Final = frozenset(
    (
        "",
        "http://schemas.xmlsoap.org/soap/actor/next",
        "http://www.w3.org/2003/05/soap-envelope/role/next",
        "http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver",
    )
)


class Seen:
    """The header blocks for this role, by their names. Nothing is judged here.

    ``addressings`` and ``rms`` are the versions met, each once, in order: a valid message has at most one of each.
    ``addressing_blocks`` holds the first block of each local name, in any version, and of RelatesTo the first that
    means a reply; ``repeated`` names the others. ``mandatory`` are blocks with mustUnderstand outside the namespaces of
    SOAP, WS-Addressing and WS-RM, by (namespace, local name); ``unknown`` are blocks within SOAP's and WS-Addressing's
    that no specification defines as a header of a request.
    """

    __slots__ = (
        "action",
        "addressing_blocks",
        "addressings",
        "body_name",
        "mandatory",
        "outline",
        "repeated",
        "rm_blocks",
        "rms",
        "soap",
        "unknown",
    )

    def __init__(self, outline: Outline, soap: SOAPVersion) -> None:
        self.outline = outline
        self.soap = soap
        self.addressings: list[AddressingVersion] = []
        self.addressing_blocks: dict[str, Element] = {}
        self.repeated: list[str] = []
        self.rms: list[RMVersion] = []
        self.rm_blocks: dict[str, list[Element]] = {}
        self.mandatory: list[tuple[str, str]] = []
        self.unknown: list[tuple[str, str]] = []
        role = _ROLE[soap]
        for block in outline.blocks:
            if block.get(role, "").strip(WHITE_SPACE) in _OUR_ROLES:
                addressing = _ADDRESSING_HEADERS.get(block.tag)
                if addressing is not None:
                    self._see_addressing(block, *addressing)
                else:
                    self._see(block)
        self.action = self.text("Action")
        for prefix, version in _RM_ACTIONS:
            if self.action is not None and self.action.startswith(prefix):
                self._meet(version)
        self.body_name: tuple[str, str] | None = None
        if outline.body is not None and len(outline.body):
            self.body_name = name = split_name(outline.body[0].tag)
            if name[0] in RM_OF_NAMESPACE:
                self._meet(RM_OF_NAMESPACE[name[0]])

    def text(self, local: str) -> str | None:
        """The value of a simple addressing header; ``None`` if it is missing or empty."""
        block = self.addressing_blocks.get(local)
        return simple_text(block) or None if block is not None else None

    def is_mandatory(self, block: Element) -> bool:
        return is_true(block.get(_MUST_UNDERSTAND[self.soap]))

    def _see_addressing(self, block: Element, version: AddressingVersion, local: str) -> None:
        if version not in self.addressings:
            self.addressings.append(version)
        if local not in self.addressing_blocks:
            if local != "RelatesTo" or _is_reply(block):
                self.addressing_blocks[local] = block
        elif local != "RelatesTo":
            self.repeated.append(local)

    def _see(self, block: Element) -> None:
        namespace, local = name = split_name(block.tag)
        version = RM_VERSIONS.get(namespace)
        if version is not None:
            self._meet(version)
            self.rm_blocks.setdefault(local, []).append(block)
        elif self.is_mandatory(block):
            (self.unknown if namespace in _OURS else self.mandatory).append(name)

    def _meet(self, version: RMVersion) -> None:
        if version not in self.rms:
            self.rms.append(version)


def _is_reply(block: Element) -> bool:
    """RelatesTo says so unless told otherwise, by a URI in WS-Addressing 1.0 and a QName in 2004/08."""
    return block.get("RelationshipType", "reply").strip(WHITE_SPACE).lower().endswith("reply")


# The rules of an RM message that need more than one header, in the order in which they apply (conformance §6).
#
# Each rule is a function of the seen headers, the action that HTTP names and the limits; it answers the fault, or
# ``None``.

_TO_REQUIRED: Final = (WSA_2004,)
_REPLY_TO_REQUIRED: Final = (WSA_2004,)
_HTTP_ACTION_BINDS: Final = (WSA_2005,)

_OF_A_CREATE: Final = frozenset(("UsesSequenceSTR", "UsesSequenceSSL"))
"""Headers that bind a sequence to a token or a TLS session where it is created, and are ignored elsewhere. A
CreateSequence with one is refused."""
_HEADER_BLOCKS: Final = frozenset(("Sequence", "AckRequested", "SequenceAcknowledgement", "SequenceFault"))
_NOTHING: Final = ("", "")
_FAULT: Final = ("", "Fault")
"""In the namespace of the envelope."""


def _bodies(rm: RMVersion) -> dict[str, tuple[str, str]]:
    """The element that Body has to hold under each RM action, as (namespace, local name)."""
    elements = ["CreateSequence", "CreateSequenceResponse", "TerminateSequence"]
    if rm.has_close:
        elements += ["CloseSequence", "CloseSequenceResponse", "TerminateSequenceResponse"]
    bodies = {local: (rm.namespace, local) for local in elements}
    bodies |= {"SequenceAcknowledgement": _NOTHING, "AckRequested": _NOTHING}
    if rm.has_last_message:
        bodies["LastMessage"] = _NOTHING
    if rm.own_fault_action:
        bodies["fault"] = _FAULT
    return {rm.action(local): body for local, body in bodies.items()}


_BODIES: Final = {action: body for rm in RM_VERSIONS.values() for action, body in _bodies(rm).items()} | {
    MAKE_CONNECTION.action: (MAKE_CONNECTION.namespace, "MakeConnection"),
    MAKE_CONNECTION.fault_action: _FAULT,
}
_CREATE: Final = frozenset(rm.action("CreateSequence") for rm in RM_VERSIONS.values())
_ASKS_FOR_RESPONSE: Final = _CREATE | {
    rm.action(local) for rm in RM_VERSIONS.values() if rm.has_close for local in ("CloseSequence", "TerminateSequence")
}


def _versions_go_together(seen: Seen, _http_action: str | None, _limits: Limits) -> Fault | None:
    if len(seen.rms) > 1:
        return MalformedMessage(
            "The message mixes the namespaces of WS-ReliableMessaging 1.0 and 1.1 (WS-MakeConnection goes with 1.1)."
        )
    if len(seen.addressings) > 1:
        return InvalidAddressingHeader(
            "The message mixes WS-Addressing 2004/08 and 1.0.", header="Action", detail_code="InvalidCardinality"
        )
    rm = seen.rms[0]
    for addressing in seen.addressings:
        if addressing not in rm.addressings:
            allowed = " or ".join(version.label for version in rm.addressings)
            return MalformedMessage(
                f"WS-ReliableMessaging {rm.label} needs WS-Addressing {allowed}; this message uses {addressing.label}."
            )
    return None


def _addressing_is_complete(seen: Seen, _http_action: str | None, limits: Limits) -> Fault | None:
    for header in seen.repeated:
        return InvalidAddressingHeader(
            f"The message has more than one {header} header.", header=header, detail_code="InvalidCardinality"
        )
    blocks, addressings = seen.addressing_blocks, seen.addressings
    missing = None
    if seen.action is None:
        missing = "Action"
    elif addressings[0] in _TO_REQUIRED and not seen.text("To"):
        missing = "To"
    elif limits.strict_addressing:
        if seen.action in _ASKS_FOR_RESPONSE and not seen.text("MessageID"):
            missing = "MessageID"
        elif seen.action in _CREATE and addressings[0] in _REPLY_TO_REQUIRED and "ReplyTo" not in blocks:
            missing = "ReplyTo"
    if missing is None:
        return None
    return AddressingHeaderRequired(f"The addressing header {missing} is missing.", header=missing)


def _http_action_agrees(seen: Seen, http_action: str | None, _limits: Limits) -> Fault | None:
    """An empty one says nothing; whether it is quoted does not matter."""
    if http_action and seen.addressings[0] in _HTTP_ACTION_BINDS:
        http_action = http_action.strip(' \t"')
        if http_action and http_action != seen.action:
            reason = "The action of the HTTP request differs from wsa:Action."
            return InvalidAddressingHeader(reason, header="Action", detail_code="ActionMismatch")
    return None


def _blocks_belong_into_header(seen: Seen, _http_action: str | None, _limits: Limits) -> Fault | None:
    """An RM element of Body does nothing as a header; an unknown block counts if it is mandatory."""
    blocks, rm = seen.rm_blocks, seen.rms[0]
    if seen.unknown:
        return NotUnderstood("A mandatory header block was not understood.", headers=tuple(seen.unknown))
    if len(blocks.get("Sequence", ())) > 1:
        return MalformedMessage("The message has more than one Sequence header.")
    known = _HEADER_BLOCKS | _OF_A_CREATE if seen.action in _CREATE else _HEADER_BLOCKS
    for local in blocks.keys() - known:
        if _BODIES.get(rm.action(local)) == (rm.namespace, local):
            return MalformedMessage(f"{local} belongs into the Body.")
        if any(map(seen.is_mandatory, blocks[local])):
            name = rm.namespace, local
            return NotUnderstood("A mandatory header block was not understood.", headers=(name,))
    return None


def _body_fits_action(seen: Seen, _http_action: str | None, _limits: Limits) -> Fault | None:
    action, body, rm = seen.action or "", seen.body_name, seen.rms[0]
    expected = _BODIES.get(action)
    if expected is None:
        for specification, namespace in _specifications(rm):
            if action.startswith(f"{namespace}/"):
                return ActionNotSupported(f"{specification} has no such action.")
            if body is not None and body[0] == namespace:
                return ActionNotSupported(f"The Body holds {body[1]}, but wsa:Action is not that of {body[1]}.")
        return None
    namespace, local = expected
    if body == ((namespace or seen.soap.namespace, local) if local else None):
        return None
    reason = f"The Body does not hold what wsa:Action says: {local or 'nothing'}."
    return CreateSequenceRefused(reason) if action in _CREATE else MalformedMessage(reason)


def _specifications(rm: RMVersion) -> tuple[tuple[str, str], ...]:
    """Name and namespace of each that a message of this version may speak."""
    own = (f"WS-ReliableMessaging {rm.label}", rm.namespace)
    return (own,) if rm.make_connection is None else (own, ("WS-MakeConnection", rm.make_connection.namespace))


_RULES: Final[tuple[Callable[[Seen, str | None, Limits], Fault | None], ...]] = (
    _versions_go_together,
    _addressing_is_complete,
    _http_action_agrees,
    _blocks_belong_into_header,
    _body_fits_action,
)


def first_fault(seen: Seen, http_action: str | None, limits: Limits) -> Fault | None:
    """The fault of the first rule that an RM message breaks. ``http_action`` is as it was sent."""
    for rule in _RULES:
        fault = rule(seen, http_action, limits)
        if fault is not None:
            return fault
    return None
