"""The reading of a fault that arrives: its code and the identifier of its sequence are found in any of the places where
stacks put them (F-019).

It is a second pass over the envelope, which a request that is no fault does not pay for.
"""

from __future__ import annotations

from typing import Final
from xml.parsers import expat

from wsrm_mq.envelope.lexical import WHITE_SPACE, parse_identifier
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.outline import NAME_SEPARATOR, Outline, expat_encoding, split_name
from wsrm_mq.envelope.seen import Seen
from wsrm_mq.envelope.stream import Source, pieces
from wsrm_mq.sequence.elements import SequenceFault
from wsrm_mq.versions import RM_OF_NAMESPACE, RM_VERSIONS, WSRM_1_1, RMVersion

# A pass over a fault: the path of open elements, and the text of the innermost one.


class FaultPass:
    """``path`` has the expanded names of the elements that are open, ``started`` and ``ended`` are called while the one
    they are about is its last."""

    def __init__(self, parser: expat.XMLParserType) -> None:
        self.path: list[str] = []
        self._scope: list[tuple[str, str]] = []
        self._text: list[str] = []
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        parser.StartNamespaceDeclHandler = lambda prefix, uri: self._scope.append((prefix or "", uri or ""))
        parser.EndNamespaceDeclHandler = lambda _: self._scope.pop()

    def started(self) -> None:
        """Take the beginning of an element."""

    def ended(self) -> None:
        """Take the end of an element."""

    @property
    def local_path(self) -> list[str]:
        return [split_name(name)[1] for name in self.path]

    @property
    def said(self) -> str:
        """The text of the element that ends, behind its last child."""
        return "".join(self._text).strip(WHITE_SPACE)

    @property
    def said_name(self) -> tuple[str | None, str, str]:
        """(namespace, prefix, local name) of the qualified name that it says; the namespace is ``None`` where the
        prefix is not declared."""
        prefix, _, local = self.said.rpartition(":")
        return dict(self._scope).get(prefix), prefix, local

    def _start(self, name: str, _attributes: dict[str, str]) -> None:
        self.path.append(name)
        self._text.clear()
        self.started()

    def _end(self, _name: str) -> None:
        self.ended()
        self.path.pop()


_CODE_PLACES: Final = frozenset((("SequenceFault", "FaultCode"), ("Fault", "faultcode"), ("Subcode", "Value")))
"""(parent, element), by local name."""
_SPELLINGS: Final = {"WsrmRequired": "WSRMRequired"}
"""The codes that WCF spells in its own way (F-020)."""
_FAULTS: Final = frozenset(("SequenceFault", "Fault"))


def read_fault(
    source: Source, outline: Outline, seen: Seen, charset: str | None, limits: Limits
) -> tuple[RMVersion, SequenceFault] | None:
    """The fault of WS-RM or WS-MakeConnection in an envelope whose ``outline`` was read from ``source``; ``None`` for
    any other fault, which is the application's."""
    if isinstance(source, bytes | bytearray | memoryview):
        envelope = bytes(source[: limits.header_bytes])
    else:
        head = b"".join(outline.read)
        envelope = head + b"".join(pieces(source, limits.header_bytes - len(head)))
    found = _ArrivedFault(envelope, charset)
    if found.code is not None:
        namespace, local = found.code
        return RM_OF_NAMESPACE[namespace], SequenceFault(local, _usable(found.identifier, limits))
    is_action_ours = any(seen.action == f"{namespace}/fault" for namespace in RM_OF_NAMESPACE)
    is_ours = "SequenceFault" in seen.rm_blocks or is_action_ours
    if not is_ours:
        return None
    return seen.rms[0] if seen.rms else WSRM_1_1, SequenceFault("", _usable(found.identifier, limits))


def _usable(identifier: str | None, limits: Limits) -> str | None:
    try:
        return parse_identifier(identifier, limits.identifier_bytes) if identifier else None
    except ValueError:
        return None


class _ArrivedFault(FaultPass):
    """``code`` is (namespace, local name) of the first code in a namespace of WS-RM or WS-MakeConnection,
    ``identifier`` the first of WS-RM inside the fault. An envelope that breaks off is read as far as it goes."""

    def __init__(self, envelope: bytes, charset: str | None) -> None:
        self.code: tuple[str, str] | None = None
        self.identifier: str | None = None
        try:
            parser = expat.ParserCreate(expat_encoding(envelope[:256], charset), NAME_SEPARATOR, None)
            super().__init__(parser)
            parser.Parse(envelope, False)
        except (expat.ExpatError, LookupError, ValueError):
            pass

    def ended(self) -> None:
        path = self.local_path
        namespace, local = split_name(self.path[-1])
        if self.code is None and tuple(path[-2:]) in _CODE_PLACES:
            declared, _prefix, code = self.said_name
            self.code = (declared, _SPELLINGS.get(code, code)) if declared in RM_OF_NAMESPACE else None
        elif self.identifier is None and local == "Identifier" and namespace in RM_VERSIONS:
            self.identifier = self.said if _FAULTS.intersection(path) else None
