"""The protocol as the specifications print it: every name here is a literal, in what is sent and in what is expected.

The other tests write and read with the package's own tables of versions, which could be wrong on both sides at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest
from lxml import etree

from tests.support.orders_server import OrdersServer
from wsrm_mq.testing import HTTPAnswer, HTTPWire
from wsrm_mq.versions import WSRM_1_0, WSRM_1_1, RMVersion

RM_1_0 = "http://schemas.xmlsoap.org/ws/2005/02/rm"
RM_1_1 = "http://docs.oasis-open.org/ws-rx/wsrm/200702"
WSA_2004 = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
WSA_1_0 = "http://www.w3.org/2005/08/addressing"
SOAP_1_1 = "http://schemas.xmlsoap.org/soap/envelope/"
SOAP_1_2 = "http://www.w3.org/2003/05/soap-envelope"
ANONYMOUS = {
    WSA_2004: "http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous",
    WSA_1_0: "http://www.w3.org/2005/08/addressing/anonymous",
}
MEDIA_TYPE = {SOAP_1_1: "text/xml", SOAP_1_2: "application/soap+xml"}
FAULT_ACTION = {
    (RM_1_0, WSA_2004): "http://schemas.xmlsoap.org/ws/2004/08/addressing/fault",
    (RM_1_0, WSA_1_0): "http://www.w3.org/2005/08/addressing/soap/fault",
    (RM_1_1, WSA_1_0): "http://docs.oasis-open.org/ws-rx/wsrm/200702/fault",
}
UNKNOWN = "urn:uuid:00000000-0000-4000-8000-000000000000"

_SCHEMA = """
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:r="{rm}" targetNamespace="{rm}"
    elementFormDefault="qualified">
  <xs:element name="Identifier" type="xs:anyURI"/>
  <xs:simpleType name="Number"><xs:restriction base="xs:unsignedLong"><xs:minInclusive value="1"/>
    <xs:maxInclusive value="9223372036854775807"/></xs:restriction></xs:simpleType>
  <xs:complexType name="Nothing"/>
  <xs:element name="CreateSequenceResponse"><xs:complexType><xs:sequence>
    <xs:element ref="r:Identifier"/><xs:element name="Expires" type="xs:duration" minOccurs="0"/>{behavior}
  </xs:sequence></xs:complexType></xs:element>
  <xs:element name="SequenceAcknowledgement"><xs:complexType><xs:sequence>
    <xs:element ref="r:Identifier"/>
    <xs:choice><xs:element name="AcknowledgementRange" maxOccurs="unbounded"><xs:complexType>
      <xs:attribute name="Lower" type="r:Number" use="required"/>
      <xs:attribute name="Upper" type="r:Number" use="required"/>
    </xs:complexType></xs:element>{none}</xs:choice>{final}
  </xs:sequence></xs:complexType></xs:element>
  <xs:element name="SequenceFault"><xs:complexType><xs:sequence>
    <xs:element name="FaultCode"><xs:simpleType><xs:restriction base="xs:QName">{codes}</xs:restriction>
    </xs:simpleType></xs:element>{detail}
  </xs:sequence></xs:complexType></xs:element>{more}
