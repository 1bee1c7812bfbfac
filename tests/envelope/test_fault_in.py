"""Whose fault a reply is, and the code that the service gave it."""

from __future__ import annotations

import pytest

from wsrm_mq.envelope.rewrite import ServiceFault, excerpt, fault_in
from wsrm_mq.sequence.faults import FaultCode

TYPES = {"1.1": "text/xml; charset=utf-8", "1.2": "application/soap+xml; charset=utf-8"}
NAMESPACES = {"1.1": "http://schemas.xmlsoap.org/soap/envelope/", "1.2": "http://www.w3.org/2003/05/soap-envelope"}


def envelope(soap: str, body: str) -> bytes:
    return (
        f'<s:Envelope xmlns:s="{NAMESPACES[soap]}" xmlns:acme="urn:acme"><s:Body>{body}</s:Body></s:Envelope>'
    ).encode()


def soap_1_1(code: str) -> bytes:
    return envelope("1.1", f"<s:Fault><faultcode>{code}</faultcode><faultstring>no</faultstring></s:Fault>")


def soap_1_2(code: str, subcode: str = "") -> bytes:
    inner = f"<s:Subcode><s:Value>{subcode}</s:Value></s:Subcode>" if subcode else ""
    return envelope("1.2", f"<s:Fault><s:Code><s:Value>{code}</s:Value>{inner}</s:Code></s:Fault>")


@pytest.mark.parametrize(
    ("reply", "whose", "code"),
    [
        (soap_1_1("s:Client"), FaultCode.SENDER, "Client"),
        (soap_1_1(" Client "), FaultCode.SENDER, "Client"),
        (soap_1_1("s:Client.NoStock"), FaultCode.SENDER, "Client.NoStock"),
        (soap_1_1("s:Server"), FaultCode.RECEIVER, "Server"),
        (soap_1_1("acme:Server"), FaultCode.SENDER, "Server"),
        (soap_1_1("acme:NoStock"), FaultCode.SENDER, "NoStock"),
        (soap_1_1(""), FaultCode.SENDER, None),
        (soap_1_2("s:Sender"), FaultCode.SENDER, "Sender"),
        (soap_1_2("s:Sender", "acme:NoStock"), FaultCode.SENDER, "Sender.NoStock"),
        (soap_1_2("s:Receiver", "acme:Away"), FaultCode.RECEIVER, "Receiver.Away"),
        (soap_1_2("s:Receiver").partition(b"</s:Code>")[0], FaultCode.RECEIVER, "Receiver"),
        (envelope("1.1", "<s:Fault/>"), FaultCode.RECEIVER, None),
    ],
)
def test_a_fault_says_whose_it_is_and_has_the_code_of_the_service(
    reply: bytes, whose: FaultCode, code: str | None
) -> None:
    soap = "1.2" if b"soap-envelope" in reply else "1.1"
    assert fault_in(reply, TYPES[soap]) == ServiceFault(whose, code)


@pytest.mark.parametrize("reply", [b"", b"<html/>", b"not XML", envelope("1.1", "<acme:Fault/>"), b"<!DOCTYPE x><x/>"])
def test_what_is_no_fault_of_soap_is_none(reply: bytes) -> None:
    assert fault_in(reply, TYPES["1.1"]) is None


def test_a_body_of_parts_without_a_root_is_no_fault() -> None:
    assert fault_in(soap_1_1("s:Client"), "multipart/related; boundary=b") is None


def test_what_a_fault_says_is_in_its_body_however_much_stands_in_its_header() -> None:
    header = f"<s:Header><acme:Security>{'k' * 5_000}</acme:Security></s:Header><s:Body>"
    reply = soap_1_1("s:Client").replace(b"<s:Body>", header.encode())
    assert excerpt(reply) == "s:Client no"
    assert excerpt(b"it is none") == "it is none"
