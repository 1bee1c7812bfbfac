"""The words for a message and for the reaction of a destination, a sentence each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wsrm_mq.decoding.elements import Block
from wsrm_mq.envelope import Headers
from wsrm_mq.sequence.elements import (
    CloseSequence,
    CreateSequence,
    MakeConnection,
    SequenceFault,
    TerminateSequence,
)
from wsrm_mq.versions import RM_OF_NAMESPACE, RM_VERSIONS, SOAPVersion

_BODIES: Final = {
    "CreateSequence": "It asks for a sequence.",
    "CreateSequenceResponse": "It gives the sequence that was asked for.",
    "CloseSequence": "It closes a sequence: no further message of it is to be taken.",
    "CloseSequenceResponse": "It confirms that a sequence is closed.",
    "TerminateSequence": "It ends a sequence.",
    "TerminateSequenceResponse": "It confirms that a sequence has ended.",
    "MakeConnection": "It asks for a message that waits for its sender.",
}
"""The sentence for a message, by the RM element in its Body."""
_ACTIONS: Final = {
    "SequenceAcknowledgement": "It acknowledges messages, and carries none itself.",
    "AckRequested": "It asks what has arrived, and carries no message itself.",
    "LastMessage": "It says which message of a sequence was the last.",
}
"""The sentence for a message with an empty Body, by the end of its RM action."""

_TAKEN: Final = {
    CreateSequence: "It opens a sequence and answers CreateSequenceResponse, where the addresses in it can be reached.",
    CloseSequence: "It takes no further message of the sequence, and answers CloseSequenceResponse with the last "
    "acknowledgement; UnknownSequence, if it never opened the sequence for this sender.",
    TerminateSequence: "It ends the sequence, and acknowledges a last time; UnknownSequence, if it never opened the "
    "sequence for this sender.",
    MakeConnection: "It answers with a message that waits for the address, or with an empty 202.",
    SequenceFault: "It takes note of the fault, gives it to no service, and answers an empty 202.",
}
"""The reaction of a destination, by the element that the scanner found in Body."""


def what_it_is(soap: SOAPVersion | None, blocks: Sequence[Block], body: Block | None) -> str:
    """Describe a message by its envelope, whether a destination would take it or not."""
    if soap is None:
        return f"XML that is no SOAP envelope: its root is {body.name}." if body is not None else "No XML."
    if body is not None and (body.namespace, body.name) == (soap.namespace, "Fault"):
        return _fault(blocks, body)
    if body is not None and body.namespace in RM_OF_NAMESPACE:
        return _BODIES.get(body.name, f"It holds {body.name}, which is no message of WS-ReliableMessaging.")
    sequence = next((one for one in blocks if one.namespace in RM_VERSIONS and one.name == "Sequence"), None)
    if sequence is not None:
        return _numbered(dict(sequence.facts))
    action = next((value for one in blocks if one.name == "Action" for _, value in one.facts), "")
    namespace, _, local = action.rpartition("/")
    if namespace in RM_VERSIONS and local in _ACTIONS:
        return _ACTIONS[local]
    return f"A message outside of any sequence; its Body holds {body.name if body is not None else 'nothing'}."


def _numbered(facts: Mapping[str, str]) -> str:
    number, identifier = facts.get("MessageNumber") or "without a number", facts.get("Identifier") or "without a name"
    return f"Message {number}{', the last one,' if 'LastMessage' in facts else ''} of the sequence {identifier}."


def _fault(blocks: Sequence[Block], body: Block) -> str:
    """SOAP 1.1 has the code of WS-ReliableMessaging in a header."""
    codes = [value for path, value in body.facts if path == "faultcode" or path.endswith("/Value")]
    codes += [
        value for one in blocks if one.name == "SequenceFault" for path, value in one.facts if path == "FaultCode"
    ]
    reasons = [value for path, value in body.facts if path == "faultstring" or path.endswith("/Text")]
    reason = f": {reasons[0]}" if reasons and reasons[0] else ""
    return f"A fault, {' / '.join(code.rpartition(':')[2] for code in codes) or 'without a code'}{reason}"


def taken_as(headers: Headers) -> str | None:
    """Describe the reaction to a request whose headers can be read; ``None`` where it asks for nothing."""
    if isinstance(headers.body, CreateSequence) and headers.body.uses_security:
        return f"It answers CreateSequenceRefused: it offers no {headers.body.uses_security}."
    told = _TAKEN.get(type(headers.body)) if headers.body is not None else None
    if told is not None:
        return told
    if headers.is_protocol_fault:
        return _TAKEN[SequenceFault]
    if headers.sequence is not None:
        return (
            "It stores the message, then acknowledges it, and delivers it once, in its turn; what it has already it "
            "acknowledges, and delivers no second time. UnknownSequence, if it never opened the sequence for this "
            "sender."
        )
    if headers.is_plain:
        return "It gives the message to the service as it is, unreliably; WSRMRequired, where require_rm is set."
    if headers.ack_requested:
        return "It answers with an acknowledgement of what has arrived, the service gets nothing."
    if headers.acknowledgements:
        return (
            "It takes note of what is acknowledged, and answers an empty 202; UnknownSequence, if it never sent in the "
            "sequence."
        )
    return None
