"""``body_digest`` is of what is inside Body: the same for a message that is sent again, whatever its headers are."""

from __future__ import annotations

import hashlib

import pytest

from tests.envelope.conftest import every_version
from tests.envelope.test_forms import RELATED, multipart
from wsrm_mq.envelope.rewrite import body_digest
from wsrm_mq.testing import EnvelopeFactory

BODY = "<p:put xmlns:p='urn:example:orders'><p:Body>of the order</p:Body></p:put>"
PLAIN = EnvelopeFactory()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@every_version
def test_sent_again_in_another_sequence_it_is_the_same(speak: EnvelopeFactory) -> None:
    first, again = speak.message("urn:uuid:a", 7, BODY), speak.message("urn:uuid:b", 1, BODY, headers="<a xmlns='x'/>")
    other = speak.message("urn:uuid:a", 7, BODY.replace("order", "orders"))
    assert body_digest(first, speak.content_type) == body_digest(again, speak.content_type)
    assert body_digest(first, speak.content_type) != body_digest(other, speak.content_type)
    assert body_digest(first, speak.content_type) == digest(first.partition(b"Body>")[2])


def test_what_names_body_anew_does_not_count() -> None:
    named = [PLAIN.message("urn:uuid:a", 7, BODY).replace(b"Body>", b"Body Id='%d'>" % one, 1) for one in (1, 2)]
    assert len({body_digest(one, PLAIN.content_type) for one in named}) == 1


def test_a_body_inside_header_is_not_taken_for_it() -> None:
    message = PLAIN.message("urn:uuid:a", 7, BODY, headers="<Body xmlns='x'>1</Body>")
    assert body_digest(message, PLAIN.content_type) == digest(message.partition(b"<soap:Body>")[2])


def test_text_inside_header_that_looks_like_it_is_digested_with_it() -> None:
    message = PLAIN.message("urn:uuid:a", 7, BODY, headers="<a xmlns='x'><![CDATA[</soap:Header><soap:Body>]]></a>")
    assert body_digest(message, PLAIN.content_type) == digest(message.partition(b"<soap:Body>")[2])


def test_without_header_and_in_other_encodings_a_parser_finds_it() -> None:
    text = f'<e:Envelope xmlns:e="http://www.w3.org/2003/05/soap-envelope"><e:Body>{BODY}</e:Body></e:Envelope>'
    assert body_digest(text.encode(), "") == digest(text.partition("<e:Body>")[2].encode())
    assert body_digest(text.encode("utf-16-le"), "application/soap+xml; charset=utf-16-le") == digest(
        text.partition("<e:Body>")[2].encode("utf-16-le")
    )


def test_attachments_count_in_the_digest_of_a_message() -> None:
    whole = multipart(PLAIN.message("urn:uuid:a", 7, BODY))
    assert body_digest(whole, RELATED) == digest(whole.partition(b"<soap:Body>")[2])
    assert body_digest(b"no part", RELATED) is None


@pytest.mark.parametrize("broken", [b"", b"no XML", b"<e:Envelope xmlns:e='urn:other'><e:Header/>"])
def test_where_there_is_no_body_it_is_not_known(broken: bytes) -> None:
    assert body_digest(broken, "text/xml") is None
