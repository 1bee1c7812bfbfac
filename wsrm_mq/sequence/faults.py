"""The faults a destination answers with, one class each (WS-RM 1.1 §4, WS-Addressing 1.0 SOAP binding §6).

A fault is a value, returned by the protocol step: a peer's mistake never unwinds the transaction that has to
record it. How a fault looks on the wire is ``envelope.render``'s business; the class attributes say all it needs.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from wsrm_mq.sequence.elements import SequenceAcknowledgement


class FaultCode(enum.Enum):
    """The side to blame: SOAP 1.2 (code), SOAP 1.1 (faultcode)."""

    SENDER = ("Sender", "Client")
    RECEIVER = ("Receiver", "Server")
    MUST_UNDERSTAND = ("MustUnderstand", "MustUnderstand")
    VERSION_MISMATCH = ("VersionMismatch", "VersionMismatch")


class FaultFamily(enum.Enum):
    """The specification in whose namespace the subcode is; it also decides the wsa:Action of the fault message."""

    RM = "rm"
    ADDRESSING = "addressing"
    MAKE_CONNECTION = "make_connection"
    SOAP = "soap"
    """No subcode."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Base of all faults: ``reason`` is for people, ``identifier`` the sequence that it is about, if any."""

    reason: str
    identifier: str | None = None
    ours: bool = False
    """The cause lies with this side (a limit, a failing service): the code becomes Receiver."""

    code: ClassVar[FaultCode] = FaultCode.SENDER
    family: ClassVar[FaultFamily] = FaultFamily.SOAP
    subcode: ClassVar[str] = ""
    is_header_fault: ClassVar[bool] = False
    """Under SOAP 1.1 an RM fault about a header travels in a ``SequenceFault`` header."""

    @property
    def name(self) -> str:
        return self.subcode or self.code.value[0]

    @property
    def blame(self) -> FaultCode:
        return FaultCode.RECEIVER if self.ours else self.code


@dataclass(frozen=True, slots=True)
class _OfSequence(Fault):
    """A fault of WS-RM about a sequence that a header names."""

    family = FaultFamily.RM
    is_header_fault = True


@dataclass(frozen=True, slots=True)
class SequenceTerminated(_OfSequence):
    """The sequence was ended because of an error (WS-RM 1.1 §4.2)."""

    subcode = "SequenceTerminated"


@dataclass(frozen=True, slots=True)
class UnknownSequence(_OfSequence):
    """No sequence of this sender has that identifier (WS-RM 1.1 §4.3)."""

    subcode = "UnknownSequence"


@dataclass(frozen=True, slots=True)
class InvalidAcknowledgement(_OfSequence):
    """``said`` is the acknowledgement that cannot be true; the fault repeats it."""

    said: SequenceAcknowledgement | None = None

    subcode = "InvalidAcknowledgement"


@dataclass(frozen=True, slots=True)
class MessageNumberRollover(_OfSequence):
    """The number is above ``max_number``, the largest that is taken (WS-RM 1.1 §4.5)."""

    max_number: int = 0

    subcode = "MessageNumberRollover"


@dataclass(frozen=True, slots=True)
class LastMessageNumberExceeded(_OfSequence):
    """WS-RM 1.0 only."""

    subcode = "LastMessageNumberExceeded"


@dataclass(frozen=True, slots=True)
class SequenceClosed(_OfSequence):
    """WS-RM 1.1 only."""

    subcode = "SequenceClosed"


@dataclass(frozen=True, slots=True)
class CreateSequenceRefused(Fault):
    """No sequence is made; ``reason`` says why (WS-RM 1.1 §4.6)."""

    family = FaultFamily.RM
    subcode = "CreateSequenceRefused"


@dataclass(frozen=True, slots=True)
class WSRMRequired(Fault):
    """The endpoint takes no message outside of a sequence (WS-RM 1.1 §4.8)."""

    family = FaultFamily.RM
    subcode = "WSRMRequired"


@dataclass(frozen=True, slots=True)
class AddressingHeaderRequired(Fault):
    """``header`` is the local name of the addressing header that is missing."""

    header: str = ""

    family = FaultFamily.ADDRESSING
    subcode = "HeaderRequired"


@dataclass(frozen=True, slots=True)
class InvalidAddressingHeader(Fault):
    """``detail_code`` is the third-level code of WS-Addressing 1.0, e.g. ``InvalidCardinality``."""

    header: str = ""
    detail_code: str = ""

    family = FaultFamily.ADDRESSING
    subcode = "InvalidHeader"


@dataclass(frozen=True, slots=True)
class ActionNotSupported(Fault):
    """An Action of WS-RM that this side has no use for (WS-Addressing 1.0 SOAP binding §6.4.2)."""

    family = FaultFamily.ADDRESSING
    subcode = "ActionNotSupported"


@dataclass(frozen=True, slots=True)
class MissingSelection(Fault):
    """MakeConnection says nothing of which message it asks for (WS-MakeConnection 1.1 §4.2)."""

    code = FaultCode.RECEIVER
    family = FaultFamily.MAKE_CONNECTION
    subcode = "MissingSelection"


@dataclass(frozen=True, slots=True)
class UnsupportedSelection(Fault):
    """``elements`` are (namespace, local name) of the criteria of a MakeConnection that this side does not know
    (WS-MakeConnection 1.1 §4.1)."""

    elements: tuple[tuple[str, str], ...] = ()

    code = FaultCode.RECEIVER
    family = FaultFamily.MAKE_CONNECTION
    subcode = "UnsupportedSelection"


@dataclass(frozen=True, slots=True)
class NotUnderstood(Fault):
    """``headers`` are (namespace, local name) of the mandatory header blocks that are not understood here."""

    headers: tuple[tuple[str, str], ...] = ()

    code = FaultCode.MUST_UNDERSTAND


@dataclass(frozen=True, slots=True)
class VersionMismatch(Fault):
    """The root is no Envelope of SOAP 1.1 or 1.2."""

    code = FaultCode.VERSION_MISMATCH


@dataclass(frozen=True, slots=True)
class MalformedMessage(Fault):
    """Not acceptable as SOAP or as RM: the sender's mistake, nothing recorded."""


@dataclass(frozen=True, slots=True)
class ServiceFailure(Fault):
    """This side cannot do its part: the fault is the receiver's."""

    code = FaultCode.RECEIVER
