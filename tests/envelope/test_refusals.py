"""What a scan refuses, and with which fault."""

from __future__ import annotations

import pytest

from tests.envelope.conftest import each_rm, every_version, read, refusal
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import Limits
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.elements import CreateSequence, SequenceHeader
from wsrm_mq.sequence.faults import (
    ActionNotSupported,
    AddressingHeaderRequired,
    CreateSequenceRefused,
    InvalidAddressingHeader,
    MalformedMessage,
    NotUnderstood,
    VersionMismatch,
)
from wsrm_mq.testing import EnvelopeFactory
from wsrm_mq.versions import (
    MAX_MESSAGE_NUMBER,
    WSA_2004,
    WSA_2005,
    WSRM_1_0,
    WSRM_1_1,
    AddressingVersion,
    RMVersion,
    SOAPVersion,
)

ID = "urn:uuid:6f1f4b1e-2a8e-4f0a-9b59-8f8c2f4f2a11"
PLAIN = EnvelopeFactory(WSRM_1_1, SOAPVersion.SOAP_1_2, WSA_2005)
OLD = EnvelopeFactory(WSRM_1_0, SOAPVersion.SOAP_1_1, WSA_2004)
STRICT = Limits(strict_addressing=True)
PUT = '<p:put xmlns:p="urn:example:orders"/>'


# the document


@pytest.mark.parametrize(
    ("document", "status"),
    [
        (b"", 400),
        (b"hello", 400),
        (b'{"json": true}', 400),
        (b"<html/>", 400),
        (b"<Envelope/>", 400),
        (b"<?xml version='1.0'?><!-- only this -->", 400),
        (PLAIN.message(ID, 1).replace(b"</soap:Header>", b""), None),
        (PLAIN.message(ID, 1).replace(b"soap:Header", b"soap:Headers"), None),
        (PLAIN.message(ID, 1).replace(b"soap:Body", b"soap:Content"), None),
        (b"<x:Header xmlns:x='urn:example:s'/>", 400),
        (b"\xff\xfe\xfd", 400),
        (PLAIN.message(ID, 1).replace(b"urn:example:orders/put", b"\xc3\x28"), 400),
        (PLAIN.message(ID, 1).replace(b"urn:example:orders/put", b"&unknown;"), 400),
    ],
)
def test_what_is_no_soap_envelope_is_malformed(document: bytes, status: int | None) -> None:
    error = refusal(PLAIN, document)
    assert isinstance(error.fault, MalformedMessage)
    assert error.status == status


def test_another_envelope_version_is_a_version_mismatch() -> None:
    error = refusal(PLAIN, b'<e:Envelope xmlns:e="http://www.w3.org/2001/12/soap-envelope"><e:Body/></e:Envelope>')
    assert isinstance(error.fault, VersionMismatch)
    assert error.status is None
    assert error.context is None


@every_version
def test_a_document_that_breaks_off_in_the_header_is_refused_wherever_it_breaks(speak: EnvelopeFactory) -> None:
    envelope = speak.message(ID, 1)
    end = envelope.index(b"<p:put") + len(b'<p:put xmlns:p="urn:example:orders"')
    for length in range(end):
        assert isinstance(refusal(speak, envelope[:length]).fault, MalformedMessage)
    assert read(speak, envelope[: end + 1]).sequence == SequenceHeader(ID, 1)


def test_a_second_header_or_a_stranger_before_body_is_refused() -> None:
    envelope = PLAIN.message(ID, 1)
    for stray in (b"<soap:Header/>", b"<stray/>", b"<stray><soap:Body/></stray>"):
        assert isinstance(
            refusal(PLAIN, envelope.replace(b"<soap:Body>", stray + b"<soap:Body>")).fault, MalformedMessage
        )
        assert isinstance(
            refusal(PLAIN, envelope.replace(b"<soap:Header>", stray + b"<soap:Header>")).fault, MalformedMessage
        )


