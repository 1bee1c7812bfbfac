"""What a fault or an acknowledgement echoes of a request is XML that every parser takes, whatever stood there."""

from __future__ import annotations

import pytest
from lxml import etree

from wsrm_mq.envelope.fault import fault
from wsrm_mq.envelope.render import reply_headers, sequence_acknowledgement
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, AddressingVersion, RMVersion, SOAPVersion

HOSTILE = [
    "\x00\x01\x08\x0b\x0c\x1f",
    "\ud800\udfff\udcff",
    "\ufffe\uffff",
    "\x7f\x85\x9f\u2028",
    "\r\n\t",
    "]]>&lt;<!--'\"--><?pi?>",
    "\U0001fffe\U0010ffff",
]
TEXT = "".join(HOSTILE)

each_version = pytest.mark.parametrize(
    ("rm", "addressing"), [(WSRM_1_0, WSA_2004), (WSRM_1_0, WSA_2005), (WSRM_1_1, WSA_2005)]
)
each_soap = pytest.mark.parametrize("soap", SOAPVersion)

FAULTS = [
    faults.UnknownSequence(TEXT, TEXT),
    faults.MessageNumberRollover(TEXT, TEXT, max_number=7),
    faults.InvalidAddressingHeader(TEXT, header=TEXT, detail_code=TEXT),
    faults.CreateSequenceRefused(TEXT),
    faults.MalformedMessage(TEXT),
    faults.NotUnderstood(TEXT, headers=(("urn:x", "a"), (TEXT, "b"), ("", "c"), ("urn:x?a&b='", "d"))),
    faults.NotUnderstood(TEXT, headers=(("http://www.w3.org/XML/1998/namespace", "lang"),)),
    faults.VersionMismatch(TEXT),
]


@each_version
@each_soap
@pytest.mark.parametrize("what", FAULTS, ids=lambda what: what.name)
def test_a_fault_is_xml_whatever_it_echoes(
    what: faults.Fault, soap: SOAPVersion, rm: RMVersion, addressing: AddressingVersion
) -> None:
    ack = SequenceAcknowledgement(TEXT, ((1, 2),))
    envelope = etree.fromstring(fault(what, soap, addressing, rm, TEXT, (ack,)))
    assert etree.QName(envelope).localname == "Envelope"


@each_version
@each_soap
def test_an_acknowledgement_is_xml_whatever_it_names(
    soap: SOAPVersion, rm: RMVersion, addressing: AddressingVersion
) -> None:
    acks = [SequenceAcknowledgement(text, ((1, 2),)) for text in HOSTILE]
    assert len(etree.fromstring(sequence_acknowledgement(soap, addressing, rm, acks))) == 2
    assert etree.fromstring(b"<all>" + reply_headers(SOAPVersion.SOAP_1_2, rm, None, acks) + b"</all>").tag == "all"


def test_a_header_in_the_namespace_of_xml_is_named_by_its_own_prefix() -> None:
    what = faults.NotUnderstood("?", headers=(("http://www.w3.org/XML/1998/namespace", "lang"), ("a b", "c")))
    envelope = etree.fromstring(fault(what, SOAPVersion.SOAP_1_2, WSA_2005, WSRM_1_1, None))
    assert [block.get("qname") for block in envelope.iter("{*}NotUnderstood")] == ["xml:lang"]
