"""What bytes from the wire are said to be: every kind of message, every way to be wrong, any bytes at all."""

from __future__ import annotations

import gzip
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.source import every_version
from wsrm_mq.decoding.decode import Decoded, Versions, decoded
from wsrm_mq.testing import EnvelopeFactory
from wsrm_mq.versions import MAKE_CONNECTION, WSA_2005, WSRM_1_0, WSRM_1_1, AddressingVersion, RMVersion, SOAPVersion

SEQUENCE: Final = "urn:uuid:5a7d0b7e-0000-4000-8000-000000000001"
FACTORY: Final = EnvelopeFactory()
MESSAGE: Final = FACTORY.message(SEQUENCE, 3)

ACKNOWLEDGEMENT: Final = FACTORY.envelope(
    WSRM_1_1.action("SequenceAcknowledgement"),
    "",
    headers=f"<wsrm:SequenceAcknowledgement><wsrm:Identifier>{SEQUENCE}</wsrm:Identifier>"
    '<wsrm:AcknowledgementRange Lower="1" Upper="3"/></wsrm:SequenceAcknowledgement>',
)
FAULT: Final = FACTORY.envelope(
    f"{WSRM_1_1.namespace}/fault",
    "<soap:Fault><soap:Code><soap:Value>soap:Sender</soap:Value><soap:Subcode><soap:Value>wsrm:UnknownSequence"
    '</soap:Value></soap:Subcode></soap:Code><soap:Reason><soap:Text xml:lang="en">none such</soap:Text></soap:Reason>'
    "</soap:Fault>",
)


def only(content: bytes) -> Decoded:
    [told] = decoded(content)
    return told


def wrong(content: bytes) -> list[str]:
    return [problem.text for problem in only(content).problems]


def posted(body: bytes, *fields: str, content_type: str = FACTORY.content_type) -> bytes:
    told = ("POST /orders HTTP/1.1", f"Content-Type: {content_type}", *fields)
    length = (
        ()
        if any(field.lower().startswith(("transfer-", "content-length")) for field in fields)
        else (f"Content-Length: {len(body)}",)
    )
    return "\r\n".join((*told, *length, "", "")).encode() + body


