"""Reference parameters are kept as XML that stands alone, and become header blocks again."""

from __future__ import annotations

import pytest
from lxml import etree

from tests.envelope.conftest import every_version, read, refusal
from wsrm_mq.envelope.render import sequence_acknowledgement
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import Limits
from wsrm_mq.sequence.elements import CreateSequence, EndpointReference, SequenceAcknowledgement
from wsrm_mq.sequence.faults import CreateSequenceRefused, InvalidAddressingHeader
from wsrm_mq.testing import EnvelopeFactory, Reply
from wsrm_mq.versions import (
    MAKE_CONNECTION_NAMESPACE,
    WSA_2004,
    WSA_2005,
    WSRM_1_0,
    WSRM_1_1,
    AddressingVersion,
    RMVersion,
    SOAPVersion,
)

PLAIN = EnvelopeFactory()
OLD = EnvelopeFactory(WSRM_1_0, SOAPVersion.SOAP_1_1, WSA_2004)


def reference(*parameters: str, container: str = "ReferenceParameters") -> str:
    inside = "".join(parameters)
    return f"<wsa:Address>http://peer/acks</wsa:Address><wsa:{container}>{inside}</wsa:{container}>"


def acks_to(speak: EnvelopeFactory, *parameters: str, **options: str) -> EndpointReference:
    body = read(speak, speak.create_sequence(acks_to=reference(*parameters, **options))).body
    assert isinstance(body, CreateSequence)
    assert body.acks_to is not None
    return body.acks_to


def canonical(xml: str) -> bytes:
    return etree.tostring(etree.fromstring(xml), method="c14n", exclusive=True)


@every_version
def test_a_parameter_keeps_its_text_its_prefixes_and_their_meaning(speak: EnvelopeFactory) -> None:
    parameter = '<q:id xmlns:q="urn:example:q" q:kind="q:a">q:value &amp; <![CDATA[<raw>]]><q:in/></q:id>'
    (kept,) = acks_to(speak, parameter).parameters
    assert kept == parameter


def test_declarations_around_a_parameter_come_with_it() -> None:
    envelope = PLAIN.create_sequence(acks_to=reference('<q:id kind="r:a">r:b</q:id>', "<plain><q:x/></plain>"))
    envelope = envelope.replace(b"<soap:Body>", b'<soap:Body xmlns:q="urn:q?a=1&amp;b" xmlns:r="urn:r" xmlns="urn:d">')
    body = read(PLAIN, envelope).body
    assert isinstance(body, CreateSequence)
    assert body.acks_to is not None
    first, second = map(etree.fromstring, body.acks_to.parameters)
    assert first.tag == "{urn:q?a=1&b}id"
    assert first.nsmap["r"] == "urn:r"
    assert [second.tag, second[0].tag] == ["{urn:d}plain", "{urn:q?a=1&b}x"]


def test_the_nearest_declaration_of_a_prefix_counts() -> None:
    outer = '<q:a xmlns:q="urn:inner">1</q:a>'
    container = f'<wsa:ReferenceParameters xmlns:q="urn:outer">{outer}<q:b/></wsa:ReferenceParameters>'
    envelope = PLAIN.create_sequence(acks_to=f"<wsa:Address>http://peer/</wsa:Address>{container}")
    body = read(PLAIN, envelope).body
    assert isinstance(body, CreateSequence)
    assert body.acks_to is not None
    assert [etree.fromstring(p).tag for p in body.acks_to.parameters] == ["{urn:inner}a", "{urn:outer}b"]


def test_reference_properties_of_2004_08_are_kept_as_well() -> None:
    both = reference('<q:p xmlns:q="urn:q"/>', container="ReferenceProperties") + (
        '<wsa:ReferenceParameters><q:r xmlns:q="urn:q"/></wsa:ReferenceParameters>'
    )
    body = read(OLD, OLD.create_sequence(acks_to=both)).body
    assert isinstance(body, CreateSequence)
    assert body.acks_to == EndpointReference("http://peer/acks", ('<q:p xmlns:q="urn:q"/>', '<q:r xmlns:q="urn:q"/>'))


