"""Faults that a source sends: understood wherever a stack puts them, answered with no fault, and not the service's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import InProcess
from tests.support.orders import Orders
from tests.support.orders_server import within
from tests.support.policies import At, each_front
from tests.support.source import Source, every_version, in_1_1
from wsrm_mq.versions import SOAPVersion

from .conversation import UNKNOWN

RM_1_0 = "http://schemas.xmlsoap.org/ws/2005/02/rm"
RM_1_1 = "http://docs.oasis-open.org/ws-rx/wsrm/200702"
WSA_2004_FAULT = "http://schemas.xmlsoap.org/ws/2004/08/addressing/fault"
WSA_SOAP_FAULT = "http://www.w3.org/2005/08/addressing/soap/fault"
WSA_FAULT = "http://www.w3.org/2005/08/addressing/fault"


def usual_action(speak: Orders) -> str:
    """The Action that the versions give to a fault of WS-RM."""
    if speak.rm.namespace == RM_1_1:
        return f"{RM_1_1}/fault"
    return WSA_2004_FAULT if speak.addressing.label == "2004/08" else WSA_SOAP_FAULT


def rm_fault(speak: Orders, code: str, identifier: str | None, action: str | None = "usual") -> bytes:
    """As the specification writes it: a header under SOAP 1.1, subcode and detail under SOAP 1.2."""
    detail = f"<r:Identifier>{identifier}</r:Identifier>" if identifier else ""
    declared = f'xmlns:r="{speak.rm.namespace}"'
    header = ""
    if speak.soap is SOAPVersion.SOAP_1_1:
        inner = f"<r:Detail>{detail}</r:Detail>" if speak.rm.namespace == RM_1_1 else detail
        header = f"<r:SequenceFault {declared}><r:FaultCode>r:{code}</r:FaultCode>{inner}</r:SequenceFault>"
        body = "<soap:Fault><faultcode>soap:Client</faultcode><faultstring>over</faultstring></soap:Fault>"
    else:
        body = (
            f"<soap:Fault {declared}><soap:Code><soap:Value>soap:Sender</soap:Value><soap:Subcode><soap:Value>r:{code}"
            '</soap:Value></soap:Subcode></soap:Code><soap:Reason><soap:Text xml:lang="en">over</soap:Text>'
            f"</soap:Reason><soap:Detail>{detail}</soap:Detail></soap:Fault>"
        )
    action = usual_action(speak) if action == "usual" else action
    return speak.envelope(action, body, headers=header, reply_to=None)


def plain_fault(speak: Orders, action: str) -> bytes:
    if speak.soap is SOAPVersion.SOAP_1_1:
        body = "<soap:Fault><faultcode>soap:Server</faultcode><faultstring>no</faultstring></soap:Fault>"
    else:
        body = (
            "<soap:Fault><soap:Code><soap:Value>soap:Receiver</soap:Value></soap:Code><soap:Reason>"
            '<soap:Text xml:lang="en">no</soap:Text></soap:Reason></soap:Fault>'
        )
    return speak.envelope(action, body, reply_to=None)


def ledger(source: Source, identifier: str, event: str) -> list[Any]:
    """The reasons of the rows of an event of a sequence."""
    query = (
        "select reason from ledger where event = ? and sequence = (select id from lane where identifier = ?)"
        " order by id"
    )
    return [reason for (reason,) in source.store.rows(query, event, identifier)]


@pytest.mark.spec("F-024", "F-025", "F-026")
@pytest.mark.parametrize("code", ["SequenceTerminated", "UnknownSequence"])
@each_front
@every_version
def test_a_source_that_says_its_sequence_is_gone_ends_it(code: str, at: At) -> None:
    """What was accepted is delivered as at any end, across the gap; the service sees nothing of the fault."""
    source = at()
    identifier = source.opened(1, 3)
    answer = source.post(rm_fault(source.speak, code, identifier))
    assert (answer.status, answer.body) == (202, b"")
    row = source.store.sequence(identifier)
    assert (row["state"], row["ended"]) == ("ended", "terminated")
    assert ledger(source, identifier, "fault_received") == [code]
    assert ledger(source, identifier, "ended") == [f"the source sent {code}"]
    assert source.delivered(identifier) == [1, 3]
    after = source.put(identifier, 2).reply.fault
    assert after is not None
    assert after.subcode == "UnknownSequence"
    assert source.post(rm_fault(source.speak, code, identifier)).status == 202
    assert ledger(source, identifier, "fault_received") == [code]


@pytest.mark.spec("F-024")
@pytest.mark.parametrize("code", ["InvalidAcknowledgement", "MessageNumberRollover", "SequenceClosed"])
@every_version
def test_another_fault_is_written_down_once_and_the_sequence_goes_on(code: str, at: At) -> None:
    source = at()
    identifier = source.opened(1)
    for _ in range(3):
        answer = source.post(rm_fault(source.speak, code, identifier))
        assert (answer.status, answer.body) == (202, b"")
    assert ledger(source, identifier, "fault_received") == [code]
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
    assert source.delivered(identifier) == [1, 2]


@pytest.mark.spec("F-024")
@each_front
@every_version
def test_a_fault_about_no_sequence_of_its_sender_changes_nothing(at: At) -> None:
    """An unknown sequence, another principal's, none named, an unknown code."""
    owner, stranger = at(fields=("X-User: alice",)), at(fields=("X-User: mallory",))
    identifier, speak = owner.opened(1), owner.speak
    assert owner.delivered(identifier) == [1]
    before = owner.store.everything()
    for envelope in (
        rm_fault(speak, "SequenceTerminated", UNKNOWN),
        rm_fault(speak, "SequenceTerminated", identifier),
        rm_fault(speak, "SequenceTerminated", None),
        rm_fault(speak, "Madness" * 100, identifier),
    ):
        answer = stranger.post(envelope)
        assert (answer.status, answer.body) == (202, b"")
    assert owner.post(rm_fault(speak, "Madness" * 100, identifier)).body == b""
    assert owner.store.everything() == before
    assert owner.put(identifier, 2).reply.ack.ranges == ((1, 2),)


