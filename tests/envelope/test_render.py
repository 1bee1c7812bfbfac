"""Each message that a destination writes says what it was given, and nothing that its version lacks."""

from __future__ import annotations

import pytest
from lxml import etree

from tests.envelope.conftest import every_version
from wsrm_mq.envelope.fault import fault
from wsrm_mq.envelope.render import (
    ack_requested,
    create_sequence,
    create_sequence_response,
    ending,
    envelope,
    last_message,
    message_pending,
    own_names,
    reply_headers,
    sequence_acknowledgement,
)
from wsrm_mq.sequence.elements import (
    CloseSequence,
    EndpointReference,
    IncompleteSequenceBehavior,
    SequenceAcknowledgement,
    SequenceHeader,
    TerminateSequence,
)
from wsrm_mq.sequence.faults import (
    ActionNotSupported,
    AddressingHeaderRequired,
    Fault,
    InvalidAcknowledgement,
    InvalidAddressingHeader,
    MessageNumberRollover,
    MissingSelection,
    NotUnderstood,
    ServiceFailure,
    UnknownSequence,
    UnsupportedSelection,
    VersionMismatch,
)
from wsrm_mq.testing import Ack, Created, Place, Reply
from wsrm_mq.versions import MAKE_CONNECTION, WSA_2004, WSRM_1_0, WSRM_1_1, AddressingVersion, RMVersion, SOAPVersion

ID = "urn:a&b"
SAID = SequenceAcknowledgement(ID, ((4, 6), (1, 2)), final=True)
OWN = "{urn:q}key"
PARAMETERS = EndpointReference("http://peer/back?a&b", ('<key xmlns="urn:q" a="1">k</key>',))


def said(rm: RMVersion) -> Ack:
    return Ack(ID, ((1, 2), (4, 6)), final=rm.has_none)


@every_version
def test_an_acknowledgement_names_ranges_in_order(
    rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion
) -> None:
    for to in (None, PARAMETERS):
        reply = Reply.parse(sequence_acknowledgement(soap, addressing, rm, (SAID,), to))
        assert (reply.acks, reply.body, reply.relates_to) == ((said(rm),), None, None)
        assert reply.action == rm.action("SequenceAcknowledgement")
        assert reply.to == (addressing.anonymous if to is None else to.address)


@every_version
def test_nothing_is_acknowledged_as_the_version_has_it(
    rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion
) -> None:
    nothing = Reply.parse(sequence_acknowledgement(soap, addressing, rm, (SequenceAcknowledgement("urn:s"),)))
    assert nothing.acks == ((Ack("urn:s", none=True),) if rm.has_none else ())


@every_version
def test_nacks_stand_alone_and_room_is_told(rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion) -> None:
    lacking = SequenceAcknowledgement("urn:s", ((1, 9),), nacks=(3, 5), final=True, buffer_remaining=7)
    document = etree.fromstring(sequence_acknowledgement(soap, addressing, rm, (lacking,)))
    [block] = document.iter(f"{{{rm.namespace}}}SequenceAcknowledgement")
    assert [(etree.QName(child).localname, child.text) for child in block] == [
        ("Identifier", "urn:s"),
        ("Nack", "3"),
        ("Nack", "5"),
        ("BufferRemaining", "7"),
    ]


@every_version
def test_parameters_of_an_address_become_header_blocks_and_are_marked_where_the_version_marks_them(
    rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion
) -> None:
    document = etree.fromstring(sequence_acknowledgement(soap, addressing, rm, (SAID,), PARAMETERS))
    [block] = document.iter(OWN)
    mark = block.get(f"{{{addressing.namespace}}}IsReferenceParameter")
    assert (block.text, block.get("a"), mark) == ("k", "1", None if addressing is WSA_2004 else "true")
    assert block.getparent().tag == f"{{{soap.namespace}}}Header"


@every_version
def test_the_answer_to_a_create_sequence(rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion) -> None:
    behavior = IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE
    full = create_sequence_response(
        soap, addressing, rm, "urn:r&r", ID, expires=600_000, behavior=behavior, accept=PARAMETERS, acks=(SAID,)
    )
    reply = Reply.parse(full)
    assert reply.created is not None
    assert (reply.created.identifier, reply.created.expires) == (ID, "PT600S")
    assert reply.created.behavior == (behavior if rm.has_incomplete_behavior else None)
    assert (reply.created.accept, reply.relates_to, reply.acks) == (PARAMETERS.address, "urn:r&r", (said(rm),))
    [parameter] = etree.fromstring(full).iter(OWN)
    assert etree.QName(parameter.getparent()).localname == "ReferenceParameters"
    bare = Reply.parse(create_sequence_response(soap, addressing, rm, None, ID))
    assert (bare.created, bare.relates_to, bare.acks) == (Created(ID), None, ())


@every_version
def test_a_create_sequence_is_acknowledged_and_answered_on_responses(
    rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion
) -> None:
    root = etree.fromstring(create_sequence(soap, addressing, rm, PARAMETERS, "urn:uuid:1", 90_000))
    [to_answer] = root.iterfind(f".//{{{addressing.namespace}}}ReplyTo/{{{addressing.namespace}}}Address")
    [asked] = root.iter(f"{{{rm.namespace}}}CreateSequence")
    acks_to, expires = asked
    assert (acks_to.tag, expires.tag) == (f"{{{rm.namespace}}}AcksTo", f"{{{rm.namespace}}}Expires")
    assert [to_answer.text, acks_to[0].text] == [addressing.anonymous] * 2
    assert expires.text == "PT90S"
    assert root.findtext(f".//{{{addressing.namespace}}}Action") == rm.action("CreateSequence")
    assert root.findtext(f".//{{{addressing.namespace}}}To") == PARAMETERS.address


