"""The reading of a fault that arrives: its code and the identifier of its sequence are found in any of the places where
stacks put them (F-019). It is a second pass over the envelope, which a request that is no fault does not pay for.
"""

from __future__ import annotations

from typing import Final

from wsrm_mq.envelope.lexical import parse_identifier
from wsrm_mq.envelope.outline import FaultPass, Outline, feed, split_name
from wsrm_mq.envelope.seen import Seen
from wsrm_mq.envelope.stream import Limits, Source, pieces
from wsrm_mq.sequence.elements import SequenceFault
from wsrm_mq.versions import RM_OF_NAMESPACE, RM_VERSIONS, WSRM_1_1, RMVersion

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
    if isinstance(source, bytes):
        envelope = source[: limits.header_bytes]
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
        super().__init__(envelope[:256], charset)
        feed(self.parser, envelope)

    def ended(self) -> None:
        path = self.local_path
        namespace, local = split_name(self.path[-1])
        if self.code is None and tuple(path[-2:]) in _CODE_PLACES:
            declared, _prefix, code = self.said_name
            self.code = (declared, _SPELLINGS.get(code, code)) if declared in RM_OF_NAMESPACE else None
        elif self.identifier is None and local == "Identifier" and namespace in RM_VERSIONS:
            self.identifier = self.said if _FAULTS.intersection(path) else None
