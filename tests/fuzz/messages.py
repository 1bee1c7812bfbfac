"""Good requests of every kind, in every combination of versions, and a good WSDL: what is mutated."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from wsrm_mq.testing import EnvelopeFactory
from wsrm_mq.versions import MAKE_CONNECTION, RM_VERSIONS, SOAPVersion

DIALECTS: Final = [
    EnvelopeFactory(rm, soap, addressing)
    for rm in RM_VERSIONS.values()
    for soap in SOAPVersion
    for addressing in rm.addressings
]
PARAMETERS: Final = [
    "",
    '<q:key xmlns:q="urn:example:own">1</q:key>',
    '<q:key xmlns:q="urn:example:own" q:as="q:value"><in xmlns="">q:1</in></q:key><other xmlns="urn:example:own"/>',
    "<wsrm:Sequence><wsrm:Identifier>urn:x</wsrm:Identifier></wsrm:Sequence>",
]


class Case(NamedTuple):
    body: bytes
    content_type: str
    encoding: str = ""
    method: str = "POST"


def good(rng: random.Random, speak: EnvelopeFactory, identifiers: list[str]) -> Case:
    """A message of any kind, mostly of a sequence that there is."""
    identifier = rng.choice([*identifiers, "urn:uuid:0"])
    number = rng.choice([1, 2, 3, rng.randrange(1, 50)])
    make: dict[Callable[[], bytes], int] = {
        lambda: _creation(rng, speak): 3,
        lambda: speak.message(identifier, number): 10,
        lambda: speak.message(identifier, number, reply_to=_endpoint(rng, speak), headers=_riders(rng, speak)): 6,
        lambda: speak.ack_requested(identifier, *identifiers[:2]): 2,
        lambda: speak.acknowledgement(identifier, *_ranges(rng), nacks=rng.choice([(), (1,), (2, 3)])): 1,
        lambda: speak.terminate(identifier, reply_to=_endpoint(rng, speak)): 1,
        lambda: speak.envelope("urn:example:orders/put"): 2,
        lambda: _fault(rng, speak, identifier): 1,
        (lambda: speak.close(identifier, number))
        if speak.rm.has_close
        else (lambda: speak.last_message(identifier, number)): 1,
        lambda: _poll(rng, speak): 2,
    }
    return Case(rng.choices(list(make), list(make.values()))[0](), speak.content_type)


def _endpoint(rng: random.Random, speak: EnvelopeFactory) -> str:
    """XML of an endpoint reference, or what the factory takes for one."""
    address = rng.choice([speak.anonymous, speak.none, f"{MAKE_CONNECTION.anonymous}one", "http://127.0.0.1:1/back"])
    parameters = rng.choice(PARAMETERS)
    if not parameters:
        return rng.choice(["", address])
    container = rng.choice(["ReferenceParameters", "ReferenceParameters", "ReferenceProperties"])
    return f"<wsa:Address>{address}</wsa:Address><wsa:{container}>{parameters}</wsa:{container}>"


def _creation(rng: random.Random, speak: EnvelopeFactory) -> bytes:
    return speak.create_sequence(
        acks_to=_endpoint(rng, speak),
        reply_to=_endpoint(rng, speak),
        expires=rng.choice([None, "PT10M", "PT0S"]),
        offer=rng.choice([None, "urn:example:back"]),
        offer_endpoint=_endpoint(rng, speak),
        offer_more=rng.choice(["", "<wsrm:Expires>PT5M</wsrm:Expires>"]),
    )


def _ranges(rng: random.Random) -> tuple[tuple[int, int], ...]:
    return rng.choice([(), ((1, 1),), ((1, 3), (5, 9)), ((4, 2),), ((0, 0),)])


def _riders(rng: random.Random, speak: EnvelopeFactory) -> str:
    """What rides along with a message: an acknowledgement of replies, an address for faults."""
    acknowledgement = speak.acknowledgement_header("urn:example:back", *_ranges(rng), final=rng.random() < 0.2)
    fault_to = f"<wsa:FaultTo>{speak.endpoint(_endpoint(rng, speak))}</wsa:FaultTo>"
    return "".join(rng.sample([acknowledgement, acknowledgement, fault_to], rng.randrange(4)))


def _poll(rng: random.Random, speak: EnvelopeFactory) -> bytes:
    selection = rng.choice(
        [
            f"<m:Address>{MAKE_CONNECTION.anonymous}one</m:Address>",
            "<m:Address/>",
            "",
            "<m:Identifier>urn:x</m:Identifier>",
        ]
    )
    body = f'<m:MakeConnection xmlns:m="{MAKE_CONNECTION.namespace}">{selection}</m:MakeConnection>'
    return speak.envelope(MAKE_CONNECTION.action, body)


def _fault(rng: random.Random, speak: EnvelopeFactory, identifier: str) -> bytes:
    """A fault of WS-RM, as a destination sends it."""
    code = rng.choice(["wsrm:UnknownSequence", "wsrm:SequenceTerminated", "wsrm:InvalidAcknowledgement", "soap:Client"])
    detail = f"<wsrm:Identifier>{identifier}</wsrm:Identifier>"
    if speak.soap is SOAPVersion.SOAP_1_1:
        header = f"<wsrm:SequenceFault><wsrm:FaultCode>{code}</wsrm:FaultCode>{detail}</wsrm:SequenceFault>"
        body = "<soap:Fault><faultcode>soap:Client</faultcode><faultstring>no</faultstring></soap:Fault>"
    else:
        header = ""
        subcode = f"<soap:Subcode><soap:Value>{code}</soap:Value></soap:Subcode>"
        body = (
            f"<soap:Fault><soap:Code><soap:Value>soap:Sender</soap:Value>{subcode}</soap:Code>"
            f"<soap:Detail>{detail}</soap:Detail></soap:Fault>"
        )
    return speak.envelope(speak.rm.fault_action(speak.addressing), body, headers=header)


def description(rng: random.Random) -> Case:
    """A WSDL of a service with two operations."""
    transport = rng.choice(
        ["http://schemas.xmlsoap.org/soap/http", "http://www.w3.org/2003/05/soap/bindings/HTTP/", ""]
    )
    version = rng.choice(["soap", "soap12"])
    policy = rng.choice(["", '<p:Policy xmlns:p="http://www.w3.org/ns/ws-policy"/>'])
    return Case(_WSDL.format(transport=transport, version=version, policy=policy).encode(), "text/xml; charset=utf-8")


_WSDL: Final = """<?xml version="1.0"?>
<w:definitions xmlns:w="http://schemas.xmlsoap.org/wsdl/" xmlns:b="http://schemas.xmlsoap.org/wsdl/{version}/"
  xmlns:t="urn:example:orders" xmlns:m="http://www.w3.org/2007/05/addressing/metadata"
  targetNamespace="urn:example:orders">
  <w:documentation>orders</w:documentation>{policy}
  <w:message name="put"><w:part name="in" element="t:put"/></w:message>
  <w:message name="done"><w:part name="out" element="t:done"/></w:message>
  <w:portType name="Orders">
    <w:operation name="put"><w:input message="t:put" m:Action="urn:put"/><w:output message="t:done"/></w:operation>
    <w:operation name="note"><w:input message="t:put"/></w:operation>
  </w:portType>
  <w:binding name="Bound" type="t:Orders"><b:binding transport="{transport}"/>
    <w:operation name="put"><b:operation soapAction="urn:put"/>
      <w:input><b:body namespace="urn:x"/></w:input><w:output/></w:operation>
  </w:binding>
  <w:service name="Orders"><w:port name="One" binding="t:Bound"><b:address location="http://a/"/></w:port></w:service>
</w:definitions>"""
