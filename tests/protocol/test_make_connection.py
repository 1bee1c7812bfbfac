"""WS-MakeConnection: what a client without an address of its own may ask for, and where its messages go meanwhile."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.support.orders import Orders
from tests.support.source import Source, in_1_0, in_1_1, in_one_version
from wsrm_mq.testing import HTTPAnswer, ReplyFault
from wsrm_mq.versions import SOAPVersion

from .conftest import Servers

NAMESPACE = "http://docs.oasis-open.org/ws-rx/wsmc/200702"


def new_address() -> str:
    """As a client makes it for itself."""
    return f"{NAMESPACE}/anonymous?id={uuid.uuid4()}"


def poll(source: Source, *addresses: str, **options: Any) -> HTTPAnswer:
    return source.post(source.speak.make_connection(*addresses, **options))


def fault_of(answer: HTTPAnswer) -> ReplyFault:
    """A fault whose code is Receiver, in the form of its SOAP version (conformance §2.2)."""
    fault = answer.reply.fault
    assert answer.status == 500
    assert fault is not None
    if answer.reply.soap is SOAPVersion.SOAP_1_1:
        assert fault.code == ""  # there is room for one code: the most particular
    else:
        assert fault.code == "Receiver"
    assert answer.elements("SequenceFault") == []
    return fault


def qname(element: Any) -> tuple[str, str]:
    prefix, _, local = element.text.rpartition(":")
    return element.nsmap[prefix] if prefix else "", local


# nothing waits


@pytest.mark.spec("MC-002", "MC-013", "SEC-029")
@in_1_1
def test_where_nothing_waits_the_answer_is_empty_for_a_known_address_and_a_random_one(source: Source) -> None:
    address = new_address()
    source.create(acks_to=address, reply_to=address)
    before = source.store.everything()
    known, random = poll(source, address), poll(source, new_address())
    assert (known.status, known.body) == (202, b"")
    assert (random.status, random.body, random.fields.keys()) == (known.status, known.body, known.fields.keys())
    assert source.store.everything() == before


@pytest.mark.spec("MC-013")
@in_1_1
def test_an_endpoint_that_takes_rm_traffic_only_is_polled(servers: Servers, speak: Orders) -> None:
    with Source(servers(require_rm=True), speak) as source:
        assert poll(source, new_address()).status == 202


@pytest.mark.spec("MC-003")
@pytest.mark.parametrize("address", ["http://127.0.0.1:9/callback", "urn:example:me", f"{NAMESPACE}/anonymous?id="])
@in_one_version
def test_an_address_that_is_none_of_make_connection_gets_nothing(address: str, source: Source) -> None:
    assert poll(source, address).status == 202


# the selection


@pytest.mark.spec("MC-004", "MC-018", "RSP-006")
@pytest.mark.parametrize("addresses", [(), ("",), ("  ",)])
@in_1_1
def test_without_an_address_it_gets_missing_selection(addresses: tuple[str, ...], source: Source) -> None:
    answer = poll(source, *addresses, message_id="urn:example:1")
    fault = fault_of(answer)
    assert (fault.subcode, fault.namespace) == ("MissingSelection", NAMESPACE)
    assert answer.reply.relates_to == "urn:example:1"
    assert answer.reply.action == f"{NAMESPACE}/fault"


@pytest.mark.spec("MC-005", "MC-018", "RSP-007")
@pytest.mark.parametrize("with_address", [True, False])
@in_1_1
def test_a_selection_by_anything_else_gets_unsupported_selection(with_address: bool, source: Source) -> None:
    addresses = (new_address(),) if with_address else ()
    identifier = "<wsrm:Identifier>urn:uuid:00000000-0000-4000-8000-000000000000</wsrm:Identifier>"
    own = '<x:Topic xmlns:x="urn:example:select?a=1&amp;b=2">news</x:Topic><Plain xmlns="">x</Plain>'
    answer = poll(source, *addresses, selections=identifier + own)
    fault = fault_of(answer)
    assert (fault.subcode, fault.namespace) == ("UnsupportedSelection", NAMESPACE)
    assert answer.reply.action == f"{NAMESPACE}/fault"
    assert [qname(e) for e in answer.elements("UnsupportedElement")] == [
        (source.speak.rm.namespace, "Identifier"),
        ("urn:example:select?a=1&b=2", "Topic"),
        ("", "Plain"),
    ]
    (body,) = answer.tree[-1]
    detail = "detail" if source.speak.soap is SOAPVersion.SOAP_1_1 else "Detail"
    assert [child.tag.rpartition("}")[2] for child in body][-1] == detail


@pytest.mark.spec("MC-005")
@in_one_version
def test_a_fault_names_no_more_selections_than_a_few(source: Source) -> None:
    answer = poll(source, selections="".join(f'<x:T{n} xmlns:x="urn:example:{n}"/>' for n in range(500)))
    assert len(answer.elements("UnsupportedElement")) == 16


@pytest.mark.spec("MC-005")
@in_one_version
def test_more_than_one_address_is_malformed(source: Source) -> None:
    fault = poll(source, new_address(), new_address()).reply.fault
    assert fault is not None
    assert fault.code == "Sender"


@pytest.mark.parametrize("action", ["urn:example:orders/put", f"{NAMESPACE}/Other"])
@in_one_version
def test_make_connection_under_another_action_is_refused(action: str, source: Source) -> None:
    envelope = source.speak.make_connection(new_address())
    answer = source.post(envelope.replace(f"{NAMESPACE}/MakeConnection<".encode(), f"{action}<".encode()))
    fault = answer.reply.fault
    assert fault is not None
    assert fault.subcode == "ActionNotSupported"


# where it is not for


@pytest.mark.spec("MC-020")
@in_1_0
def test_a_sequence_of_1_0_has_none_of_it(source: Source) -> None:
    refused = source.post(source.speak.create_sequence(acks_to=new_address())).reply.fault
    assert refused is not None
    assert refused.subcode == "CreateSequenceRefused"
    identifier = source.create()
    answer = poll(source, new_address(), headers=source.speak.ack_requested_header(identifier))
    assert answer.reply.fault is not None
    assert "WS-MakeConnection goes with 1.1" in answer.reply.fault.reason


# on the response that is open


@pytest.mark.spec("MC-008", "MC-011", "MC-012")
@in_1_1
def test_what_a_request_asks_for_comes_on_its_own_response_where_that_is_in_time(source: Source) -> None:
    address, offered = new_address(), uuid.uuid4().urn
    speak = source.speak
    answer = source.post(
        speak.create_sequence(acks_to=address, reply_to=address, offer=offered, offer_endpoint=address)
    )
    created = answer.reply.created
    assert created is not None
    assert created.accept == speak.to
    assert answer.reply.to == address
    identifier = created.identifier
    assert source.put(identifier, 1, reply_to=address).reply.ack.ranges == ((1, 1),)
    reply = source.echo(identifier, 2, "two", reply_to=address).reply
    assert (reply.body_name, reply.ack.ranges) == ("echoResponse", ((1, 2),))
    assert reply.sequence is not None
    assert (reply.sequence.identifier, reply.sequence.number) == (offered, 1)
    closed = source.close(identifier, 2, reply_to=address)
    assert (closed.reply.body_name, closed.reply.to) == ("CloseSequenceResponse", address)
    ended = source.terminate(identifier, 2, reply_to=address)
    assert (ended.reply.body_name, ended.reply.to) == ("TerminateSequenceResponse", address)


@pytest.mark.spec("MC-012", "F-022")
@pytest.mark.parametrize("options", [{}, {"decoupled": ["127.0.0.1"]}], ids=["", "decoupled"])
@in_1_1
def test_a_fault_to_an_address_of_make_connection_comes_on_the_response(
    options: dict[str, Any], servers: Servers, speak: Orders
) -> None:
    address = new_address()
    to = f"<wsa:FaultTo>{speak.endpoint(address)}</wsa:FaultTo>"
    with Source(servers(**options), speak) as source:
        answer = source.put("urn:uuid:00000000-0000-4000-8000-000000000000", 1, headers=to)
    assert answer.reply.fault is not None
    assert answer.reply.fault.subcode == "UnknownSequence"
    assert answer.reply.to == address


@pytest.mark.spec("MC-013")
@in_1_1
def test_what_rides_on_make_connection_is_answered(source: Source) -> None:
    address, speak = new_address(), source.speak
    identifier = source.create(acks_to=address)
    source.put(identifier, 1)
    answer = poll(source, address, headers=speak.ack_requested_header(identifier))
    assert answer.reply.ack.ranges == ((1, 1),)
