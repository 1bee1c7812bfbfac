"""A fault that arrives is read wherever a stack puts its code and the sequence it is about."""

from __future__ import annotations

import io

import pytest

from tests.envelope.conftest import every_version, read
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import Limits
from wsrm_mq.sequence.elements import SequenceFault
from wsrm_mq.testing import EnvelopeFactory
from wsrm_mq.versions import MAKE_CONNECTION, WSA_2004, WSRM_1_0, WSRM_1_1, SOAPVersion

ID = "urn:uuid:6f1f4b1e-2a8e-4f0a-9b59-8f8c2f4f2a11"
PLAIN = EnvelopeFactory()
OLD = EnvelopeFactory(WSRM_1_0, SOAPVersion.SOAP_1_1, WSA_2004)
ABOUT = f"<wsrm:Identifier>{ID}</wsrm:Identifier>"


def fault(speak: EnvelopeFactory, code: str, detail: str = ABOUT, *, action: str | None = None) -> bytes:
    """A fault of WS-RM, as the SOAP version has it."""
    headers, action = "", action or speak.rm.fault_action(speak.addressing)
    if speak.soap is SOAPVersion.SOAP_1_1:
        headers = f"<wsrm:SequenceFault><wsrm:FaultCode>{code}</wsrm:FaultCode>{detail}</wsrm:SequenceFault>"
        body = "<soap:Fault><faultcode>soap:Client</faultcode><faultstring>no</faultstring></soap:Fault>"
    else:
        subcode = f"<soap:Subcode><soap:Value>{code}</soap:Value></soap:Subcode>"
        body = (
            f"<soap:Fault><soap:Code><soap:Value>soap:Sender</soap:Value>{subcode}</soap:Code>"
            f"<soap:Detail>{detail}</soap:Detail></soap:Fault>"
        )
    return speak.envelope(action, body, headers=headers)


@every_version
def test_its_code_and_its_sequence_are_found(speak: EnvelopeFactory) -> None:
    headers = read(speak, fault(speak, "wsrm:UnknownSequence"))
    assert (headers.rm, headers.body) == (speak.rm, SequenceFault("UnknownSequence", ID))
    assert scan(io.BytesIO(fault(speak, "wsrm:UnknownSequence")), speak.content_type).body == headers.body


def test_the_code_of_soap_1_1_may_stand_in_the_fault_itself() -> None:
    body = "<soap:Fault><faultcode>wsrm:WSRMRequired</faultcode><faultstring>no</faultstring></soap:Fault>"
    assert read(OLD, OLD.envelope("urn:any", body)).body == SequenceFault("WSRMRequired", None)


def test_a_fault_of_make_connection_is_one_of_1_1() -> None:
    code = "<soap:Subcode><soap:Value>m:MissingSelection</soap:Value></soap:Subcode>"
    body = (
        f'<soap:Fault xmlns:m="{MAKE_CONNECTION.namespace}"><soap:Code><soap:Value>soap:Receiver</soap:Value>{code}'
        "</soap:Code></soap:Fault>"
    )
    headers = read(PLAIN, PLAIN.envelope(MAKE_CONNECTION.fault_action, body))
    assert (headers.rm, headers.body) == (WSRM_1_1, SequenceFault("MissingSelection", None))


@pytest.mark.parametrize("identifier", ["no uri", "urn:" + "x" * 2_000, ""])
def test_an_identifier_that_is_none_names_no_sequence(identifier: str) -> None:
    detail = f"<wsrm:Identifier>{identifier}</wsrm:Identifier>"
    assert read(PLAIN, fault(PLAIN, "wsrm:SequenceTerminated", detail)).body == SequenceFault(
        "SequenceTerminated", None
    )


@pytest.mark.parametrize("speak", [PLAIN, OLD], ids=["1.1", "1.0"])
def test_a_code_that_is_not_ours_under_what_is_ours_has_no_name(speak: EnvelopeFactory) -> None:
    own = fault(speak, "q:Other", ABOUT.replace("<wsrm", '<wsrm:x xmlns:q="urn:q"/><wsrm', 1))
    assert read(speak, own).body == SequenceFault("", ID)


def test_the_application_s_fault_is_its_own() -> None:
    for body in ("<soap:Fault/>", "<soap:Fault><faultcode>soap:Client</faultcode></soap:Fault>"):
        headers = read(OLD, OLD.envelope("urn:any", body))
        assert (headers.rm, headers.body, headers.is_fault) == (None, None, True)


def test_what_breaks_off_counts_as_far_as_it_goes() -> None:
    broken = fault(PLAIN, "wsrm:SequenceTerminated").partition(b"</soap:Subcode>")[0]
    assert read(PLAIN, broken).body == SequenceFault("SequenceTerminated", None)
    small = Limits(header_bytes=len(broken) + 1)
    assert read(PLAIN, fault(PLAIN, "wsrm:SequenceTerminated"), small).body == SequenceFault("SequenceTerminated", None)
