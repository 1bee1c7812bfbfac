"""What a scan finds in a good envelope."""

from __future__ import annotations

import pytest

from tests.envelope.conftest import each_rm, every_version, read
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.scan import scan
from wsrm_mq.sequence.elements import (
    AckRequested,
    CloseSequence,
    CreateSequence,
    EndpointReference,
    IncompleteSequenceBehavior,
    Offer,
    SequenceAcknowledgement,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.testing import EnvelopeFactory
from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, RMVersion, SOAPVersion

ID = "urn:uuid:6f1f4b1e-2a8e-4f0a-9b59-8f8c2f4f2a11"
PLAIN = EnvelopeFactory(WSRM_1_1, SOAPVersion.SOAP_1_2, WSA_2005)
OLD = EnvelopeFactory(WSRM_1_0, SOAPVersion.SOAP_1_1, WSA_2004)


@every_version
def test_a_message_of_a_sequence_is_read_whole(speak: EnvelopeFactory) -> None:
    envelope = speak.message(ID, 7, message_id="urn:example:m7", reply_to="", ack_requested=True)
    assert read(speak, envelope) == Headers(
        soap=speak.soap,
        addressing=speak.addressing,
        rm=speak.rm,
        action="urn:example:orders/put",
        message_id="urn:example:m7",
        to=speak.to,
        reply_to=EndpointReference(speak.anonymous),
        sequence=SequenceHeader(ID, 7),
        ack_requested=(AckRequested(ID),),
        body_name=("urn:example:orders", "put"),
        charset="utf-8",
    )


@every_version
def test_a_create_sequence_is_read_from_the_body(speak: EnvelopeFactory) -> None:
    headers = read(speak, speak.create_sequence(expires="PT10M", offer="urn:example:back", acks_to="http://peer/acks"))
    endpoint = EndpointReference(speak.anonymous) if speak.rm.has_incomplete_behavior else None
    assert headers.body == CreateSequence(
        acks_to=EndpointReference("http://peer/acks"),
        expires=600_000,
        offer=Offer("urn:example:back", endpoint),
    )
    assert headers.body_name == (speak.rm.namespace, "CreateSequence")
    assert headers.reply_anonymous


def test_an_offer_of_1_1_states_its_behaviour() -> None:
    offer = (
        "<wsrm:Offer><wsrm:Identifier> urn:example:back </wsrm:Identifier>"
        "<wsrm:Endpoint><wsa:Address>http://peer/in</wsa:Address></wsrm:Endpoint><wsrm:Expires>PT0S</wsrm:Expires>"
        "<wsrm:IncompleteSequenceBehavior>DiscardEntireSequence</wsrm:IncompleteSequenceBehavior></wsrm:Offer>"
    )
    body = read(PLAIN, PLAIN.create_sequence(extra=offer)).body
    assert isinstance(body, CreateSequence)
    assert body.offer == Offer(
        "urn:example:back",
        EndpointReference("http://peer/in"),
        None,
        IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE,
    )


@each_rm
def test_terminate_has_a_last_number_in_1_1_only(speak: EnvelopeFactory) -> None:
    expected = TerminateSequence(ID, 9 if speak.rm.has_close else None)
    assert read(speak, speak.terminate(ID, 9)).body == expected
    assert read(speak, speak.terminate(ID)).body == TerminateSequence(ID)


def test_close_sequence_is_read_from_the_body() -> None:
    assert read(PLAIN, PLAIN.close(ID, 3)).body == CloseSequence(ID, 3)
    assert read(PLAIN, PLAIN.close(ID)).body == CloseSequence(ID)


@each_rm
def test_a_stand_alone_ack_requested_names_each_sequence_once(speak: EnvelopeFactory) -> None:
    headers = read(speak, speak.ack_requested(ID, "urn:example:other", ID))
    assert headers.ack_requested == (AckRequested(ID), AckRequested("urn:example:other"))
    assert headers.body_name is None


@pytest.mark.spec("D-ACK-019", versions=("1.0",))
@pytest.mark.parametrize("child", ["MessageNumber", "MaxMessageNumberUsed"])
def test_a_number_inside_ack_requested_is_ignored(child: str) -> None:
    block = (
        f"<wsrm:AckRequested><wsrm:Identifier>{ID}</wsrm:Identifier><wsrm:{child}>5</wsrm:{child}></wsrm:AckRequested>"
    )
    assert read(OLD, OLD.message(ID, 5, headers=block)).ack_requested == (AckRequested(ID),)


def test_the_last_message_marker_of_1_0_is_read() -> None:
    assert read(OLD, OLD.last_message(ID, 4)).sequence == SequenceHeader(ID, 4, last=True)
    assert read(OLD, OLD.message(ID, 4, last="\n ")).sequence == SequenceHeader(ID, 4, last=True)


ACK = "<wsrm:SequenceAcknowledgement><wsrm:Identifier>{}</wsrm:Identifier>{}</wsrm:SequenceAcknowledgement>"


@pytest.mark.parametrize(
    ("children", "expected"),
    [
        (
            '<wsrm:AcknowledgementRange Lower="1" Upper="4"/><wsrm:Final/>',
            SequenceAcknowledgement(ID, ((1, 4),), (), True),
        ),
        ('<wsrm:AcknowledgementRange Upper="2" Lower="1"/><wsrm:None/>', SequenceAcknowledgement(ID, ((1, 2),))),
        ("<wsrm:None/>", SequenceAcknowledgement(ID)),
        ("<wsrm:Nack>3</wsrm:Nack><wsrm:Nack>5</wsrm:Nack>", SequenceAcknowledgement(ID, (), (3, 5))),
        ('<wsrm:AcknowledgementRange Lower="4" Upper="1"/>', SequenceAcknowledgement(ID, ((4, 1),))),
        ('<wsrm:AcknowledgementRange Lower="0" Upper="1"/>', SequenceAcknowledgement(ID, ((0, 1),))),
    ],
)
def test_an_acknowledgement_rides_along(children: str, expected: SequenceAcknowledgement) -> None:
    """Also one that cannot be true: that is answered by the sequence."""
    headers = read(PLAIN, PLAIN.message(ID, 1, headers=ACK.format(ID, children)))
    assert headers.acknowledgements == (expected,)


@pytest.mark.parametrize(
    "children",
    [
        "",
        '<wsrm:AcknowledgementRange Lower="x" Upper="1"/>',
        '<wsrm:AcknowledgementRange Lower="1"/>',
        "<wsrm:Nack>1</wsrm:Nack><wsrm:Final/>",
        '<wsrm:Nack>1</wsrm:Nack><wsrm:AcknowledgementRange Lower="1" Upper="1"/>',
    ],
)
def test_a_malformed_acknowledgement_does_not_stop_the_message_that_carries_it(children: str) -> None:
    headers = read(PLAIN, PLAIN.message(ID, 1, headers=ACK.format(ID, children)))
    assert headers.acknowledgements == ()
    assert headers.sequence == SequenceHeader(ID, 1)


def test_nothing_acknowledged_is_range_0_to_0_in_the_1_0_of_wcf() -> None:
    block = ACK.format(ID, '<wsrm:AcknowledgementRange Lower="0" Upper="0"/>')
    assert read(OLD, OLD.message(ID, 1, headers=block)).acknowledgements == (SequenceAcknowledgement(ID),)
    assert read(PLAIN, PLAIN.message(ID, 1, headers=block)).acknowledgements == (
        SequenceAcknowledgement(ID, ((0, 0),)),
    )


@each_rm
def test_a_malformed_ack_requested_does_not_stop_the_message_that_carries_it(
    rm: RMVersion, speak: EnvelopeFactory
) -> None:
    headers = read(speak, speak.message(ID, 1, headers=speak.ack_requested_header("not a uri")))
    assert headers.ack_requested == ()
    assert headers.sequence == SequenceHeader(ID, 1)


@pytest.mark.spec("NS-004", "NS-007", half="destination")
@each_rm
def test_prefixes_and_unknown_children_do_not_matter(rm: RMVersion, speak: EnvelopeFactory) -> None:
    envelope = f"""<Envelope xmlns="{speak.soap.namespace}" xmlns:q="urn:example:extension">
      <Header q:on="header">
        <Sequence xmlns="{rm.namespace}" q:hint="1"><q:first/>
          <Identifier q:kind="uuid">{ID}</Identifier><MessageNumber>3</MessageNumber><q:more><q:deep>4</q:deep></q:more>
        </Sequence>
        <x:Action xmlns:x="{speak.addressing.namespace}" q:a="b">urn:example:put</x:Action>
        <_:To xmlns:_="{speak.addressing.namespace}">http://service.example/</_:To>
      </Header>
      <Body><put xmlns=""/></Body>
    </Envelope>""".encode()
    headers = read(speak, envelope)
    assert headers.sequence == SequenceHeader(ID, 3)
    assert headers.action == "urn:example:put"
    assert headers.body_name == ("", "put")


@pytest.mark.spec("A-013", "D-SEQ-021", versions="all")
def test_white_space_around_values_is_stripped() -> None:
    envelope = PLAIN.envelope(
        "\n urn:example:put\t",
        message_id=" urn:example:m1 ",
        reply_to="<wsa:Address>\r\n  http://peer/replies </wsa:Address>",
        headers=f"<wsa:RelatesTo> urn:example:r </wsa:RelatesTo>{PLAIN.sequence_header(f' {ID.upper()} ', ' 7 ')}",
    )
    headers = read(PLAIN, envelope)
    assert (headers.action, headers.message_id, headers.relates_to) == (
        "urn:example:put",
        "urn:example:m1",
        "urn:example:r",
    )
    assert headers.reply_to == EndpointReference("http://peer/replies")
    assert headers.sequence == SequenceHeader(ID.upper(), 7)


def test_relates_to_is_the_one_that_means_a_reply() -> None:
    blocks = (
        '<wsa:RelatesTo RelationshipType="urn:example:see-also">urn:example:a</wsa:RelatesTo>'
        "<wsa:RelatesTo>urn:example:b</wsa:RelatesTo><wsa:RelatesTo>urn:example:c</wsa:RelatesTo>"
    )
    assert read(PLAIN, PLAIN.message(ID, 1, headers=blocks)).relates_to == "urn:example:b"


def test_none_in_reply_to_is_one_way_under_addressing_1_0() -> None:
    one_way = read(PLAIN, PLAIN.message(ID, 1, reply_to="none"))
    assert one_way.is_one_way_address
    assert not one_way.reply_anonymous


@pytest.mark.spec("A-005", "A-007", half="destination", versions="all")
def test_anonymous_is_the_address_of_the_message_s_own_addressing_version() -> None:
    assert read(PLAIN, PLAIN.message(ID, 1, reply_to=None)).reply_anonymous
    assert read(PLAIN, PLAIN.message(ID, 1, reply_to=WSA_2005.anonymous)).reply_anonymous
    assert not read(PLAIN, PLAIN.message(ID, 1, reply_to=WSA_2004.anonymous)).reply_anonymous
    assert not read(OLD, OLD.message(ID, 1, reply_to=WSA_2005.anonymous)).reply_anonymous


# roles and mandatory headers


def block(extra: str) -> str:
    return f'<q:Sign xmlns:q="urn:example:security" {extra}>x</q:Sign>'


@pytest.mark.parametrize(
    ("soap", "attribute", "mandatory"),
    [
        (SOAPVersion.SOAP_1_1, 'soap:mustUnderstand="1"', True),
        (SOAPVersion.SOAP_1_1, 'soap:mustUnderstand="0"', False),
        (SOAPVersion.SOAP_1_2, 'soap:mustUnderstand=" true "', True),
        (SOAPVersion.SOAP_1_2, 'soap:mustUnderstand="false"', False),
        (SOAPVersion.SOAP_1_2, 'mustUnderstand="1"', False),
        (SOAPVersion.SOAP_1_1, 'soap:mustUnderstand="1" soap:actor=""', True),
        (SOAPVersion.SOAP_1_1, 'soap:mustUnderstand="1" soap:actor="http://schemas.xmlsoap.org/soap/actor/next"', True),
        (SOAPVersion.SOAP_1_1, 'soap:mustUnderstand="1" soap:actor="urn:example:gateway"', False),
        (SOAPVersion.SOAP_1_2, 'soap:mustUnderstand="1" soap:role="urn:example:gateway"', False),
        (
            SOAPVersion.SOAP_1_2,
            'soap:mustUnderstand="1" soap:role="http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver"',
            True,
        ),
        (
            SOAPVersion.SOAP_1_2,
            'soap:mustUnderstand="1" soap:role="http://www.w3.org/2003/05/soap-envelope/role/none"',
            False,
        ),
    ],
)
def test_mandatory_headers_for_this_role_are_named(soap: SOAPVersion, attribute: str, mandatory: bool) -> None:
    speak = PLAIN.having(soap=soap)
    headers = read(speak, speak.message(ID, 1, headers=block(attribute)))
    assert headers.must_understand == ((("urn:example:security", "Sign"),) if mandatory else ())


def test_our_own_mandatory_headers_are_not_named() -> None:
    envelope = PLAIN.message(ID, 1).replace(b"<wsa:Action>", b'<wsa:Action soap:mustUnderstand="1">')
    assert read(PLAIN, envelope).must_understand == ()


@every_version
def test_a_sequence_header_for_another_role_is_not_ours(speak: EnvelopeFactory) -> None:
    role = "actor" if speak.soap is SOAPVersion.SOAP_1_1 else "role"
    envelope = speak.message(ID, 1).replace(b"<wsrm:Sequence", f'<wsrm:Sequence soap:{role}="urn:x:y"'.encode())
    headers = read(speak, envelope)
    assert headers.sequence is None
    assert not headers.is_rm


# without RM


@every_version
def test_a_message_without_rm_is_not_judged(speak: EnvelopeFactory) -> None:
    twice = "<wsa:Action>urn:example:again</wsa:Action>"
    other = '<x:Action xmlns:x="http://www.w3.org/2005/08/addressing">urn:example:third</x:Action>'
    headers = scan(
        speak.envelope("urn:example:one", to=None, message_id=None, reply_to="no uri", headers=twice + other),
        f"{speak.content_type}; action=urn:example:else",
        "urn:example:else",
    )
    assert not headers.is_rm
    assert headers.action == "urn:example:one"
    assert headers.reply_to is None
    assert headers.body_name == ("urn:example:orders", "put")


@pytest.mark.parametrize("body", ["", " ", "text only", "<!-- nothing -->"])
def test_an_empty_body_has_no_name(body: str) -> None:
    headers = read(PLAIN, PLAIN.envelope("urn:example:ping", body))
    assert headers.body_name is None


def test_an_envelope_without_a_header_is_read() -> None:
    envelope = f'<e:Envelope xmlns:e="{PLAIN.soap.namespace}"><e:Body><x/></e:Body></e:Envelope>'.encode()
    headers = read(PLAIN, envelope)
    assert headers.body_name == ("", "x")
    assert not headers.is_rm
    assert headers.reply_anonymous


def test_a_broken_body_is_the_application_s_business() -> None:
    envelope = PLAIN.message(ID, 1, "<put>no end<") + b"\x00&nothing;"
    assert read(PLAIN, envelope).sequence == SequenceHeader(ID, 1)


def test_uses_of_security_are_named_so_that_they_can_be_refused() -> None:
    token = '<sec:SecurityTokenReference xmlns:sec="urn:example:sec"/>'
    expected = {
        "UsesSequenceSTR": PLAIN.create_sequence(headers='<wsrm:UsesSequenceSTR soap:mustUnderstand="1"/>'),
        "UsesSequenceSSL": PLAIN.create_sequence(headers="<wsrm:UsesSequenceSSL/>"),
        "SecurityTokenReference": PLAIN.create_sequence(extra=token),
        None: PLAIN.create_sequence(),
    }
    for name, envelope in expected.items():
        body = read(PLAIN, envelope).body
        assert isinstance(body, CreateSequence)
        assert body.uses_security == name


@each_rm
def test_what_is_outside_of_sequences_is_plain_and_what_is_about_them_is_not(speak: EnvelopeFactory) -> None:
    asking = speak.ack_requested_header(ID)
    assert read(speak, speak.envelope("urn:example:put")).is_plain
    assert read(speak, speak.envelope("urn:example:put", headers=asking)).is_plain
    assert not read(speak, speak.ack_requested(ID)).is_plain
    assert not read(speak, speak.message(ID, 1)).is_plain
    assert not read(speak, speak.create_sequence()).is_plain


@each_rm
def test_a_fault_under_an_action_of_the_protocol_is_no_operation(speak: EnvelopeFactory) -> None:
    own, under = (speak.envelope(action, "<soap:Fault/>") for action in ("urn:own", speak.addressing.fault_action))
    assert read(speak, own).is_fault
    assert not read(speak, own).is_protocol_fault
    assert read(speak, under).is_protocol_fault
