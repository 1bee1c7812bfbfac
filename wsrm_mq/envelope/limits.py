"""Limits on the size of an incoming envelope and of its parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request. All counts are of the part that is read, up to Body's first child.

    ``header_bytes`` bounds everything that grows with the input (names, attribute values, namespace declarations,
    text); the other bounds are of things that are more expensive than their bytes.
    """

    header_bytes: int = 256 * 1024
    depth: int = 100
    elements: int = 5_000
    attributes: int = 200
    """Attributes of one element."""
    identifier_bytes: int = 1_024
    """Bytes of a sequence identifier, in UTF-8."""
    parameter_bytes: int = 8_192
    """Bytes of all reference parameters of one endpoint reference."""
    part_header_bytes: int = 16 * 1024
    """Bytes of the MIME headers of one part of a multipart/related body."""
    parts: int = 1_000
    """Parts of a multipart/related body, in front of the root part and with it."""
    ack_requested: int = 16
    """AckRequested headers of one request; as many SequenceAcknowledgement headers are looked at."""
    body_depth: int = 1_000
    """The depth of a body that is read to its end to see whether it is well-formed. The two bounds below are of such a
    body too."""
    body_names: int = 20_000
    """Different names of elements and attributes: a parser keeps each."""
    tag_bytes: int = 1024 * 1024
    """Bytes of one tag or comment: a parser holds it as a whole, and begins anew with every piece of it."""
    body_bytes: int = 64 * 1024 * 1024
    """Bytes of a body after ``expand``."""
    expansion_ratio: int = 200
    """Expanded to compressed; looked at from the first mebibyte on."""
    strict_addressing: bool = False
    """Refuse requests without headers that WS-Addressing demands and some stacks leave out: MessageID on lifecycle
    requests, and ReplyTo on a CreateSequence with WS-Addressing 2004/08 (D-CRE-028, A-006)."""
