"""Sequences to begin a test with, and short ways to feed them. Times are ms; nothing here asserts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wsrm_mq.sequence.elements import CloseSequence, IncompleteSequenceBehavior, SequenceHeader, TerminateSequence
from wsrm_mq.sequence.inbound import InboundSequence, Step, receive
from wsrm_mq.sequence.terms import Bounds, DeliveryAssurance, Terms
from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, RMVersion, SOAPVersion

NOW = 1_700_000_000_000
IDENTIFIER = "urn:uuid:1"

NO_DISCARD = IncompleteSequenceBehavior.NO_DISCARD
ENTIRE = IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE
FOLLOWING = IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP

AT_MOST_ONCE = DeliveryAssurance.AT_MOST_ONCE
EXACTLY_ONCE = DeliveryAssurance.EXACTLY_ONCE

UNBOUNDED = Bounds()

VERSIONS = (WSRM_1_0, WSRM_1_1)
_ADDRESSING = {WSRM_1_0: WSA_2004, WSRM_1_1: WSA_2005}


def opened(rm: RMVersion = WSRM_1_1, **terms: Any) -> InboundSequence:
    return InboundSequence(Terms(IDENTIFIER, rm, SOAPVersion.SOAP_1_1, _ADDRESSING[rm], **terms), active_at=NOW)


def message(
    sequence: InboundSequence,
    number: int,
    *,
    last: bool = False,
    now: int = NOW,
    bounds: Bounds = UNBOUNDED,
    named: bool = True,
    empty_last: bool = False,
) -> Step:
    header = SequenceHeader(IDENTIFIER, number, last)
    return receive(sequence, header, now, bounds=bounds, named=named, empty_last=empty_last)


def having(sequence: InboundSequence, numbers: Iterable[int]) -> InboundSequence:
    """``sequence`` after ``numbers`` have arrived in that order."""
    for number in numbers:
        sequence = message(sequence, number).sequence
    return sequence


def close(sequence: InboundSequence, last_number: int | None = None, now: int = NOW) -> Step:
    return receive(sequence, CloseSequence(IDENTIFIER, last_number), now)


def terminate(sequence: InboundSequence, last_number: int | None = None, now: int = NOW) -> Step:
    return receive(sequence, TerminateSequence(IDENTIFIER, last_number), now)


def deliverable(sequence: InboundSequence) -> list[int]:
    """The accepted numbers that may be delivered."""
    end = sequence.limit if sequence.discard_from is None else min(sequence.limit, sequence.discard_from)
    return [n for low, high in sequence.received for n in range(low, high + 1) if n < end]