def test_a_body_hidden_inside_a_header_block_is_refused() -> None:
    hidden = '<q:box xmlns:q="urn:example:q"><soap:Body><q:x/></soap:Body></q:box>'
    envelope = PLAIN.envelope("urn:example:put", headers=hidden + PLAIN.sequence_header(ID, 1))
    assert isinstance(refusal(PLAIN, envelope).fault, MalformedMessage)


@pytest.mark.parametrize(
    "prolog",
    [
        b"<!DOCTYPE e>",
        b'<!DOCTYPE e SYSTEM "file:///etc/passwd">',
        b'<!DOCTYPE e PUBLIC "-//x" "http://127.0.0.1:9/x.dtd">',
        b'<!DOCTYPE e [<!ENTITY a "x">]>',
        b'<!DOCTYPE e [<!ENTITY a SYSTEM "file:///etc/passwd"><!ENTITY % p SYSTEM "http://127.0.0.1:9/"> %p;]>',
        b"<!DOCTYPE e [" + b"".join(b'<!ENTITY l%d "%s">' % (n, b"&l%d;" % (n - 1) * 10) for n in range(1, 12)) + b"]>",
    ],
)
@pytest.mark.parametrize("is_rm", [True, False])
def test_a_document_type_declaration_is_refused_before_anything_else(prolog: bytes, is_rm: bool) -> None:
    envelope = PLAIN.message(ID, 1) if is_rm else PLAIN.envelope("urn:example:put")
    error = refusal(PLAIN, prolog + envelope)
    assert error.fault.reason == "A document type declaration is not allowed in a SOAP message."
    assert error.status == 400


@pytest.mark.parametrize("before", [b"<soap:Envelope", b"<soap:Header>", b"<wsa:Action>", b"<soap:Body>"])
def test_a_processing_instruction_is_refused(before: bytes) -> None:
    envelope = PLAIN.message(ID, 1).replace(before, b'<?xml-stylesheet href="x"?>' + before, 1)
    assert "processing instruction" in refusal(PLAIN, envelope).fault.reason


def test_xinclude_and_schema_locations_are_only_text() -> None:
    block = (
        '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="file:///etc/hostname" parse="text"/>'
        '<q:x xmlns:q="urn:q" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
        ' xsi:schemaLocation="urn:q http://127.0.0.1:9/q.xsd"/>'
    )
    assert read(PLAIN, PLAIN.message(ID, 1, headers=block)).sequence == SequenceHeader(ID, 1)


# the Sequence header


@pytest.mark.spec("D-SEQ-013")
@pytest.mark.parametrize(
    "number",
    ["0", "+0", "000", "-1", "", " ", "abc", "1.0", "1e3", "0x1", "1 2", "++1", "+", "-0", "٣", "１", "1_0", "<b/>1"],
)
@each_rm
def test_a_message_number_that_is_none_is_refused(rm: RMVersion, speak: EnvelopeFactory, number: str) -> None:
    fault = refusal(speak, speak.message(ID, number)).fault
    assert isinstance(fault, MalformedMessage)
    assert fault.identifier == ID


@pytest.mark.spec("D-SEQ-014")
@pytest.mark.parametrize("number", [" 7 ", "007", "+7", "\n+007\t", "7<!-- seven -->"])
@each_rm
def test_other_spellings_of_7_are_7(rm: RMVersion, speak: EnvelopeFactory, number: str) -> None:
    assert read(speak, speak.message(ID, number)).sequence == SequenceHeader(ID, 7)


@each_rm
def test_numbers_of_64_bits_are_read_exactly_and_larger_ones_refused(speak: EnvelopeFactory) -> None:
    for number in (MAX_MESSAGE_NUMBER, MAX_MESSAGE_NUMBER + 1, 2**64 - 1):
        assert read(speak, speak.message(ID, "0" * 30 + str(number))).sequence == SequenceHeader(ID, number)
    for text in (str(2**64), "9" * 21, "1" + "0" * 100_000):
        assert isinstance(refusal(speak, speak.message(ID, text)).fault, MalformedMessage)