@pytest.mark.spec("F-024")
@each_front
@every_version
def test_a_fault_is_not_answered_with_a_fault_whatever_is_wrong_with_it(at: At) -> None:
    """No Action, a mandatory header, an unknown sequence, an Action of faults around another body, one of
    WS-Addressing; also where WS-RM is required. None of them reaches the service."""
    source, speak = at(), at().speak
    identifier, before = source.opened(1), source.server.log.stat().st_size
    terminated = rm_fault(speak, "SequenceTerminated", UNKNOWN)
    mandatory = b'<x:y xmlns:x="urn:x" soap:mustUnderstand="1"/></soap:Header>'
    sequence = speak.sequence_header(UNKNOWN, 1).encode()
    envelopes = [
        rm_fault(speak, "SequenceTerminated", UNKNOWN, None),
        terminated.replace(b"</soap:Header>", mandatory),
        terminated.replace(b"</soap:Header>", sequence + b"</soap:Header>"),
        speak.envelope(f"{speak.rm.namespace}/fault", ""),
        *(plain_fault(speak, action) for action in (WSA_2004_FAULT, WSA_SOAP_FAULT, WSA_FAULT)),
        plain_fault(speak, "urn:my/fault").replace(b"</soap:Header>", sequence + b"</soap:Header>"),
    ]
    for path in ("/orders", "/needs_rm"):
        for envelope in envelopes:
            answer = at(path).post(envelope)
            assert (answer.status, answer.body) == (202, b""), envelope
    assert "Traceback" not in source.server.log.read_text()[before:]
    assert source.store.sequence(identifier)["state"] == "created"


@pytest.mark.spec("F-025")
@in_1_1
def test_a_fault_is_found_where_stacks_put_it(at: At) -> None:
    """CXF: Identifier directly below SequenceFault. A code under another prefix, an Action
    of WS-Addressing, UTF-16."""
    source, speak = at(), at().speak
    usual = rm_fault(speak, "SequenceTerminated", "urn:the-sequence")
    variants = [
        usual.replace(b"<r:Detail>", b"").replace(b"</r:Detail>", b""),
        re.sub(rb"(?<=[</>])r:|(?<=xmlns:)r(?==)", lambda m: m[0].replace(b"r", b"q"), usual),
        rm_fault(speak, "SequenceTerminated", "urn:the-sequence", WSA_SOAP_FAULT),
        usual,
    ]
    for envelope in variants:
        identifier = source.opened(1)
        content = envelope.replace(b"urn:the-sequence", identifier.encode())
        assert source.post(content).status == 202
        assert source.store.sequence(identifier)["state"] == "ended", content
    identifier = source.opened(1)
    wide = usual.replace(b"urn:the-sequence", identifier.encode()).decode().encode("utf-16")
    assert source.post(wide, content_type=f"{speak.soap.media_type}; charset=utf-16").status == 202
    assert source.store.sequence(identifier)["state"] == "ended"


@pytest.mark.spec("F-025")
@each_front
@every_version
def test_the_fault_of_a_source_is_an_event_of_the_log(at: At) -> None:
    source = at()
    identifier = source.opened(1)
    source.post(rm_fault(source.speak, "SequenceTerminated", identifier))
    told = f"sequence.fault_received sequence={identifier} reason=SequenceTerminated"
    assert told in within(5, source.server.log.read_text, lambda log: told in log)


@pytest.mark.spec("F-024")
@every_version
def test_a_fault_of_the_application_s_own_is_its_business_and_its_fault_stays_here(
    speak: Orders, tmp_path: Path
) -> None:
    """An application may speak in faults with an Action of its own; what it answers to one is not sent."""
    taken: list[bytes] = []

    def service(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        taken.append(environ["wsgi.input"].read())
        start_response("500 Internal Server Error", [("Content-Type", speak.content_type)])
        return [plain_fault(speak, "urn:my/answer")]

    server = InProcess(tmp_path, service)
    fault = plain_fault(speak, "urn:my/fault")
    assert server.post(fault, CONTENT_TYPE=speak.content_type) == ("202 Accepted", b"")
    assert taken == [fault]
    server.middleware.close()