def answered(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {FACTORY.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunked(body: bytes) -> bytes:
    return b"".join(b"%x;x=y\r\n%b\r\n" % (len(piece), piece) for piece in (body[:100], body[100:])) + b"0\r\n\r\n"


@every_version
def test_each_version_is_told_by_its_label(rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion) -> None:
    told = only(EnvelopeFactory(rm, soap, addressing).create_sequence())
    assert told.versions == Versions(soap.label, addressing.label, rm.label)
    assert told.what == "It asks for a sequence."
    assert told.receiver.startswith("It opens a sequence")
    assert told.problems == []


@pytest.mark.parametrize(
    ("envelope", "what", "receiver"),
    [
        (FACTORY.close(SEQUENCE), "It closes a sequence", "It takes no further message"),
        (FACTORY.terminate(SEQUENCE), "It ends a sequence", "It ends the sequence"),
        (FACTORY.ack_requested(SEQUENCE), "It asks what has arrived", "It answers with an acknowledgement"),
        (ACKNOWLEDGEMENT, "It acknowledges messages", "It takes note of what is acknowledged"),
        (FAULT, "A fault, Sender / UnknownSequence: none such", "It takes note of the fault"),
        (MESSAGE, f"Message 3 of the sequence {SEQUENCE}", "It stores the message"),
        (FACTORY.envelope("urn:x", "<x/>"), "A message outside of any sequence", "It gives the message"),
    ],
    ids=["close", "terminate", "ack requested", "acknowledgement", "fault", "message", "plain"],
)
def test_what_it_is_and_what_a_destination_does_with_it_is_told(envelope: bytes, what: str, receiver: str) -> None:
    told = only(envelope)
    assert told.what.startswith(what)
    assert told.receiver.startswith(receiver)
    assert told.problems == []


def test_the_code_of_a_fault_is_found_in_the_header_too() -> None:
    factory = EnvelopeFactory(WSRM_1_1, SOAPVersion.SOAP_1_1, WSA_2005)
    header = "<wsrm:SequenceFault><wsrm:FaultCode>wsrm:SequenceClosed</wsrm:FaultCode></wsrm:SequenceFault>"
    fault = "<soap:Fault><faultcode>soap:Client</faultcode><faultstring>no more</faultstring></soap:Fault>"
    told = only(factory.envelope(f"{WSRM_1_1.namespace}/fault", fault, headers=header))
    assert told.what == "A fault, Client / SequenceClosed: no more"


@pytest.mark.parametrize("marker", ["UsesSequenceSTR", "UsesSequenceSSL"])
def test_a_sequence_that_is_to_be_bound_is_refused(marker: str) -> None:
    told = only(FACTORY.create_sequence(headers=f'<wsrm:{marker} soap:mustUnderstand="1"/>'))
    assert told.receiver == f"It answers CreateSequenceRefused: it offers no {marker}."
    assert [problem.text.partition(" ")[0] for problem in told.problems] == [marker]


@pytest.mark.parametrize(
    ("selection", "fault"),
    {
        "": "MissingSelection",
        "<wsmc:Identifier>urn:x</wsmc:Identifier>": "UnsupportedSelection",
        "<wsmc:Address>urn:x</wsmc:Address>": None,
    }.items(),
)
def test_a_make_connection_that_selects_by_no_address_is_wrong(selection: str, fault: str | None) -> None:
    element = f'<wsmc:MakeConnection xmlns:wsmc="{MAKE_CONNECTION.namespace}">{selection}</wsmc:MakeConnection>'
    told = only(FACTORY.envelope(MAKE_CONNECTION.action, element))
    assert len(told.problems) == (fault is not None)
    assert fault is None or told.receiver == f"It answers with a fault ({fault}), and nothing is stored."


def test_a_response_has_facts_and_no_receiver() -> None:
    told = only(answered(FAULT, "500 Internal Server Error"))
    assert told.what == "A fault, Sender / UnknownSequence: none such"
    assert (told.receiver, told.raw.status) == ("", 500)
    assert told.body is not None
    assert ("Reason/Text", "none such") in told.body.facts
    empty = only(answered(b"", "202 Accepted"))
    assert (empty.what, empty.problems) == ("A response without a body: nothing is acknowledged by it.", [])


@pytest.mark.parametrize("rm", [WSRM_1_0, WSRM_1_1], ids=["1.0", "1.1"])
def test_acknowledged_ranges_are_facts_and_contradictions_are_told(rm: RMVersion) -> None:
    block = (
        f'<r:SequenceAcknowledgement xmlns:r="{rm.namespace}"><r:Identifier>{SEQUENCE}</r:Identifier>'
        '<r:AcknowledgementRange Upper="3" Lower="1"/><r:None/></r:SequenceAcknowledgement>'
    )
    factory = EnvelopeFactory(rm, SOAPVersion.SOAP_1_2, WSA_2005)
    told = only(answered(factory.envelope("urn:x", "", headers=block)))
    [acknowledgement] = [one for one in told.blocks if one.name == "SequenceAcknowledgement"]
    assert ("AcknowledgementRange", "1–3") in acknowledgement.facts
    [problem] = told.problems
    assert problem.text == "SequenceAcknowledgement says None beside ranges; the ranges count."
    assert problem.at is not None


def test_what_is_in_a_stranger_s_namespace_may_be_secret_and_is_named_only() -> None:
    block = (
        '<x:Security xmlns:x="urn:x" S:mustUnderstand="1" xmlns:S="http://www.w3.org/2003/05/soap-envelope">'
        "<x:Password>pssst</x:Password></x:Security>"
    )
    told = only(FACTORY.message(SEQUENCE, 1, headers=block))
    [security] = [one for one in told.blocks if one.name == "Security"]
    assert (security.must_understand, security.facts) == (True, ())
    assert "pssst" not in repr(told)


# HTTP


def test_requests_and_responses_of_one_connection_are_told_one_by_one() -> None:
    first, second = b"#### request\n" + posted(MESSAGE), b"\n#### response\n" + answered(b"", "202 Accepted")
    recorded = first + second + posted(MESSAGE)
    assert [told.raw.start.split()[0] for told in decoded(recorded)] == ["POST", "HTTP/1.1", "POST"]


def test_a_body_is_read_through_chunks_gzip_and_parts() -> None:
    parts = (
        b'--b\r\nContent-Type: application/xop+xml; type="application/soap+xml"\r\nContent-ID: <r>\r\n\r\n'
        + MESSAGE
        + b"\r\n--b\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n--b--\r\n"
    )
    related = 'multipart/related; boundary=b; start="<r>"; type="application/xop+xml"'
    zipped = gzip.compress(MESSAGE)
    for content in (
        posted(chunked(MESSAGE), "Transfer-Encoding: chunked"),
        posted(chunked(zipped), "Transfer-Encoding: chunked", "Content-Encoding: gzip"),
        posted(zipped, "Content-Encoding: x-gzip"),
        posted(parts, content_type=related),
        parts,
        gzip.compress(parts),
        gzip.compress(posted(MESSAGE)),
        MESSAGE.decode().encode("utf-16"),
    ):
        told = only(content)
        assert told.what == f"Message 3 of the sequence {SEQUENCE}."
        assert told.problems == []


@pytest.mark.parametrize(
    ("content", "problem"),
    {
        posted(MESSAGE, "Content-Length: 5000"): f"The body breaks off: {len(MESSAGE)} of 5000 bytes are there.",
        posted(chunked(MESSAGE)[:-60], "Transfer-Encoding: chunked"): "The chunked body breaks off after",
        posted(MESSAGE, "Transfer-Encoding: chunked"): "It says that it is chunked, and is not",
        posted(MESSAGE) + b"behind": "Behind it are 6 bytes that are no message of HTTP.",
        posted(MESSAGE, "Content-Encoding: br"): "Content-Encoding 'br' is not expanded here",
        posted(MESSAGE, "Content-Encoding: gzip"): "The request body is not valid gzip.",
        posted(MESSAGE, "Content-Length: x"): "Content-Length is 'x'",
        posted(MESSAGE, "no field"): "A line of the header section is no field: 'no field'.",
        posted(MESSAGE, content_type="text/xml"): "Content-Type is text/xml, that of SOAP 1.1",
        posted(MESSAGE, content_type="multipart/related"): "The multipart body has no usable boundary.",
        b"POST / HTTP/1.1\r\nContent-Type: text/xml": "The header section of HTTP does not end",
        b"POST / HTTP/1.1\r\nContent-Type: text/xml\r\n\r\n" + MESSAGE: "The request has a body and no Content-Length.",
        posted(chunked(MESSAGE), "Transfer-Encoding: chunked", "Content-Length: 9"): "Both Content-Length and",
        b"POST / HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n": "The header section has more than 200 lines",
        posted(b""): "There is no envelope.",
        gzip.compress(MESSAGE)[:-9]: "The gzip body breaks off.",
        b"": "There is no envelope.",
    }.items(),
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_is_wrong_with_http_is_told(content: bytes, problem: str) -> None:
    assert any(text.startswith(problem) for text in wrong(content)), wrong(content)


@pytest.mark.parametrize(
    ("content", "receiver"),
    {
        posted(MESSAGE, content_type="text/plain"): "It answers 415: Send SOAP here",
        posted(MESSAGE, content_type="application/soap+msbin1"): "It answers 415: This is the binary encoding of WCF",
        posted(MESSAGE).replace(b"POST", b"PUT", 1): "It answers 405",
        posted(MESSAGE, "Content-Encoding: br"): "It answers 415: it expands gzip",
        posted(MESSAGE.replace(b"<wsrm:MessageNumber>3", b"<wsrm:MessageNumber>x")): "It answers with a fault (Sender)",
    }.items(),
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_request_that_a_destination_refuses_is_told_with_its_answer(content: bytes, receiver: str) -> None:
    told = only(content)
    assert told.receiver.startswith(receiver)
    assert told.problems


def test_a_field_may_go_on_in_the_next_line() -> None:
    folded = posted(MESSAGE).replace(b"application/soap+xml;", b"application/soap+xml;\r\n\t", 1)
    assert only(folded).raw.get("content-type") == "application/soap+xml; charset=utf-8"


def test_of_many_messages_the_first_hundred_are_told() -> None:
    told = list(decoded(answered(b"") * 130))
    assert len(told) == 100
    assert "not looked at" in told[-1].problems[-1].text


# XML


@pytest.mark.parametrize("charset", ["no-such-charset", "utf-7"])
def test_a_charset_that_is_not_known_is_not_imposed(charset: str) -> None:
    assert only(posted(MESSAGE, content_type=f"{FACTORY.content_type[:20]}; charset={charset}")).what.startswith(
        "Message 3"
    )


def test_a_block_with_very_many_texts_is_told_in_part() -> None:
    ranges = "".join(f'<r:AcknowledgementRange Lower="{n}" Upper="{n}"/>' for n in range(1, 200, 2))
    block = f'<r:SequenceAcknowledgement xmlns:r="{WSRM_1_1.namespace}">{ranges}</r:SequenceAcknowledgement>'
    *_, acknowledgement = only(answered(FACTORY.envelope("urn:x", "", headers=block))).blocks
    assert acknowledgement.facts[-1] == ("…", "and more")


def test_a_problem_of_the_scanner_has_the_line_of_what_it_names() -> None:
    lines = MESSAGE.replace(b"><", b">\n<")
    told = only(lines.replace(b">3<", b">0<"))
    [problem] = told.problems
    assert problem.text == "MessageNumber has to be 1 or more."
    assert problem.at is not None
    assert b"MessageNumber>0<" in lines.replace(b">3<", b">0<").splitlines()[problem.at.line - 1]
    none = only(lines.replace(b"<wsrm:MessageNumber>3</wsrm:MessageNumber>", b""))
    [problem] = none.problems
    assert problem.at is not None
    assert b"Sequence" in lines.splitlines()[problem.at.line - 1]


def test_xml_that_breaks_off_is_read_as_far_as_it_goes() -> None:
    told = only(MESSAGE[:-30])
    assert told.what == f"Message 3 of the sequence {SEQUENCE}."
    [problem] = told.problems
    assert problem.text.startswith("The XML cannot be read")
    assert problem.at is not None
    assert problem.at.column is not None


def test_what_is_no_envelope_is_said_to_be_what_it_is() -> None:
    assert only(b"<a><b/></a>").what == "XML that is no SOAP envelope: its root is a."
    assert only(b"\xff\xfe\x00 rubbish").what == "No XML."
    assert wrong(b"<!DOCTYPE a [<!ENTITY x 'y'>]>" + MESSAGE)


def test_the_envelopes_in_the_log_of_a_client_are_told_one_by_one() -> None:
    log = (
        b"INFO: Outbound Message\nPayload: " + MESSAGE + b"\nINFO: Inbound Message\nPayload: " + ACKNOWLEDGEMENT + b"\n"
    )
    assert [told.what.partition(" ")[0] for told in decoded(log)] == ["Message", "It"]
    assert [told.problems for told in decoded(log)] == [[], []]
    [cut_off] = decoded(b"Payload: " + MESSAGE[:-30])
    assert cut_off.problems


@pytest.mark.parametrize(
    ("begins", "told"),
    {
        bytes.fromhex("1603010200"): "These are bytes of TLS",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": "This is HTTP/2",
        bytes.fromhex("d4c3b2a102000400"): "This is a recording of packets",
        bytes.fromhex("0a0d0d0a1c000000"): "This is a recording of packets",
    }.items(),
)
def test_what_else_is_recorded_is_said_to_be_what_it_is(begins: bytes, told: str) -> None:
    assert wrong(begins + bytes(60))[0].startswith(told)


@pytest.mark.parametrize(
    ("local", "receiver"),
    [("CreateSequenceResponse", "It is for a source"), ("TerminateSequenceResponse", "It answers an empty 202")],
)
def test_a_response_that_was_posted_is_for_a_source_or_has_no_effect(local: str, receiver: str) -> None:
    element = f'<r:{local} xmlns:r="{WSRM_1_1.namespace}"><r:Identifier>{SEQUENCE}</r:Identifier></r:{local}>'
    told = only(posted(FACTORY.envelope(WSRM_1_1.action(local), element)))
    assert told.receiver.startswith(receiver)
    assert told.problems == []


def test_a_message_that_asks_for_nothing_is_told() -> None:
    told = only(FACTORY.envelope(WSRM_1_1.action("SequenceAcknowledgement"), ""))
    assert told.problems[-1].text.endswith("carries nothing to act on.")
    assert told.receiver == "It answers with a fault (Sender), and nothing is stored."


_BITS: Final = st.sampled_from(
    [MESSAGE, posted(MESSAGE), answered(MESSAGE), chunked(MESSAGE), gzip.compress(MESSAGE), b"--b\r\n", b"\r\n\r\n"]
)


@given(st.lists(st.one_of(st.binary(max_size=40), _BITS), max_size=4), st.integers(0, 3_000), st.binary(max_size=6))
def test_any_bytes_are_told_of(bits: list[bytes], place: int, put: bytes) -> None:
    content = b"".join(bits)
    content = content[:place] + put + content[place + len(put) :]
    for told in decoded(content):
        assert told.what
        assert told.receiver or told.raw.status is not None or told.problems