@pytest.mark.parametrize(
    "identifier",
    [
        "",
        " ",
        "orders-1",
        "/orders/1",
        "1:x",
        "urn:",
        "urn:a b",
        "urn:a\n b",
        "urn:a&lt;b",
        'urn:a"b',
        "urn:a<c/>",
        "urn:a\x7f",
    ],
)
@each_rm
def test_an_identifier_that_is_no_absolute_uri_is_refused(speak: EnvelopeFactory, identifier: str) -> None:
    assert isinstance(refusal(speak, speak.message(identifier, 1)).fault, MalformedMessage)
    assert isinstance(refusal(speak, speak.terminate(identifier)).fault, MalformedMessage)
    assert isinstance(refusal(speak, speak.ack_requested(identifier)).fault, MalformedMessage)
    assert isinstance(refusal(speak, speak.create_sequence(offer=identifier)).fault, CreateSequenceRefused)


def test_identifiers_may_hold_1024_bytes_of_utf_8() -> None:
    longest = "urn:" + "x" * 1020
    assert read(PLAIN, PLAIN.message(longest, 1)).sequence == SequenceHeader(longest, 1)
    for too_long in (longest + "x", "urn:" + "é" * 511):
        assert "1024 bytes" in refusal(PLAIN, PLAIN.message(too_long, 1)).fault.reason


def test_a_sequence_header_needs_both_children_once() -> None:
    one = "<wsrm:Identifier>urn:example:a</wsrm:Identifier>"
    for envelope in (
        PLAIN.message(None, 1),
        PLAIN.message(ID, None),
        PLAIN.message(ID, 1).replace(b"<wsrm:MessageNumber>", one.encode() + b"<wsrm:MessageNumber>"),
        PLAIN.message(ID, "1</wsrm:MessageNumber><wsrm:MessageNumber>2"),
    ):
        assert isinstance(refusal(PLAIN, envelope).fault, MalformedMessage)


@every_version
def test_two_sequence_headers_are_refused(speak: EnvelopeFactory) -> None:
    envelope = speak.message(ID, 1, headers=speak.sequence_header("urn:example:second", 1))
    error = refusal(speak, envelope)
    assert error.fault == MalformedMessage("The message has more than one Sequence header.")


def test_a_last_message_marker_is_refused_in_1_1_and_with_content() -> None:
    assert "1.0 only" in refusal(PLAIN, PLAIN.message(ID, 1, last=True)).fault.reason
    for content in ("x", "<q/>"):
        assert "has to be empty" in refusal(OLD, OLD.message(ID, 1, last=content)).fault.reason


# versions


def test_both_rm_namespaces_in_one_envelope_are_refused() -> None:
    other = f'<o:AckRequested xmlns:o="{WSRM_1_0.namespace}"><o:Identifier>{ID}</o:Identifier></o:AckRequested>'
    in_body = (
        f'<o:TerminateSequence xmlns:o="{WSRM_1_0.namespace}"><o:Identifier>{ID}</o:Identifier></o:TerminateSequence>'
    )
    for envelope in (
        PLAIN.message(ID, 1, headers=other),
        PLAIN.message(ID, 1, body=in_body),
        PLAIN.message(ID, 1, action=WSRM_1_0.action("TerminateSequence")),
    ):
        assert "mixes the namespaces" in refusal(PLAIN, envelope).fault.reason


def test_both_addressing_versions_in_one_envelope_are_refused() -> None:
    speak = PLAIN.having(rm=WSRM_1_0)
    other = f'<o:MessageID xmlns:o="{WSA_2004.namespace}">urn:example:m</o:MessageID>'
    assert isinstance(refusal(speak, speak.message(ID, 1, headers=other)).fault, InvalidAddressingHeader)


@pytest.mark.parametrize("soap", SOAPVersion)
def test_rm_1_1_with_addressing_2004_is_refused_with_the_reason(soap: SOAPVersion) -> None:
    speak = EnvelopeFactory(WSRM_1_1, soap, WSA_2004)
    for envelope in (speak.create_sequence(), speak.message(ID, 1), speak.close(ID), speak.ack_requested(ID)):
        error = refusal(speak, envelope)
        assert error.fault.reason == ("WS-ReliableMessaging 1.1 needs WS-Addressing 1.0; this message uses 2004/08.")
        assert isinstance(error.context, Headers)
        assert error.context.addressing is WSA_2004


