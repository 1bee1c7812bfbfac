"""What a reply lacks is put in, and more behind it, wherever its header stands and however it is encoded."""

from __future__ import annotations

import pytest

from wsrm_mq.envelope.rewrite import NotAnEnvelope, complete_reply, piggyback
from wsrm_mq.versions import WSA_2005, SOAPVersion

SOAP = SOAPVersion.SOAP_1_2
OTHER = '<o:Other xmlns:o="urn:other">gr\u00fc\u00df \u20ac</o:Other>'
HEADERS = {
    "no header": "",
    "an empty one": "<e:Header></e:Header>",
    "one that closes itself": '<e:Header  x="/>"/>',
    "one of its own": f"<e:Header>{OTHER}</e:Header>",
}
ENCODINGS = {
    "utf-8": "utf-8",
    "utf-16, marked": "utf-16",
    "latin-1": "iso8859-1",
}


def reply(header: str, codec: str) -> bytes:
    declared = '<?xml version="1.0" encoding="ISO-8859-1"?>' if codec == "iso8859-1" else ""
    text = f'{declared}<e:Envelope xmlns:e="{SOAP.namespace}">{header}<e:Body><done/></e:Body></e:Envelope>'
    return text.encode(codec, "xmlcharrefreplace")


@pytest.mark.parametrize("codec", ENCODINGS.values(), ids=ENCODINGS)
@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_the_place_that_is_told_is_where_a_look_at_the_whole_reply_finds_it(header: str, codec: str) -> None:
    fragment = '<a:Ack xmlns:a="urn:a">gr\u00fc\u00df \u20ac</a:Ack>'.encode()
    completed, place = complete_reply(reply(header, codec), SOAP.media_type, SOAP, WSA_2005, "urn:asked", "urn:act")
    assert piggyback(completed, SOAP.media_type, fragment, place) == piggyback(completed, SOAP.media_type, fragment)


def test_envelopes_that_begin_alike_have_their_blocks_in_the_same_place_and_others_have_not() -> None:
    """The last beginning is remembered, by Content-Type."""
    for header, codec in (("", "utf-8"), (f"<e:Header>{OTHER}</e:Header>", "utf-8"), ("", "utf-16"), ("", "utf-8")):
        for action in ("urn:one", "urn:two"):
            completed, place = complete_reply(reply(header, codec), SOAP.media_type, SOAP, WSA_2005, None, action)
            expected = piggyback(completed, SOAP.media_type, b"<a/>", place)
            assert piggyback(completed, SOAP.media_type, b"<a/>") == expected


def test_the_place_in_a_part_of_many_is_that_of_the_envelope() -> None:
    content_type = f'multipart/related; boundary="b"; type="{SOAP.media_type}"'
    envelope = reply("", "utf-8")
    body = b"--b\r\nContent-Type: application/soap+xml\r\n\r\n" + envelope + b"\r\n--b\r\n\r\npicture\r\n--b--\r\n"
    completed, place = complete_reply(body, content_type, SOAP, WSA_2005, None, "urn:act")
    assert piggyback(completed, content_type, b"<a/>", place) == piggyback(completed, content_type, b"<a/>")
    assert completed[place[0] :].startswith(b"<Action")


@pytest.mark.parametrize(
    "nothing",
    [
        f'<e:Envelope xmlns:e="{SOAP.namespace}"/>',
        f'<e:Envelope xmlns:e="{SOAP.namespace}"></e:Envelope>',
        f'<e:Envelope xmlns:e="{SOAPVersion.SOAP_1_1.namespace}"><e:Body/></e:Envelope>',
        '<Envelope xmlns="urn:other"><Body/></Envelope>',
        "<html/>",
        "",
    ],
    ids=["closed at once", "empty", "of another version", "of another namespace", "a page", "no content"],
)
def test_what_is_no_envelope_with_a_body_is_left_alone(nothing: str) -> None:
    with pytest.raises(NotAnEnvelope):
        complete_reply(nothing.encode(), SOAP.media_type, SOAP, WSA_2005, "urn:asked", "urn:act")
