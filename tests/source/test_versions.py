"""All that leaves for a destination is of the versions of its sequence, to the last element. What is expected is
written out: the package's own tables of versions could be wrong on both sides at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import pytest
from lxml import etree

from tests.protocol.test_literals import MEDIA_TYPE, RM_1_0, RM_1_1, SOAP_1_1, SOAP_1_2, WSA_1_0
from tests.protocol.test_literals import WSA_2004 as WSA_OF_2004
from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, THERE, Partner, Said, envelope
from tests.source.test_acknowledgements import silent
from tests.source.test_replies import ask
from tests.source.test_sending import send
from tests.support.source import OPPOSITES
from wsrm_mq.errors import BadRequest, ConfigurationError
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.testing import EnvelopeFactory, Reply
from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_1

RM: Final = {"1.0": RM_1_0, "1.1": RM_1_1}
NAMESPACES: Final = {"1.0": {RM_1_0, SOAP_1_1, WSA_OF_2004}, "1.1": {RM_1_1, SOAP_1_2, WSA_1_0}}
LIFECYCLE: Final = {
    "1.0": {"CreateSequence", "LastMessage", "TerminateSequence"},
    "1.1": {"CreateSequence", "CloseSequence", "TerminateSequence"},
}
"""The messages about sequences that an RM Source sends: local names, which end their Actions too."""

_SCHEMA: Final = """
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:r="{rm}" targetNamespace="{rm}"
    elementFormDefault="qualified">
  <xs:element name="Identifier" type="xs:anyURI"/>
  <xs:element name="Expires" type="xs:duration"/>
  <xs:simpleType name="Number"><xs:restriction base="xs:unsignedLong"><xs:minInclusive value="1"/>
    <xs:maxInclusive value="9223372036854775807"/></xs:restriction></xs:simpleType>
  <xs:complexType name="Reference"><xs:sequence>
    <xs:any namespace="##other" processContents="skip" maxOccurs="unbounded"/></xs:sequence></xs:complexType>
  <xs:element name="CreateSequence"><xs:complexType><xs:sequence>
    <xs:element name="AcksTo" type="r:Reference"/><xs:element ref="r:Expires" minOccurs="0"/>
    <xs:element name="Offer" minOccurs="0"><xs:complexType><xs:sequence>
      <xs:element ref="r:Identifier"/>{endpoint}<xs:element ref="r:Expires" minOccurs="0"/>
    </xs:sequence></xs:complexType></xs:element>
  </xs:sequence></xs:complexType></xs:element>
  <xs:element name="Sequence"><xs:complexType><xs:sequence>
    <xs:element ref="r:Identifier"/><xs:element name="MessageNumber" type="r:Number"/>{last}</xs:sequence>
    <xs:anyAttribute namespace="##other" processContents="skip"/></xs:complexType></xs:element>
  <xs:element name="AckRequested"><xs:complexType><xs:sequence><xs:element ref="r:Identifier"/></xs:sequence>
  </xs:complexType></xs:element>
  <xs:element name="SequenceAcknowledgement"><xs:complexType><xs:sequence>
    <xs:element ref="r:Identifier"/>
    <xs:element name="AcknowledgementRange" maxOccurs="unbounded"><xs:complexType>
      <xs:attribute name="Lower" type="r:Number" use="required"/>
      <xs:attribute name="Upper" type="r:Number" use="required"/></xs:complexType></xs:element>
  </xs:sequence></xs:complexType></xs:element>
  {close}<xs:element name="TerminateSequence" type="r:Ending"/>
  <xs:complexType name="Ending"><xs:sequence><xs:element ref="r:Identifier"/>{highest}</xs:sequence></xs:complexType>