</xs:schema>"""
"""What a destination may send of the published schemas, written anew: names, order, cardinality and types."""


def schema(rm: str) -> etree.XMLSchema:
    is_1_1 = rm == RM_1_1
    codes = ["SequenceTerminated", "UnknownSequence", "InvalidAcknowledgement", "MessageNumberRollover"]
    codes += ["CreateSequenceRefused", "SequenceClosed", "WSRMRequired"] if is_1_1 else ["LastMessageNumberExceeded"]
    behaviors = ("NoDiscard", "DiscardEntireSequence", "DiscardFollowingFirstGap")
    enumerated = "".join(f'<xs:enumeration value="{value}"/>' for value in behaviors)
    response = (
        '<xs:element name="{}"><xs:complexType><xs:sequence><xs:element ref="r:Identifier"/></xs:sequence>'
        "</xs:complexType></xs:element>"
    )
    inside = '<xs:element ref="r:Identifier"/><xs:any minOccurs="0" processContents="lax"/>'
    wrapped = f"<xs:complexType><xs:sequence>{inside}</xs:sequence></xs:complexType>"
    wrapped = f'<xs:element name="Detail">{wrapped}</xs:element>'
    text = _SCHEMA.format(
        rm=rm,
        behavior='<xs:element name="IncompleteSequenceBehavior" minOccurs="0"><xs:simpleType>'
        f'<xs:restriction base="xs:string">{enumerated}</xs:restriction></xs:simpleType></xs:element>'
        if is_1_1
        else "",
        none='<xs:element name="None" type="r:Nothing"/>' if is_1_1 else "",
        final='<xs:element name="Final" type="r:Nothing" minOccurs="0"/>' if is_1_1 else "",
        codes="".join(f'<xs:enumeration value="r:{code}"/>' for code in codes),
        detail=wrapped if is_1_1 else inside,
        more="".join(response.format(name) for name in ("CloseSequenceResponse", "TerminateSequenceResponse"))
        if is_1_1
        else "",
    )
    return etree.XMLSchema(etree.fromstring(text))


@dataclass
class Talk:
    """A source that writes by hand."""

    wire: HTTPWire
    rm: str
    soap: str
    wsa: str

    def post(self, action: str, header: str, body: str) -> HTTPAnswer:
        envelope = (
            f'<S:Envelope xmlns:S="{self.soap}" xmlns:A="{self.wsa}" xmlns:R="{self.rm}"><S:Header>'
            f"<A:Action>{action}</A:Action><A:MessageID>{uuid4().urn}</A:MessageID><A:To>http://service.example/</A:To>"
            f"<A:ReplyTo><A:Address>{ANONYMOUS[self.wsa]}</A:Address></A:ReplyTo>{header}</S:Header>"
            f"<S:Body>{body}</S:Body></S:Envelope>"
        ).encode()
        head = (
            f"POST /orders HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {MEDIA_TYPE[self.soap]}; charset=utf-8\r\n"
            f"Content-Length: {len(envelope)}\r\n\r\n"
        )
        return self.wire.ask(head.encode() + envelope)

    def create(self, acks_to: str = "") -> HTTPAnswer:
        address = acks_to or ANONYMOUS[self.wsa]
        body = f"<R:CreateSequence><R:AcksTo><A:Address>{address}</A:Address></R:AcksTo></R:CreateSequence>"
        return self.post(f"{self.rm}/CreateSequence", "", body)

    def put(self, identifier: str, number: int) -> HTTPAnswer:
        header = (
            f'<R:Sequence S:mustUnderstand="1"><R:Identifier>{identifier}</R:Identifier>'
            f"<R:MessageNumber>{number}</R:MessageNumber></R:Sequence>"
        )
        order = f'<t:put_order xmlns:t="urn:example:orders"><t:n>{number}</t:n></t:put_order>'
        return self.post("urn:example:orders/put_order", header, order)

    def ask(self, identifier: str) -> HTTPAnswer:
        block = f"<R:AckRequested><R:Identifier>{identifier}</R:Identifier></R:AckRequested>"
        return self.post(f"{self.rm}/AckRequested", block, "")

    def end(self, name: str, identifier: str) -> HTTPAnswer:
        body = f"<R:{name}><R:Identifier>{identifier}</R:Identifier></R:{name}>"
        return self.post(f"{self.rm}/{name}", "", body)


OPPOSITES = ((WSRM_1_0, SOAP_1_1, WSA_2004), (WSRM_1_1, SOAP_1_2, WSA_1_0))
COMBINATIONS = [
    pytest.param(
        version,
        soap,
        wsa,
        id=f"{version.label}-{MEDIA_TYPE[soap].rpartition('/')[2]}-{wsa[-18:-11]}",
        marks=() if (version, soap, wsa) in OPPOSITES else pytest.mark.long,
    )
    for version, wsa in ((WSRM_1_0, WSA_2004), (WSRM_1_0, WSA_1_0), (WSRM_1_1, WSA_1_0))
    for soap in (SOAP_1_1, SOAP_1_2)
]
every_combination = pytest.mark.parametrize(("rm", "soap", "wsa"), COMBINATIONS)


@pytest.fixture
def talk(server: OrdersServer, rm: RMVersion, soap: str, wsa: str) -> Iterator[Talk]:
    with HTTPWire(server.port) as wire:
        yield Talk(wire, {"1.0": RM_1_0, "1.1": RM_1_1}[rm.label], soap, wsa)


def conversation(talk: Talk) -> dict[str, HTTPAnswer]:
    """Each kind of answer once, by the local name of its action or fault."""
    created = talk.create()
    identifier = created.texts("Identifier")[0]
    said = {
        "CreateSequenceResponse": created,
        "nothing yet": talk.ask(identifier),
        "SequenceAcknowledgement": talk.put(identifier, 1),
        "a gap": talk.put(identifier, 4),
        "UnknownSequence": talk.put(UNKNOWN, 1),
        "CreateSequenceRefused": talk.create("http://elsewhere.example/acks"),
        "MessageNumberRollover": talk.put(talk.create().texts("Identifier")[0], 2**63),
    }
    if talk.rm == RM_1_1:
        said["CloseSequenceResponse"] = talk.end("CloseSequence", identifier)
        said["SequenceClosed"] = talk.put(identifier, 5)
        said["TerminateSequenceResponse"] = talk.end("TerminateSequence", identifier)
    return {name: answer for name, answer in said.items() if answer.body}


FAULTS = ("UnknownSequence", "MessageNumberRollover", "SequenceClosed", "CreateSequenceRefused")


@pytest.mark.spec("NS-003", "F-010", "F-011")
@every_combination
def test_every_action_is_that_of_the_specification(talk: Talk) -> None:
    said = conversation(talk)
    for name, answer in said.items():
        [action] = answer.tree.iter(f"{{{talk.wsa}}}Action")
        if name in FAULTS:
            assert action.text == FAULT_ACTION[talk.rm, talk.wsa], name
        else:
            local = {"a gap": "SequenceAcknowledgement", "nothing yet": "SequenceAcknowledgement"}.get(name, name)
            assert action.text == f"{talk.rm}/{local}", name
    assert len(said) == (10 if talk.rm == RM_1_1 else 6)


@pytest.mark.spec("NS-001", "NS-002", "NS-008")
@every_combination
def test_every_element_is_valid_by_the_schema_of_its_version(talk: Talk) -> None:
    valid, seen = schema(talk.rm), set()
    for name, answer in conversation(talk).items():
        root = answer.tree
        assert root.tag == f"{{{talk.soap}}}Envelope"
        assert set(re.findall(rb'xmlns(?::\w+)?="([^"]+)"', answer.body)) <= {
            namespace.encode() for namespace in (talk.soap, talk.wsa, talk.rm)
        }, name
        for parent in root:
            for element in parent.iterchildren(f"{{{talk.rm}}}*"):
                seen.add(etree.QName(element).localname)
                alone = etree.fromstring(etree.tostring(element))
                valid.assertValid(alone)
    wanted = {"CreateSequenceResponse", "SequenceAcknowledgement"}
    wanted |= {"SequenceFault"} if talk.soap == SOAP_1_1 else set()
    wanted |= {"CloseSequenceResponse", "TerminateSequenceResponse"} if talk.rm == RM_1_1 else set()
    assert seen == wanted


@pytest.mark.spec("F-012", "F-013", "F-014", "F-017", "F-018")
@every_combination
def test_a_fault_says_what_it_is_where_its_versions_put_it(talk: Talk) -> None:
    said = conversation(talk)
    for name in FAULTS:
        if name not in said:
            continue
        root = said[name].tree
        headers, [fault] = list(root[0]), root[1]
        blocks = [block for block in headers if block.tag == f"{{{talk.rm}}}SequenceFault"]
        if talk.soap == SOAP_1_2:
            assert blocks == []
            assert qname(fault.find(f"{{{SOAP_1_2}}}Code/{{{SOAP_1_2}}}Value")) in (
                f"{{{SOAP_1_2}}}Sender",
                f"{{{SOAP_1_2}}}Receiver",
            )
            subcode = fault.find(f"{{{SOAP_1_2}}}Code/{{{SOAP_1_2}}}Subcode/{{{SOAP_1_2}}}Value")
            assert qname(subcode) == f"{{{talk.rm}}}{name}"
            detail = fault.find(f"{{{SOAP_1_2}}}Detail")
        elif name == "CreateSequenceRefused":  # no header of a message is in error
            assert blocks == []
            assert qname(fault.find("faultcode")) == f"{{{talk.rm}}}{name}"
            continue
        else:
            [block] = blocks
            assert qname(block.find(f"{{{talk.rm}}}FaultCode")) == f"{{{talk.rm}}}{name}"
            assert qname(fault.find("faultcode")) in (f"{{{SOAP_1_1}}}Client", f"{{{SOAP_1_1}}}Server")
            assert fault.find("detail") is None
            inside = block.find(f"{{{talk.rm}}}Detail")
            assert (inside is not None) == (talk.rm == RM_1_1)
            detail = block if inside is None else inside
        if name != "CreateSequenceRefused":
            assert detail is not None
            assert detail.find(f"{{{talk.rm}}}Identifier") is not None, name


def qname(element: etree._Element | None) -> str:
    """The QName that an element's text is, with its namespace."""
    assert element is not None
    prefix, _, local = (element.text or "").strip().rpartition(":")
    return f"{{{element.nsmap[prefix or None]}}}{local}"
