"""The rules of an RM message that need more than one header, in the order in which they apply (conformance §6).

Each rule is a function of the seen headers, the action that HTTP names and the limits; it answers the fault, or
``None``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
from wsrm_mq.versions import MAKE_CONNECTION, RM_VERSIONS, WSA_2004, WSA_2005, RMVersion

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
            return ActionMismatch("The action of the HTTP request differs from wsa:Action.")
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
