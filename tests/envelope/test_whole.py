"""Whether a body came to its end, and is well-formed to there."""

from __future__ import annotations

import gzip
import io

import pytest

from tests.envelope.test_forms import RELATED, multipart
from wsrm_mq.envelope.stream import Limits, check_well_formed, check_whole, ends_once, expand, looks_whole
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.testing import EnvelopeFactory

PLAIN = EnvelopeFactory()
XML = PLAIN.content_type
MESSAGE = PLAIN.message("urn:s", 1)
PARTS = multipart(MESSAGE)
LIMITS = Limits(body_depth=6, body_names=30, tag_bytes=1_000)


def holding(content: str) -> bytes:
    return MESSAGE.replace(b"<p:text>hello</p:text>", content.encode())


@pytest.mark.parametrize(("body", "content_type"), [(MESSAGE, XML), (MESSAGE + b" \n", XML), (PARTS, RELATED)])
def test_what_is_whole_looks_so_and_is(body: bytes, content_type: str) -> None:
    assert looks_whole(body[-512:], content_type)
    assert ends_once(body, content_type)
    check_whole(body, content_type, LIMITS)
    check_well_formed(body, content_type, LIMITS)


@pytest.mark.parametrize(("body", "content_type"), [(MESSAGE[:-2], XML), (PARTS[:-5], RELATED), (MESSAGE[:300], XML)])
def test_what_was_cut_off_looks_so_and_is_refused(body: bytes, content_type: str) -> None:
    assert not looks_whole(body[-512:], content_type)
    with pytest.raises(EnvelopeError) as refused:
        check_whole(body, content_type, LIMITS)
    assert refused.value.status == 400


def test_an_envelope_that_looks_cut_off_may_be_whole() -> None:
    commented = MESSAGE + b"<!-- Envelope -->"
    assert not looks_whole(commented, XML)
    check_whole(commented, XML, LIMITS)
    utf_16 = MESSAGE.decode().encode("utf-16")
    assert not looks_whole(utf_16, XML)
    check_whole(utf_16, XML, LIMITS)


def test_an_envelope_inside_another_shows_no_end() -> None:
    assert not ends_once(holding(MESSAGE.decode()), XML)


def test_a_line_that_only_begins_as_the_closing_boundary_is_none() -> None:
    closing = b"\r\n--=_part:1--"
    inside = multipart(holding(f"{closing.decode()}more"))
    check_whole(inside, RELATED, LIMITS)
    with pytest.raises(EnvelopeError, match="closing boundary"):
        check_whole(inside.rpartition(closing)[0], RELATED, LIMITS)


def test_a_compressed_body_is_read_to_its_end() -> None:
    packed = gzip.compress(MESSAGE)
    check_whole(expand(packed, LIMITS), XML, LIMITS)
    with pytest.raises(EnvelopeError, match="breaks off"):
        check_whole(expand(packed[:-9], LIMITS), XML, LIMITS)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (holding("<a><b><c><d/></c></b></a>"), "nested more than 6 deep"),
        (holding("".join(f"<n{n}/>" for n in range(40))), "more than 30 different names"),
        (holding(f'<a b="{"x" * 600_000}"/>'), "a tag or comment of more than 1000 bytes"),
        (holding("<a></b>"), "mismatched tag, line 1"),
        (b"<!DOCTYPE x>" + MESSAGE, "document type declaration"),
    ],
    ids=["depth", "names", "tag", "tags that differ", "DTD"],
)
def test_what_is_not_well_formed_or_asks_for_too_much_is_refused_with_its_reason(body: bytes, reason: str) -> None:
    for content, content_type in ((body, XML), (multipart(body), RELATED)):
        with pytest.raises(EnvelopeError, match=reason) as refused:
            check_well_formed(io.BytesIO(content), content_type, LIMITS)
        assert refused.value.status == 400


def test_nothing_at_all_breaks_no_rule_of_xml() -> None:
    check_well_formed(b"", XML, LIMITS)
