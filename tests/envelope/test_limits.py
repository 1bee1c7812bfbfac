"""An envelope costs no more than the limits say."""

from __future__ import annotations

import time

import pytest

from tests.envelope.conftest import read, refusal
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import Limits
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.elements import SequenceHeader
from wsrm_mq.sequence.faults import MalformedMessage
from wsrm_mq.testing import EnvelopeFactory

ID = "urn:uuid:6f1f4b1e-2a8e-4f0a-9b59-8f8c2f4f2a11"
PLAIN = EnvelopeFactory()
MIB = 1024 * 1024

HUGE = {
    "attribute": f'<q:x xmlns:q="urn:q" a="{"v" * 10 * MIB}"/>',
    "attributes": '<q:x xmlns:q="urn:q"' + "".join(f" a{n}=''" for n in range(100_000)) + "/>",
    "depth": "<q>" * 10_000 + "</q>" * 10_000,
    "name": f"<{'n' * MIB}/>",
    "declarations": "<q" + "".join(f" xmlns:p{n}='urn:p'" for n in range(100_000)) + "/>",
    "elements": "<q/>" * 6_000,
    "text": "<q>" + "t" * MIB + "</q>",
    "identifier": PLAIN.ack_requested_header("urn:x:" + "i" * MIB),
    "comment": f"<!--{'-x' * MIB}-->",
}


@pytest.mark.parametrize("block", HUGE.values(), ids=HUGE)
@pytest.mark.parametrize("inside", [True, False], ids=["in-our-block", "beside"])
def test_what_is_huge_is_refused_at_once(block: str, inside: bool) -> None:
    sequence = PLAIN.sequence_header(ID, 1)
    headers = sequence.replace("</wsrm:Sequence>", f"{block}</wsrm:Sequence>") if inside else block + sequence
    envelope = PLAIN.envelope("urn:example:put", headers=headers)
    started = time.perf_counter()
    assert isinstance(refusal(PLAIN, envelope).fault, MalformedMessage)
    assert time.perf_counter() - started < 2


def test_the_header_section_is_bounded_by_its_bytes() -> None:
    envelope = PLAIN.message(ID, 1, "<put/>" + " " * 100_000)
    needed = envelope.index(b"<put/>") + len(b"<put/>")
    assert read(PLAIN, envelope, Limits(header_bytes=needed)).sequence == SequenceHeader(ID, 1)
    error = refusal(PLAIN, envelope, Limits(header_bytes=needed - 1))
    assert error.fault.reason == f"The header section is longer than {needed - 1} bytes."
    assert error.status is None


def test_depth_elements_and_attributes_are_bounded_exactly() -> None:
    block = '<q:x xmlns:q="urn:q" a="" b="" c=""><q:y><q:z/></q:y></q:x>'
    envelope = PLAIN.message(ID, 1, headers=block)
    # Envelope, Header, four addressing blocks, ReplyTo's Address, Sequence and two children, x, y, z, Body, put
    fits = Limits(elements=15, depth=5, attributes=3)
    assert read(PLAIN, envelope, fits).sequence == SequenceHeader(ID, 1)
    for limits in (Limits(elements=14), Limits(depth=4), Limits(attributes=2)):
        assert isinstance(refusal(PLAIN, envelope, limits).fault, MalformedMessage)


def test_a_lifecycle_body_counts_as_header_section() -> None:
    for extra in ("<q>" * 200 + "</q>" * 200, "<q/>" * 6_000, "<q>" + "t" * 300_000 + "</q>"):
        assert isinstance(refusal(PLAIN, PLAIN.create_sequence(extra=extra)).fault, MalformedMessage)


def test_the_body_of_the_application_is_not_bounded() -> None:
    body = "<put>" + "<deep>" * 1_000 + "x" * MIB + "</deep>" * 1_000 + "</put>"
    assert read(PLAIN, PLAIN.message(ID, 1, body)).sequence == SequenceHeader(ID, 1)


def test_a_limit_holds_for_a_request_without_rm_too() -> None:
    with pytest.raises(EnvelopeError, match="longer than"):
        scan(PLAIN.envelope("urn:example:put", headers=HUGE["text"]), PLAIN.content_type)


@pytest.mark.parametrize("digits", [25, 200_000])
def test_a_number_of_many_digits_never_becomes_one(digits: int) -> None:
    started = time.perf_counter()
    assert isinstance(refusal(PLAIN, PLAIN.message(ID, "1" * digits)).fault, MalformedMessage)
    assert read(PLAIN, PLAIN.message(ID, "0" * digits + "1")).sequence == SequenceHeader(ID, 1)
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize("count", [16, 17])
def test_more_requests_for_acknowledgements_than_are_answered_are_refused_alone_and_cut_off_where_they_ride(
    count: int,
) -> None:
    names = [f"urn:s{n}" for n in range(count)]
    riding = "".join(map(PLAIN.ack_requested_header, names))
    headers = read(PLAIN, PLAIN.message(ID, 1, headers=riding))
    assert len(headers.ack_requested) == 16
    assert ("AckRequested headers" in "".join(headers.ignored)) == (count > 16)
    if count > 16:
        assert "17 AckRequested headers" in refusal(PLAIN, PLAIN.ack_requested(*names)).fault.reason
    else:
        assert len(read(PLAIN, PLAIN.ack_requested(*names)).ack_requested) == 16