def test_an_endpoint_reference_in_the_other_addressing_version_refuses_the_sequence() -> None:
    acks_to = f'<o:Address xmlns:o="{WSA_2004.namespace}">{WSA_2004.anonymous}</o:Address>'
    assert isinstance(refusal(PLAIN, PLAIN.create_sequence(acks_to=acks_to)).fault, CreateSequenceRefused)


# addressing


@pytest.mark.parametrize("header", ["Action", "To", "MessageID", "ReplyTo", "FaultTo"])
@each_rm
def test_an_addressing_header_that_comes_twice_is_refused(speak: EnvelopeFactory, header: str) -> None:
    value = "<wsa:Address>urn:example:e</wsa:Address>" if header in ("ReplyTo", "FaultTo") else "urn:example:v"
    twice = f"<wsa:{header}>{value}</wsa:{header}>" * 2
    fault = refusal(speak, speak.message(ID, 1, headers=twice)).fault
    assert isinstance(fault, InvalidAddressingHeader)
    assert (fault.header, fault.detail_code) == (header, "InvalidCardinality")


@every_version
def test_action_is_required(speak: EnvelopeFactory) -> None:
    for action in (None, "", "  "):
        fault = refusal(speak, speak.message(ID, 1, action=action)).fault
        assert isinstance(fault, AddressingHeaderRequired)
        assert fault.header == "Action"


@pytest.mark.parametrize("speak", [PLAIN, OLD])
def test_an_rm_header_without_any_addressing_needs_an_action(speak: EnvelopeFactory) -> None:
    envelope = (
        f'<soap:Envelope xmlns:soap="{speak.soap.namespace}" xmlns:wsrm="{speak.rm.namespace}">'
        f"<soap:Header>{speak.sequence_header(ID, 1)}</soap:Header><soap:Body>{PUT}</soap:Body></soap:Envelope>"
    ).encode()
    assert isinstance(refusal(speak, envelope).fault, AddressingHeaderRequired)


def test_to_is_required_under_2004_08_and_anonymous_without_under_1_0() -> None:
    fault = refusal(OLD, OLD.having(to=None).message(ID, 1)).fault
    assert isinstance(fault, AddressingHeaderRequired)
    assert fault.header == "To"
    assert read(PLAIN, PLAIN.having(to=None).message(ID, 1)).to is None


@every_version
def test_message_id_is_required_of_lifecycle_requests_only_when_strict(speak: EnvelopeFactory) -> None:
    requests = [speak.create_sequence(message_id=None)]
    if speak.rm.has_close:
        requests += [speak.close(ID, message_id=None), speak.terminate(ID, message_id=None)]
    for envelope in requests:
        assert read(speak, envelope).message_id is None
        fault = refusal(speak, envelope, STRICT).fault
        assert isinstance(fault, AddressingHeaderRequired)
        assert fault.header == "MessageID"


@each_rm
def test_a_one_way_message_needs_no_message_id_even_when_strict(speak: EnvelopeFactory) -> None:
    assert read(speak, speak.message(ID, 1, message_id=None), STRICT).sequence == SequenceHeader(ID, 1)


def test_reply_to_is_required_on_create_sequence_under_2004_08_only_when_strict() -> None:
    envelope = OLD.create_sequence(reply_to=None)
    assert read(OLD, envelope).reply_anonymous
    fault = refusal(OLD, envelope, STRICT).fault
    assert isinstance(fault, AddressingHeaderRequired)
    assert fault.header == "ReplyTo"
    assert read(PLAIN, PLAIN.create_sequence(reply_to=None), STRICT).reply_anonymous


@pytest.mark.parametrize(
    ("reply_to", "code"),
    [
        ("<wsa:Metadata/>", "MissingAddressInEPR"),
        ("<wsa:Address/>", "InvalidAddress"),
        ("<wsa:Address>nowhere</wsa:Address>", "InvalidAddress"),
        ("<wsa:Address>urn:a:b</wsa:Address><wsa:Address>urn:a:c</wsa:Address>", "InvalidCardinality"),
    ],
)
def test_an_unusable_reply_to_is_refused(reply_to: str, code: str) -> None:
    fault = refusal(PLAIN, PLAIN.message(ID, 1, reply_to=reply_to)).fault
    assert isinstance(fault, InvalidAddressingHeader)
    assert (fault.header, fault.detail_code) == ("ReplyTo", code)


