"""The facts about an outline that rules and readers ask for: which block is there, of which version, how
often."""

from __future__ import annotations

from typing import Final

from wsrm_mq.envelope.lexical import is_true
from wsrm_mq.envelope.outline import NAME_SEPARATOR, Node, Outline
from wsrm_mq.envelope.text import WHITE_SPACE
from wsrm_mq.versions import (
    ADDRESSING_VERSIONS,
    MAKE_CONNECTION_NAMESPACE,
    RM_VERSIONS,
    SOAP_VERSIONS,
    AddressingVersion,
    RMVersion,
    SOAPVersion,
)

__all__ = ["Seen", "split_name"]

_ADDRESSING_HEADERS: Final = {
    f"{ns}{NAME_SEPARATOR}{local}": (version, local)
    for ns, version in ADDRESSING_VERSIONS.items()
    for local in ("Action", "MessageID", "To", "RelatesTo", "ReplyTo", "FaultTo", "From")
}
_RM_NAMES: Final = tuple((ns + NAME_SEPARATOR, version) for ns, version in RM_VERSIONS.items())
_RM_ACTIONS: Final = tuple((ns + "/", version) for ns, version in RM_VERSIONS.items())
_OURS: Final = frozenset((*SOAP_VERSIONS, *ADDRESSING_VERSIONS, *RM_VERSIONS, MAKE_CONNECTION_NAMESPACE))

_SOAP_1_2: Final = SOAPVersion.SOAP_1_2.namespace
_ROLES: Final = {
    SOAPVersion.SOAP_1_1: ("actor", frozenset(("", "http://schemas.xmlsoap.org/soap/actor/next"))),
    SOAPVersion.SOAP_1_2: (
        "role",
        frozenset(("", f"{_SOAP_1_2}/role/next", f"{_SOAP_1_2}/role/ultimateReceiver")),
    ),
}
"""The attribute that names the role of a block, and the roles that are this one."""
_REPLY: Final = "reply"


def split_name(name: str) -> tuple[str, str]:
    """(namespace, local name) of an expanded name."""
    namespace, _, local = name.rpartition(NAME_SEPARATOR)
    return namespace, local


class Seen:
    """Header blocks for this role by what they are. Nothing is judged here.

    ``addressings`` and ``rms`` are the versions met, each once, in order; a valid message has at most one of
    each.
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
    )

    def __init__(self, outline: Outline, soap: SOAPVersion) -> None:
        self.outline = outline
        self.soap = soap
        self.addressings: list[AddressingVersion] = []
        self.addressing_blocks: dict[str, Node] = {}
        """The first block of each local name, in whatever version; of RelatesTo, the first that means a
        reply."""
        self.repeated: list[str] = []
        self.rms: list[RMVersion] = []
        self.rm_blocks: dict[str, list[Node]] = {}
        self.mandatory: list[tuple[str, str]] = []
        """Blocks with mustUnderstand in namespaces that are not ours."""
        self._sort_blocks()
        self.action = self.text("Action")
        self.body_name: tuple[str, str] | None = None
        if outline.body is not None:
            self.body_name = split_name(outline.body.name)
            self._meet(RM_VERSIONS.get(self.body_name[0]))
        if self.action:
            for prefix, version in _RM_ACTIONS:
                if self.action.startswith(prefix):
                    self._meet(version)

    def text(self, local: str) -> str | None:
        """The value of a simple addressing header; ``None`` if it is missing or empty."""
        block = self.addressing_blocks.get(local)
        return block.text.strip(WHITE_SPACE) or None if block is not None else None

    def is_mandatory(self, block: Node) -> bool:
        return is_true(block.attributes.get(f"{self.soap.namespace}{NAME_SEPARATOR}mustUnderstand"))

    def _sort_blocks(self) -> None:
        attribute, roles = _ROLES[self.soap]
        role = f"{self.soap.namespace}{NAME_SEPARATOR}{attribute}"
        blocks = self.addressing_blocks
        for block in self.outline.blocks:
            if block.attributes and block.attributes.get(role, "").strip(WHITE_SPACE) not in roles:
                continue
            addressing = _ADDRESSING_HEADERS.get(block.name)
            if addressing is not None:
                version, local = addressing
                if version not in self.addressings:
                    self.addressings.append(version)
                if local == "RelatesTo":
                    if _is_reply(block):
                        blocks.setdefault(local, block)
                elif local in blocks:
                    self.repeated.append(local)
                else:
                    blocks[local] = block
                continue
            for prefix, rm in _RM_NAMES:
                if block.name.startswith(prefix):
                    self._meet(rm)
                    self.rm_blocks.setdefault(block.name[len(prefix) :], []).append(block)
                    break
            else:
                if block.attributes and self.is_mandatory(block):
                    name = split_name(block.name)
                    if name[0] not in _OURS:
                        self.mandatory.append(name)

    def _meet(self, version: RMVersion | None) -> None:
        if version is not None and version not in self.rms:
            self.rms.append(version)


def _is_reply(block: Node) -> bool:
    return block.attributes.get("RelationshipType", _REPLY).strip(WHITE_SPACE).lower().endswith(_REPLY)
