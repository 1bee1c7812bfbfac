"""The facts about an outline that rules and readers need: its header blocks, their versions, and those that are
repeated."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from wsrm_mq.envelope.lexical import is_true, simple_text
from wsrm_mq.envelope.outline import NAME_SEPARATOR, Outline, split_name
from wsrm_mq.envelope.text import WHITE_SPACE
from wsrm_mq.versions import (
    ADDRESSING_VERSIONS,
    RM_OF_NAMESPACE,
    RM_VERSIONS,
    SOAP_VERSIONS,
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