def test_parameters_of_several_references_are_not_mixed_up() -> None:
    fault_to = reference('<q:fault xmlns:q="urn:q">ü</q:fault>')
    envelope = PLAIN.create_sequence(
        acks_to=reference('<q:acks xmlns:q="urn:q"/>'),
        reply_to=reference('<q:reply xmlns:q="urn:q"/>', '<q:reply2 xmlns:q="urn:q"/>'),
        headers=f"<wsa:FaultTo>{fault_to}</wsa:FaultTo>",
    )
    headers = scan(envelope.decode().encode("utf-16"), "application/soap+xml")
    assert isinstance(headers.body, CreateSequence)
    assert headers.body.acks_to is not None
    assert headers.body.acks_to.parameters == ('<q:acks xmlns:q="urn:q"/>',)
    assert headers.reply_to is not None
    assert headers.reply_to.parameters == ('<q:reply xmlns:q="urn:q"/>', '<q:reply2 xmlns:q="urn:q"/>')
    assert headers.fault_to is not None
    assert headers.fault_to.parameters == ('<q:fault xmlns:q="urn:q">ü</q:fault>',)


@pytest.mark.parametrize(
    "namespace",
    [
        *(v.namespace for v in SOAPVersion),
        WSA_2004.namespace,
        WSA_2005.namespace,
        WSRM_1_0.namespace,
        WSRM_1_1.namespace,
        MAKE_CONNECTION_NAMESPACE,
        "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd",
        "",
    ],
)
def test_a_parameter_that_would_pose_as_one_of_our_headers_is_dropped(namespace: str) -> None:
    assert acks_to(PLAIN, f'<Action xmlns="{namespace}">x</Action>', '<q:p xmlns:q="urn:q"/>').parameters == (
        '<q:p xmlns:q="urn:q"/>',
    )


def test_parameters_are_bounded_in_size_and_declarations() -> None:
    large = '<q:p xmlns:q="urn:q">' + "x" * 9_000 + "</q:p>"
    assert isinstance(refusal(PLAIN, PLAIN.create_sequence(acks_to=reference(large))).fault, CreateSequenceRefused)
    fault = refusal(PLAIN, PLAIN.message("urn:a:b", 1, reply_to=reference(large))).fault
    assert isinstance(fault, InvalidAddressingHeader)
    assert read(PLAIN, PLAIN.message("urn:a:b", 1, reply_to=reference(large)), Limits(parameter_bytes=10_000)).reply_to
    crowd = "<q" + "".join(f" xmlns:p{n}='urn:p'" for n in range(1_000)) + "/>"
    crowded = PLAIN.create_sequence(acks_to=reference('<q:p xmlns:q="urn:q"/>'), headers=crowd)
    assert isinstance(refusal(PLAIN, crowded).fault, CreateSequenceRefused)


@every_version
def test_parameters_become_header_blocks_of_what_is_sent_there(
    rm: RMVersion, addressing: AddressingVersion, speak: EnvelopeFactory
) -> None:
    parameter = '<q:id xmlns:q="urn:example:q" q:kind="a">7</q:id>'
    to = acks_to(speak, parameter, '<r xmlns="urn:r"/>')
    ack = SequenceAcknowledgement("urn:a:b", ((1, 2),))
    message = sequence_acknowledgement(speak.soap, addressing, rm, [ack], to=to)
    assert Reply.parse(message).to == "http://peer/acks"
    header = etree.fromstring(message)[0]
    echoed = [e for e in header if etree.QName(e).namespace in ("urn:example:q", "urn:r")]
    assert [(e.tag, e.text) for e in echoed] == [("{urn:example:q}id", "7"), ("{urn:r}r", None)]
    mark = f"{{{WSA_2005.namespace}}}IsReferenceParameter"
    assert [e.get(mark) for e in echoed] == [None if addressing is WSA_2004 else "true"] * 2
    for element in echoed:
        element.attrib.pop(mark, None)
    assert canonical(etree.tostring(echoed[0]).decode()) == canonical(parameter)