@pytest.mark.parametrize("said", ['"urn:example:orders/put"', "urn:example:orders/put", '""', "", None, ' "" '])
def test_a_soap_action_that_agrees_or_is_empty_is_accepted(said: str | None) -> None:
    speak = PLAIN.having(soap=SOAPVersion.SOAP_1_1)
    assert scan(speak.message(ID, 1), "text/xml", said).sequence == SequenceHeader(ID, 1)


def test_a_different_soap_action_is_an_action_mismatch_under_addressing_1_0() -> None:
    speak = PLAIN.having(soap=SOAPVersion.SOAP_1_1)
    with pytest.raises(EnvelopeError) as raised:
        scan(speak.message(ID, 1), "text/xml", '"urn:example:orders/get"')
    assert raised.value.fault.detail_code == "ActionMismatch"  # type: ignore[attr-defined]
    assert scan(OLD.message(ID, 1), "text/xml", '"urn:example:orders/get"').sequence == SequenceHeader(ID, 1)


def test_soap_1_2_compares_the_action_parameter_and_not_soap_action() -> None:
    envelope = PLAIN.message(ID, 1)
    for parameter in ('; action="urn:example:orders/put"', "; ACTION=urn:example:orders/put", '; action=""', ""):
        assert scan(envelope, f"application/soap+xml{parameter}", '"urn:example:else"').sequence is not None
    with pytest.raises(EnvelopeError) as raised:
        scan(envelope, 'application/soap+xml; charset=utf-8; action="urn:example:orders/get"', None)
    assert raised.value.fault.detail_code == "ActionMismatch"  # type: ignore[attr-defined]


# action and body


@each_rm
def test_an_rm_action_with_another_body_is_refused(speak: EnvelopeFactory) -> None:
    wrong = {
        "TerminateSequence": PUT,
        "AckRequested": PUT,
        "SequenceAcknowledgement": PUT,
        "CreateSequenceResponse": "",
        **({"CloseSequence": "<wsrm:TerminateSequence/>"} if speak.rm.has_close else {"LastMessage": PUT}),
    }
    for local, body in wrong.items():
        fault = refusal(speak, speak.envelope(speak.rm.action(local), body)).fault
        assert isinstance(fault, MalformedMessage), local


@pytest.mark.parametrize("body", ["", PUT, "<wsrm:TerminateSequence/>"])
@every_version
def test_the_action_of_create_sequence_with_another_body_refuses_the_sequence(
    rm: RMVersion, speak: EnvelopeFactory, body: str
) -> None:
    fault = refusal(speak, speak.envelope(rm.action("CreateSequence"), body)).fault
    assert isinstance(fault, CreateSequenceRefused)


@each_rm
def test_an_rm_body_with_an_application_action_is_refused(speak: EnvelopeFactory) -> None:
    for envelope in (speak.create_sequence(), speak.terminate(ID)):
        envelope = envelope.replace(b"<wsa:Action>", b"<wsa:Action>urn:example:").replace(b"urn:example:http", b"urn:x")
        fault = refusal(speak, envelope).fault
        assert isinstance(fault, ActionNotSupported)


@each_rm
def test_an_rm_action_that_does_not_exist_is_not_supported(speak: EnvelopeFactory) -> None:
    for local in ("", "Sequence", "createSequence", "SequenceInfo", "CreateSequence/"):
        assert isinstance(refusal(speak, speak.envelope(speak.rm.action(local), "")).fault, ActionNotSupported)


def test_close_sequence_does_not_exist_in_1_0() -> None:
    for action in (WSRM_1_0.action("CloseSequence"), "urn:example:close"):
        envelope = OLD.close(ID).replace(WSRM_1_0.action("CloseSequence").encode(), action.encode())
        assert isinstance(refusal(OLD, envelope).fault, ActionNotSupported)


