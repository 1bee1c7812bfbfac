"""``without_security`` takes the Security block out of an envelope, whatever form it has, and fails closed."""

from __future__ import annotations

import pytest

from tests.envelope.conftest import every_version
from tests.envelope.test_forms import RELATED, multipart
from wsrm_mq.envelope.rewrite import without_security
from wsrm_mq.testing import EnvelopeFactory

ID = "urn:uuid:6f1f4b1e-2a8e-4f0a-9b59-8f8c2f4f2a11"
WSSE = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd"
SECURITY = (
    f'<o:Security xmlns:o="{WSSE}" a=">"><o:UsernameToken><o:Password>käse</o:Password></o:UsernameToken></o:Security>'
)
BODY = "<p:put xmlns:p='urn:example:orders'><p:Security>of the order</p:Security></p:put>"
PLAIN = EnvelopeFactory()


@every_version
def test_the_block_goes_and_no_other_byte(speak: EnvelopeFactory) -> None:
    signed = speak.message(ID, 7, BODY, headers=SECURITY, message_id="urn:m")
    unsigned = speak.message(ID, 7, BODY, message_id="urn:m")
    assert without_security(signed, speak.content_type) == unsigned


def test_two_blocks_go_and_one_of_a_draft_too() -> None:
    draft = '<Security xmlns="http://schemas.xmlsoap.org/ws/2002/12/secext"/>'
    signed = PLAIN.message(ID, 7, BODY, headers=SECURITY + draft, message_id="urn:m")
    assert without_security(signed, PLAIN.content_type) == PLAIN.message(ID, 7, BODY, message_id="urn:m")


def test_an_envelope_without_one_is_the_same_object() -> None:
    for envelope in (PLAIN.message(ID, 7, BODY), PLAIN.message(ID, 7, "<put/>")):
        assert without_security(envelope, PLAIN.content_type) is envelope


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "iso8859-1"])
def test_it_is_found_in_other_encodings(codec: str) -> None:
    text = PLAIN.message(ID, 7, BODY, headers=SECURITY, message_id="urn:m").decode().replace('encoding="utf-8"', "")
    redacted = without_security(text.encode(codec), f"text/xml; charset={codec}")
    assert redacted is not None
    assert redacted.decode(codec) == text.replace(SECURITY, "")


def test_the_root_part_is_redacted_and_attachments_stay() -> None:
    signed, unsigned = (PLAIN.message(ID, 7, BODY, headers=blocks, message_id="urn:m") for blocks in (SECURITY, ""))
    assert without_security(multipart(signed), RELATED) == multipart(unsigned)


@pytest.mark.parametrize(
    "broken",
    [
        PLAIN.message(ID, 7, headers=SECURITY).partition(b"</o:Security>")[0],
        b"Security, and no envelope",
        PLAIN.message(ID, 7, headers='<a xmlns="x"/>' * 1_100 + SECURITY),
    ],
    ids=["it breaks off", "no XML", "more declarations than are looked at"],
)
def test_what_cannot_be_told_is_left_out(broken: bytes) -> None:
    assert without_security(broken, PLAIN.content_type) is None


def test_parts_without_a_root_cannot_be_told() -> None:
    assert without_security(PLAIN.message(ID, 7, headers=SECURITY), "multipart/related; boundary=b") is None