@pytest.mark.parametrize("rm", [WSRM_1_0, WSRM_1_1], ids=["rm1.0", "rm1.1"])
def test_an_acknowledgement_is_asked_for_by_the_identifier_alone(rm: RMVersion) -> None:
    root = etree.fromstring(ack_requested(rm, ID))
    assert [(one.tag, one.text) for one in root.iter()][1:] == [(f"{{{rm.namespace}}}Identifier", ID)]
    assert root.tag == f"{{{rm.namespace}}}AckRequested"


@every_version
def test_what_ends_a_sequence(rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion) -> None:
    endings = (CloseSequence(ID), TerminateSequence(ID))
    told = [ending(soap, addressing, rm, "urn:r", element, (SAID,), is_response=True) for element in endings]
    told.append(ending(soap, addressing, rm, "urn:r", TerminateSequence(ID), (SAID,)))
    names = ["CloseSequenceResponse", "TerminateSequenceResponse", "TerminateSequence"]
    for content, name in zip(told, names, strict=True):
        reply = Reply.parse(content)
        assert (reply.body_name, reply.action, reply.acks) == (name, rm.action(name), (said(rm),))
        assert reply.body.findtext(f"{{{rm.namespace}}}Identifier") == ID


@every_version
def test_the_place_of_a_reply_must_be_understood(
    rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion
) -> None:
    blocks = reply_headers(soap, rm, SequenceHeader(ID, 9, last=rm.has_last_message), (SAID,))
    content = last_message(soap, addressing, rm, "urn:r").replace(b"</soap:Header>", blocks + b"</soap:Header>")
    reply = Reply.parse(content)
    assert (reply.sequence, reply.acks) == (Place(ID, 9, rm.has_last_message), (said(rm),))
    [place] = etree.fromstring(content).iter(f"{{{rm.namespace}}}Sequence")
    assert place.get(f"{{{soap.namespace}}}mustUnderstand") == "1"
    assert reply_headers(soap, rm, None, ()) == b""


FAULTS = [
    UnknownSequence("no <such>", ID),
    InvalidAcknowledgement("no", ID, said=SAID),
    MessageNumberRollover("no", ID, max_number=7),
    AddressingHeaderRequired("no", header="Action"),
    InvalidAddressingHeader("no", header="Action", detail_code="ActionMismatch"),
    ActionNotSupported("no"),
    MissingSelection("no"),
    UnsupportedSelection("no", elements=(("urn:q", "x"), ("", "y"), ("no uri", "z"))),
    NotUnderstood("no", headers=(("urn:q", "x"), ("", "y"), ("no uri", "z"))),
    VersionMismatch("no"),
    ServiceFailure("no"),
]


@pytest.mark.parametrize("told", FAULTS, ids=lambda told: told.name)
@every_version
def test_each_fault_is_well_formed_and_says_its_code_and_reason(
    rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion, told: Fault
) -> None:
    for known in (addressing, None):
        reply = Reply.parse(fault(told, soap, known, rm, "urn:r", (SAID,)))
        assert reply.fault is not None
        assert reply.fault.reason == told.reason
        assert said(rm) in reply.acks
        assert (reply.action is not None) == (known is not None or told.subcode != "")


@every_version
def test_what_is_sent_is_known_by_the_message_id_and_action_that_it_was_rendered_with(
    rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion
) -> None:
    for content in (
        sequence_acknowledgement(soap, addressing, rm, (SAID,), PARAMETERS),
        create_sequence_response(soap, addressing, rm, "urn:r&r", ID, accept=PARAMETERS, to=PARAMETERS),
        ending(soap, addressing, rm, None, TerminateSequence(ID), to=PARAMETERS),
        ending(soap, addressing, rm, "urn:r", CloseSequence(ID), (SAID,), PARAMETERS, is_response=True),
        last_message(soap, addressing, rm, "urn:r", PARAMETERS),
        *(fault(told, soap, addressing, rm, "urn:r", (SAID,), PARAMETERS) for told in FAULTS),
    ):
        sent = Reply.parse(content)
        assert own_names(content) == (sent.message_id, sent.action)


@pytest.mark.parametrize("soap", SOAPVersion)
def test_what_make_connection_asks_for_in_vain_is_named(soap: SOAPVersion) -> None:
    told = UnsupportedSelection("no", elements=(("urn:q", "x"), ("", "y"), ("no uri", "z")))
    document = etree.fromstring(fault(told, soap, None, None, None))
    named = [(e.text, e.nsmap.get("n")) for e in document.iter(f"{{{MAKE_CONNECTION.namespace}}}UnsupportedElement")]
    assert named == [("n:x", "urn:q"), ("y", None)]


@pytest.mark.spec("MC-006", versions="all")
@pytest.mark.parametrize("is_pending", [True, False])
def test_a_message_that_is_fetched_says_whether_more_waits_beside_what_a_reply_says(is_pending: bool) -> None:
    rm, soap = WSRM_1_1, SOAPVersion.SOAP_1_2
    place = SequenceHeader(ID, 7)
    headers = reply_headers(soap, rm, place, [SAID]) + message_pending(is_pending)
    told = envelope(soap, headers.decode(), "")
    assert Reply.parse(told).pending is is_pending
    assert Reply.parse(told).sequence == Place(ID, 7)
