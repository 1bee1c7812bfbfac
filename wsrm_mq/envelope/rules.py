"""The rules of an RM message that need more than one header, in the order in which they are applied
(conformance §6).

Each is a function of what was seen; it answers the fault, or ``None``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.seen import Seen
from wsrm_mq.sequence.faults import (
    ActionMismatch,
    ActionNotSupported,
    AddressingHeaderRequired,
    CreateSequenceRefused,
    Fault,
    InvalidAddressingHeader,
    MalformedMessage,
    NotUnderstood,
)
from wsrm_mq.versions import RM_VERSIONS, WSA_2004, WSA_2005, RMVersion

__all__ = ["Request", "first_fault"]

_TO_REQUIRED: Final = (WSA_2004,)
_REPLY_TO_REQUIRED: Final = (WSA_2004,)
_HTTP_ACTION_BINDS: Final = (WSA_2005,)

_RM_HEADERS: Final = frozenset(
    (
        "Sequence",
        "AckRequested",
        "SequenceAcknowledgement",
        "SequenceFault",
        "UsesSequenceSTR",
        "UsesSequenceSSL",
    )
)
_EMPTY: Final = ""
_FAULT: Final = "Fault"
_LIFECYCLE: Final = ("CreateSequence", "CreateSequenceResponse", "TerminateSequence")
_LIFECYCLE_1_1: Final = ("CloseSequence", "CloseSequenceResponse", "TerminateSequenceResponse")
_WITH_MESSAGE_ID: Final = frozenset(("CreateSequence", "CloseSequence", "TerminateSequence"))


def _bodies(rm: RMVersion) -> dict[str, str]:
    """Action → local name of Body's child that goes with it; empty for none, ``Fault`` for SOAP's."""
    elements = {local: local for local in (*_LIFECYCLE, *(_LIFECYCLE_1_1 if rm.has_close else ()))}
    empty = ("SequenceAcknowledgement", "AckRequested", *(("LastMessage",) if rm.has_last_message else ()))
    faults = {"fault": _FAULT} if rm.own_fault_action else {}
    return {
        rm.action(local): body
        for local, body in ({**elements, **dict.fromkeys(empty, _EMPTY), **faults}).items()
    }


_BODY_OF_ACTION: Final = {ns: _bodies(rm) for ns, rm in RM_VERSIONS.items()}


class Request(NamedTuple):
    """What the rules look at. ``http_action`` is SOAPAction or the action parameter, as sent."""

    seen: Seen
    http_action: str | None
    limits: Limits

    @property
    def rm(self) -> RMVersion:
        return self.seen.rms[0]


def _one_rm_version(request: Request) -> Fault | None:
    if len(request.seen.rms) > 1:
        return MalformedMessage("The message mixes the namespaces of WS-ReliableMessaging 1.0 and 1.1.")
    return None


def _rm_blocks_are_headers(request: Request) -> Fault | None:
    """An RM element of Body does nothing as a header (§6 row 22); one that nobody knows counts if
    mandatory."""
    blocks, namespace = request.seen.rm_blocks, request.rm.namespace
    for local in blocks.keys() - _RM_HEADERS:
        if request.rm.action(local) in _BODY_OF_ACTION[namespace]:
            return MalformedMessage(f"{local} belongs into the Body.")
        if any(map(request.seen.is_mandatory, blocks[local])):
            return NotUnderstood(
                "A mandatory header block was not understood.", headers=((namespace, local),)
            )
    return None


def _one_sequence(request: Request) -> Fault | None:
    if len(request.seen.rm_blocks.get("Sequence", ())) > 1:
        return MalformedMessage("The message has more than one Sequence header.")
    return None


def _one_addressing_version(request: Request) -> Fault | None:
    if len(request.seen.addressings) > 1:
        return InvalidAddressingHeader(
            "The message mixes WS-Addressing 2004/08 and 1.0.",
            header="Action",
            detail_code="InvalidCardinality",
        )
    return None


def _versions_fit(request: Request) -> Fault | None:
    for addressing in request.seen.addressings:
        if addressing not in request.rm.addressings:
            allowed = " or ".join(version.label for version in request.rm.addressings)
            return MalformedMessage(
                f"WS-ReliableMessaging {request.rm.label} needs WS-Addressing {allowed};"
                f" this message uses {addressing.label}."
            )
    return None


def _no_header_twice(request: Request) -> Fault | None:
    for header in request.seen.repeated:
        return InvalidAddressingHeader(
            f"The message has more than one {header} header.", header=header, detail_code="InvalidCardinality"
        )
    return None


def _required_headers(request: Request) -> Fault | None:
    seen = request.seen
    if seen.action is None:
        return _required("Action")
    if seen.addressings[0] in _TO_REQUIRED and seen.text("To") is None:
        return _required("To")
    return None


def _strictly_required_headers(request: Request) -> Fault | None:
    seen = request.seen
    local = (seen.action or "").removeprefix(request.rm.action(""))
    if not request.limits.strict_addressing or local not in _WITH_MESSAGE_ID:
        return None
    if seen.text("MessageID") is None and (local == "CreateSequence" or request.rm.has_close):
        return _required("MessageID")
    if local == "CreateSequence" and seen.addressings[0] in _REPLY_TO_REQUIRED:
        return None if "ReplyTo" in seen.addressing_blocks else _required("ReplyTo")
    return None


def _http_action_agrees(request: Request) -> Fault | None:
    http_action = (request.http_action or "").strip().strip('"').strip()
    if (
        http_action
        and http_action != request.seen.action
        and request.seen.addressings[0] in _HTTP_ACTION_BINDS
    ):
        return ActionMismatch("The action of the HTTP request differs from wsa:Action.")
    return None


def _body_fits_action(request: Request) -> Fault | None:
    seen, rm = request.seen, request.rm
    action, body = seen.action or "", seen.body_name
    is_rm_action = action.startswith(rm.action(""))
    if not is_rm_action:
        if body is not None and body[0] == rm.namespace:
            return ActionNotSupported(f"The Body holds {body[1]}, but wsa:Action is not that of {body[1]}.")
        return None
    expected = _BODY_OF_ACTION[rm.namespace].get(action)
    if expected is None:
        return ActionNotSupported(f"WS-ReliableMessaging {rm.label} has no such action.")
    wanted = {_EMPTY: None, _FAULT: (seen.soap.namespace, _FAULT)}.get(expected, (rm.namespace, expected))
    if body == wanted:
        return None
    reason = f"The Body does not hold what wsa:Action says: {expected or 'nothing'}."
    return CreateSequenceRefused(reason) if expected == "CreateSequence" else MalformedMessage(reason)


_RULES: Final[tuple[Callable[[Request], Fault | None], ...]] = (
    _one_rm_version,
    _one_addressing_version,
    _versions_fit,
    _no_header_twice,
    _required_headers,
    _strictly_required_headers,
    _http_action_agrees,
    _rm_blocks_are_headers,
    _one_sequence,
    _body_fits_action,
)


def first_fault(request: Request) -> Fault | None:
    """The fault of the first rule that is broken."""
    for rule in _RULES:
        fault = rule(request)
        if fault is not None:
            return fault
    return None


def _required(header: str) -> AddressingHeaderRequired:
    return AddressingHeaderRequired(f"The addressing header {header} is missing.", header=header)