</xs:schema>"""
"""What a source may send of the published schemas, written anew: names, order, cardinality and types."""


def schema(label: str) -> etree.XMLSchema:
    is_1_1 = label == "1.1"
    text = _SCHEMA.format(
        rm=RM[label],
        endpoint='<xs:element name="Endpoint" type="r:Reference"/>' if is_1_1 else "",
        last="" if is_1_1 else '<xs:element name="LastMessage" minOccurs="0"><xs:complexType/></xs:element>',
        close='<xs:element name="CloseSequence" type="r:Ending"/>' if is_1_1 else "",
        highest='<xs:element name="LastMsgNumber" type="r:Number" minOccurs="0"/>' if is_1_1 else "",
    )
    return etree.XMLSchema(etree.fromstring(text))


class Left(NamedTuple):
    """A request as it left."""

    fields: Mapping[str, str]
    body: bytes

    @property
    def read(self) -> Reply:
        return Reply.parse(self.body)


@pytest.fixture
def conversation(open_source: Open, partner: Partner) -> list[Left]:
    """All that leaves for two sequences: a request that is replied to in the offered one, one that is sent again, and
    the end of each, in 1.1 by a close."""
    left: list[Left] = []
    offered: list[str] = []
    unheard = [partner.answered(202)]
    rm = partner.speak.rm

    def says(received: Reply) -> Said:
        if received.action == rm.action("CreateSequence"):
            offered.append(received.body.findtext("{*}Offer/{*}Identifier"))
        if received.sequence is None or received.action != ACTION or received.body.text == "c":
            return None
        if received.body.text == "b":
            return unheard.pop() if unheard else None
        partner.answer(received)
        relates = f"<wsa:RelatesTo>{received.message_id}</wsa:RelatesTo>"
        action = f"{ACTION}Response"
        return partner.answered(
            200, partner.speak.message(offered[-1], 1, "<r/>", action=action, headers=relates, reply_to=None)
        )

    def post(url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answer:
        left.append(Left(dict(headers), body))
        return partner.post(url, headers, body, who)

    partner.says = says
    source = open_source(post=post, offers=True)
    source.reply(ask(source, "a"), 5)
    send(source, "b")
    assert source.in_time()
    assert source.end(THERE, 5)
    assert partner.within(lambda: partner.saying("TerminateSequence"))
    send(source, "c")
    assert source.flush(5)
    assert source.at_rest()
    source.close_sequence(THERE)
    assert not rm.has_close or partner.within(lambda: len(partner.saying("TerminateSequence")) == 2)
    return left


@pytest.mark.spec("NS-003", "A-001", half="source")
def test_each_message_about_a_sequence_has_the_action_of_its_version_and_an_address(
    conversation: list[Left], partner: Partner
) -> None:
    label = partner.speak.rm.label
    said = [one.read for one in conversation]
    assert {one.action for one in said} == {ACTION, *(f"{RM[label]}/{local}" for local in LIFECYCLE[label])}
    assert {one.to for one in said} == {THERE}
    for one in said:
        if one.action == f"{RM[label]}/LastMessage":
            assert one.body is None
        elif one.action != ACTION:
            assert one.body.tag == f"{{{RM[label]}}}{(one.action or '').rpartition('/')[2]}"


@pytest.mark.spec("NS-006", "NS-008", "NS-010", "RSP-003", half="source")
def test_all_that_leaves_is_valid_by_the_schema_of_its_version(conversation: list[Left], partner: Partner) -> None:
    label = partner.speak.rm.label
    valid, seen = schema(label), set()
    for one in conversation:
        root = etree.fromstring(one.body)
        blocks = [*root.iterfind("{*}Header/{*}*"), *root.iterfind("{*}Body/{*}*")]
        for block in blocks:
            name = etree.QName(block)
            assert name.namespace in {*NAMESPACES[label], "urn:example:orders"}
            if name.namespace == RM[label]:
                valid.assertValid(etree.fromstring(etree.tostring(block)))
                seen.add(name.localname)
            mandatory = block.get(f"{{{etree.QName(root).namespace}}}mustUnderstand")
            assert mandatory == ("1" if name.localname == "Sequence" else None)
    found = LIFECYCLE[label] - {"LastMessage"} | {"Sequence", "AckRequested", "SequenceAcknowledgement"}
    assert seen == found


@pytest.mark.spec("H-015", half="source")
def test_the_fields_of_http_say_what_the_envelope_says(conversation: list[Left]) -> None:
    for fields, body in conversation:
        soap, action = etree.QName(etree.fromstring(body)).namespace, Reply.parse(body).action
        media_type, _, parameters = fields["Content-Type"].partition("; ")
        assert media_type == MEDIA_TYPE[soap or ""]
        if soap == SOAP_1_1:
            assert (parameters, fields["SOAPAction"]) == ("charset=utf-8", f'"{action}"')
        else:
            assert (parameters, fields.get("SOAPAction")) == (f'charset=utf-8; action="{action}"', None)


@pytest.mark.spec("A-014", "RSP-010", half="source")
def test_each_message_has_an_id_of_its_own_and_a_resend_the_one_that_it_had(conversation: list[Left]) -> None:
    by_id: dict[str | None, list[Reply]] = {}
    for one in conversation:
        by_id.setdefault(one.read.message_id, []).append(one.read)
    assert None not in by_id
    again = [sent for sent in by_id.values() if len(sent) > 1]
    assert [[one.body.text for one in sent] for sent in again] == [["b", "b"]]
    first, second = again[0]
    assert (first.sequence, first.action, first.to) == (second.sequence, second.action, second.to)
    assert etree.tostring(first.body) == etree.tostring(second.body)
    places = [sent[0].sequence for sent in by_id.values() if sent[0].sequence is not None]
    assert len(places) == len(set(places)), "each number has one message"


@pytest.mark.spec("S-CRE-013")
def test_acknowledgements_replies_and_the_offered_sequence_have_one_address(
    conversation: list[Left], partner: Partner
) -> None:
    """WCF refuses to create a sequence else."""
    for one in conversation:
        if one.read.body_name == "CreateSequence":
            root = etree.fromstring(one.body)
            places = ["Header/{*}ReplyTo", "Body/*/{*}AcksTo", "Body/*/{*}Offer/{*}Endpoint"]
            found = [root.findtext(f"{{*}}{place}/{{*}}Address") for place in places]
            expected = [partner.speak.anonymous] * 3 if partner.speak.rm is WSRM_1_1 else [partner.speak.anonymous] * 2
            assert [address for address in found if address is not None] == expected


@pytest.mark.spec("NS-006", "RSP-012", half="source")
def test_a_sequence_keeps_its_versions_although_the_program_speaks_others_by_now(
    open_source: Open, partner: Partner
) -> None:
    first = partner.speak
    other = next(EnvelopeFactory(*each) for each in OPPOSITES if each[0] is not first.rm)
    silent(partner)
    before = open_source()
    send(before, "a", "b")
    assert partner.within(lambda: len(partner.places) == 2)
    assert before.at_rest()
    before.close()

    def says(received: Reply) -> None:
        partner.speak = first if received.rm is first.rm else other

    partner.says = says
    source = open_source(rm=other.rm.label, addressing=other.addressing.label)
    source.send(envelope(other, "c"), to=THERE, action=ACTION)
    assert source.in_time()
    for received in partner.received:
        speak = first if received.rm is first.rm else other
        assert (received.soap, received.addressing) == (speak.soap, speak.addressing)
    spoken = {one.body.text: one.rm for one in partner.received if one.action == ACTION}
    assert spoken == {"a": first.rm, "b": first.rm, "c": other.rm}


@pytest.mark.spec("RSP-008", half="source")
@pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm1.1"])
def test_with_1_1_nothing_but_addressing_1_0_leaves(open_source: Open, partner: Partner) -> None:
    with pytest.raises(ConfigurationError, match=r"write 1\.0"):
        open_source(addressing="2004/08")
    source = open_source()
    with pytest.raises(BadRequest, match="is to be spoken with"):
        source.send(partner.speak.having(addressing=WSA_2004).envelope(ACTION), to=THERE)
    send(source, "a")
    assert source.flush(5)
    assert not any(WSA_OF_2004.encode() in body for body in partner.bodies)


@pytest.mark.spec("A-007", half="source")
def test_the_anonymous_address_of_the_other_addressing_is_an_address_like_any_other(
    source: Source, partner: Partner
) -> None:
    """No request leaves that is replied to there."""
    speak = partner.speak
    other = WSA_2005 if speak.addressing is WSA_2004 else WSA_2004
    with pytest.raises(BadRequest, match="replies come on responses only"):
        source.send(speak.envelope(ACTION, reply_to=other.anonymous), to=THERE)
    assert partner.bodies == []
    source.send(speak.envelope(ACTION, reply_to=speak.anonymous), to=THERE)
    assert source.flush(5)
    assert [one.action for one in partner.received] == [speak.rm.action("CreateSequence"), ACTION]