def test_a_last_message_and_a_response_do_not_exist_in_the_other_version() -> None:
    assert isinstance(refusal(PLAIN, PLAIN.last_message(ID, 1)).fault, ActionNotSupported)
    response = (
        f"<wsrm:TerminateSequenceResponse><wsrm:Identifier>{ID}</wsrm:Identifier></wsrm:TerminateSequenceResponse>"
    )
    envelope = OLD.envelope(WSRM_1_0.action("TerminateSequenceResponse"), response)
    assert isinstance(refusal(OLD, envelope).fault, ActionNotSupported)


@each_rm
def test_create_sequence_as_a_header_block_is_refused(rm: RMVersion, speak: EnvelopeFactory) -> None:
    block = f"<wsrm:CreateSequence><wsrm:AcksTo>{speak.endpoint('')}</wsrm:AcksTo></wsrm:CreateSequence>"
    for action, body in (("urn:example:put", PUT), (rm.action("CreateSequence"), "")):
        envelope = speak.envelope(action, body, headers=block)
        assert isinstance(refusal(speak, envelope).fault, MalformedMessage)


MAKE_CONNECTION = "http://docs.oasis-open.org/ws-rx/wsmc/200702"
NEXT = {
    SOAPVersion.SOAP_1_1: 'soap:actor="http://schemas.xmlsoap.org/soap/actor/next"',
    SOAPVersion.SOAP_1_2: 'soap:role="http://www.w3.org/2003/05/soap-envelope/role/next"',
}
ULTIMATE = 'soap:role="http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver"'
ELSEWHERE = {SOAPVersion.SOAP_1_1: 'soap:actor="urn:x:gateway"', SOAPVersion.SOAP_1_2: 'soap:role="urn:x:gateway"'}


@pytest.mark.spec("D-SEQ-025")
@pytest.mark.parametrize("name", ["wsrm:Unheard", "wsa:Nonsense", "soap:Nonsense", "mc:MakeConnection", "mc:Nonsense"])
@every_version
def test_an_unknown_header_in_a_namespace_that_is_known_counts_if_it_is_mandatory_and_for_us(
    speak: EnvelopeFactory, name: str
) -> None:
    prefix, local = name.split(":")
    namespaces = {
        "wsrm": speak.rm.namespace,
        "wsa": speak.addressing.namespace,
        "soap": speak.soap.namespace,
        "mc": MAKE_CONNECTION,
    }

    def headers(attributes: str) -> str:
        return f'<{name} xmlns:mc="{MAKE_CONNECTION}" {attributes}/>'

    roles = ["", NEXT[speak.soap]] + [ULTIMATE] * (speak.soap is SOAPVersion.SOAP_1_2)
    for role in roles:
        envelope = speak.message(ID, 1, headers=headers(f'soap:mustUnderstand="1" {role}'))
        assert refusal(speak, envelope).fault == NotUnderstood(
            "A mandatory header block was not understood.", headers=((namespaces[prefix], local),)
        )
    for attributes in ("", 'soap:mustUnderstand="0"', f'soap:mustUnderstand="1" {ELSEWHERE[speak.soap]}'):
        assert read(speak, speak.message(ID, 1, headers=headers(attributes))).sequence is not None


@pytest.mark.spec("SEC-008")
@pytest.mark.parametrize("marker", ["UsesSequenceSTR", "UsesSequenceSSL"])
@every_version
def test_what_binds_a_sequence_is_not_understood_where_none_is_created(speak: EnvelopeFactory, marker: str) -> None:
    """Passed over, the sender would take the sequence for one that is bound."""

    def marked(is_mandatory: int) -> list[bytes]:
        headers = f'<wsrm:{marker} soap:mustUnderstand="{is_mandatory}"/>'
        return [speak.message(ID, 1, headers=headers), speak.terminate(ID, headers=headers)]

    expected = NotUnderstood("A mandatory header block was not understood.", headers=((speak.rm.namespace, marker),))
    assert [refusal(speak, envelope).fault for envelope in marked(1)] == [expected] * 2
    assert [read(speak, envelope).is_rm for envelope in marked(0)] == [True] * 2


