"""The RM elements of a message, parsed: frozen values named as the specification names them.

They carry no XML. Times are integers in milliseconds; ``None`` in an ``expires`` field means never.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple


class IncompleteSequenceBehavior(enum.StrEnum):
    """The way in which the destination deals with a sequence that ends with numbers missing (WS-RM 1.1 §3.4)."""

    NO_DISCARD = "NoDiscard"
    """Everything accepted is delivered, in ascending order across the gaps."""
    DISCARD_ENTIRE_SEQUENCE = "DiscardEntireSequence"
    """Nothing is delivered before the sequence is known to be complete; nothing at all if it is not."""
    DISCARD_FOLLOWING_FIRST_GAP = "DiscardFollowingFirstGap"
    """Only the unbroken run from number 1 is delivered."""


@dataclass(frozen=True, slots=True)
class EndpointReference:
    """A WS-Addressing endpoint reference.

    ``parameters`` holds each reference parameter (and 2004/08 reference property) as stand-alone XML text.
    """

    address: str
    parameters: tuple[str, ...] = ()


class SequenceHeader(NamedTuple):
    """The ``Sequence`` header block. ``number`` may lie above 2^63-1: the sequence answers that, not the parser."""

    identifier: str
    number: int
    last: bool = False
    """The 1.0 ``LastMessage`` marker."""


@dataclass(frozen=True, slots=True)
class AckRequested:
    """The source asks for an acknowledgement of a sequence (WS-RM 1.1 §3.8)."""

    identifier: str


class SequenceAcknowledgement(NamedTuple):
    """An acknowledgement: ``ranges`` are (lower, upper), both inclusive; ``None`` on the wire is no range at all."""

    identifier: str
    ranges: tuple[tuple[int, int], ...] = ()
    nacks: tuple[int, ...] = ()
    final: bool = False
    buffer_remaining: int | None = None
    """How many messages more there is room for: WCF's flow control, an extension."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A sequence that the source offers for replies (WS-RM 1.1 §3.4); ``expires`` in ms."""

    identifier: str
    endpoint: EndpointReference | None = None
    expires: int | None = None
    behavior: IncompleteSequenceBehavior | None = None


@dataclass(frozen=True, slots=True)
class CreateSequence:
    """The source asks for a sequence (WS-RM 1.1 §3.4)."""

    acks_to: EndpointReference | None
    expires: int | None = None
    """Milliseconds asked for; ``None`` for never (absent or any zero duration)."""
    offer: Offer | None = None
    uses_security: str | None = None
    """``UsesSequenceSTR`` or ``UsesSequenceSSL`` (header) or ``SecurityTokenReference`` (child), where present."""


@dataclass(frozen=True, slots=True)
class CreateSequenceResponse:
    """The destination has created a sequence (WS-RM 1.1 §3.4)."""

    identifier: str
    expires: int | None = None
    """Milliseconds granted; ``None`` for never."""


@dataclass(frozen=True, slots=True)
class CloseSequence:
    """No new message of the sequence is to be taken (WS-RM 1.1 §3.5); ``last_number`` is LastMsgNumber."""

    identifier: str
    last_number: int | None = None


@dataclass(frozen=True, slots=True)
class TerminateSequence:
    """The sequence is over (WS-RM 1.1 §3.6); ``last_number`` is LastMsgNumber."""

    identifier: str
    last_number: int | None = None


@dataclass(frozen=True, slots=True)
class CloseSequenceResponse:
    """The destination takes no new message of the sequence (WS-RM 1.1 §3.5)."""

    identifier: str
    """Empty: CXF has not known the sequence that it was asked to close."""


@dataclass(frozen=True, slots=True)
class TerminateSequenceResponse:
    """The destination has ended the sequence (WS-RM 1.1 §3.6)."""

    identifier: str


@dataclass(frozen=True, slots=True)
class MakeConnection:
    """A request for a message that waits (WS-MakeConnection 1.1 §3.2)."""

    address: str | None
    """Messages to this very address are asked for."""
    unsupported: tuple[tuple[str, str], ...] = ()
    """(namespace, local name) of each selection beside the address, which is not supported here."""


@dataclass(frozen=True, slots=True)
class SequenceFault:
    """A fault of WS-RM that arrived, with its code, in whichever place its version puts that."""

    code: str
    """Local name of its code; empty where that cannot be read."""
    identifier: str | None = None
    """The identifier of the sequence that the fault is about."""