# lifecycle bodies


@each_rm
def test_create_sequence_without_a_usable_acks_to_is_refused(speak: EnvelopeFactory) -> None:
    for acks_to in (None, "<wsa:Address/>", "<q/>", "<wsa:Address>somewhere</wsa:Address>"):
        assert isinstance(refusal(speak, speak.create_sequence(acks_to=acks_to)).fault, CreateSequenceRefused)


@pytest.mark.parametrize("expires", ["-PT5S", "-P1D", "PT", "P", "abc", "", "600", "P1.5D", "PT1H30"])
def test_an_expires_that_is_negative_or_no_duration_refuses_the_sequence(expires: str) -> None:
    assert isinstance(refusal(PLAIN, PLAIN.create_sequence(expires=expires)).fault, CreateSequenceRefused)
    offered = f"<wsrm:Offer><wsrm:Identifier>{ID}</wsrm:Identifier><wsrm:Expires>{expires}</wsrm:Expires></wsrm:Offer>"
    assert isinstance(refusal(PLAIN, PLAIN.create_sequence(extra=offered)).fault, CreateSequenceRefused)


@pytest.mark.parametrize("expires", [None, "PT0S", "P0D", "-PT0S", "P0Y0M0DT0H0M0.000S"])
def test_any_zero_expires_means_never(expires: str | None) -> None:
    body = read(PLAIN, PLAIN.create_sequence(expires=expires)).body
    assert isinstance(body, CreateSequence)
    assert body.expires is None


def test_an_unknown_behaviour_in_an_offer_refuses_the_sequence() -> None:
    offer = (
        f"<wsrm:Offer><wsrm:Identifier>{ID}</wsrm:Identifier><wsrm:Endpoint>{PLAIN.endpoint('')}</wsrm:Endpoint>"
        "<wsrm:IncompleteSequenceBehavior>Discard</wsrm:IncompleteSequenceBehavior></wsrm:Offer>"
    )
    assert isinstance(refusal(PLAIN, PLAIN.create_sequence(extra=offer)).fault, CreateSequenceRefused)


@pytest.mark.parametrize("number", ["0", "-3", "", "x", str(MAX_MESSAGE_NUMBER + 1), str(2**64)])
def test_a_malformed_last_number_is_refused(number: str) -> None:
    for envelope in (PLAIN.close(ID, number), PLAIN.terminate(ID, number)):
        fault = refusal(PLAIN, envelope).fault
        assert isinstance(fault, MalformedMessage)
        assert fault.identifier == ID


def test_a_lifecycle_body_that_breaks_off_is_refused() -> None:
    envelope = PLAIN.close(ID, 3)
    end = envelope.index(b"</wsrm:CloseSequence>") + len(b"</wsrm:CloseSequence>")
    for length in range(envelope.index(b"<wsrm:CloseSequence>"), end):
        assert isinstance(refusal(PLAIN, envelope[:length]).fault, MalformedMessage)
    assert read(PLAIN, envelope[:end]).body is not None


# what is known in spite of it


@pytest.mark.parametrize("addressing", [WSA_2004, WSA_2005])
def test_a_refusal_knows_what_could_be_read(addressing: AddressingVersion) -> None:
    speak = EnvelopeFactory(WSRM_1_0, SOAPVersion.SOAP_1_1, addressing)
    error = refusal(speak, speak.message(ID, "abc", message_id="urn:example:m9", reply_to=""))
    context = error.context
    assert isinstance(context, Headers)
    assert (context.soap, context.addressing, context.rm) == (speak.soap, addressing, WSRM_1_0)
    assert context.message_id == "urn:example:m9"
    assert context.reply_anonymous
    assert context.sequence is None


def test_a_refusal_of_a_broken_document_knows_the_headers_before_the_break() -> None:
    envelope = PLAIN.message(ID, 1, message_id="urn:example:m9", headers="<broken>")
    context = refusal(PLAIN, envelope).context
    assert isinstance(context, Headers)
    assert context.message_id == "urn:example:m9"
    assert context.rm is WSRM_1_1
