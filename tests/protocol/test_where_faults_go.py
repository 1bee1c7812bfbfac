"""A fault leaves where its request wants it: FaultTo, else ReplyTo, where that is an address that is sent to."""

from __future__ import annotations

import uuid

import pytest

from tests.protocol.conftest import Servers
from tests.protocol.test_decoupled import is_empty_202
from tests.support.endpoint import ALLOWED, Endpoint
from tests.support.orders import PUT_ORDER, Orders, put_order
from tests.support.orders_server import OrdersServer
from tests.support.source import Source, each_rm, each_rm_at_length, every_version
from wsrm_mq.testing import Reply
from wsrm_mq.versions import WSRM_1_0

ELSEWHERE = "https://partner.example:8443/faults"


@pytest.fixture
def server(servers: Servers) -> OrdersServer:
    return servers(decoupled=ALLOWED, resend=[0.3] * 5)


def fault_to(speak: Orders, address: str) -> str:
    return f"<wsa:FaultTo>{speak.endpoint(address)}</wsa:FaultTo>"


def one_fault(endpoint: Endpoint) -> Reply:
    """The first fault that came there, waited for."""
    found = endpoint.soon(lambda: [one for one in endpoint.received if one.fault is not None])
    assert found, [one.action for one in endpoint.received]
    return found[0]


@pytest.mark.spec("F-021", "H-007", "D-ACK-021")
@every_version
def test_a_fault_of_the_service_goes_to_fault_to_where_replies_go_onto_the_response(
    source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    """The response to the request has the acknowledgement alone, and so has that to each request that comes again."""
    identifier = source.create()
    where = fault_to(speak, endpoint.url)
    for _ in range(2):
        answer = source.echo(identifier, 1, "client-fault", headers=where, message_id="urn:request:1")
        assert (answer.status, answer.reply.ack.ranges, answer.reply.body) == (200, ((1, 1),), None)
    told = one_fault(endpoint)
    assert (told.to, told.relates_to) == (endpoint.url, "urn:request:1")
    reply = source.echo(identifier, 2, "two", headers=where).reply
    assert (reply.body_name, reply.ack.ranges) == ("echoResponse", ((1, 2),))
    assert [one for one in endpoint.received if one.body_name == "echoResponse"] == []
    assert source.calls(identifier) == [1, 2]


@pytest.mark.spec("F-021", "SEC-016")
@each_rm
def test_a_fault_to_that_nothing_is_sent_to_leaves_the_fault_on_the_response(source: Source, speak: Orders) -> None:
    identifier = source.create()
    answer = source.echo(identifier, 1, "client-fault", headers=fault_to(speak, ELSEWHERE))
    assert answer.reply.fault is not None
    assert answer.reply.ack.ranges == ((1, 1),)


@pytest.mark.spec("F-023", "F-021")
@every_version
def test_the_fault_of_a_message_that_is_malformed_goes_to_fault_to_else_reply_to_else_onto_the_response(
    source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    identifier, before = source.create(), source.store.everything()
    malformed = {"identifier": identifier, "number": "x", "text": "one"}
    faults = f"{endpoint.url}/faults"
    for reply_to, headers, place in (
        (endpoint.url, fault_to(speak, faults), faults),
        (endpoint.url, "", endpoint.url),
        ("anonymous", fault_to(speak, faults), faults),
    ):
        to = {} if reply_to == "anonymous" else {"reply_to": reply_to}
        with endpoint.lock:
            endpoint.requests.clear()
        request = speak.echo(**malformed, headers=headers, message_id="urn:bad:1", **to)
        assert is_empty_202(source.post(request))
        told = one_fault(endpoint)
        assert (told.to, told.relates_to) == (place, "urn:bad:1")
    on_response = source.post(speak.echo(**malformed, headers=fault_to(speak, ELSEWHERE)))
    assert on_response.status >= 400
    assert on_response.reply.fault is not None
    assert source.store.everything() == before


@pytest.mark.spec("F-023", half="source")
@each_rm
def test_the_fault_of_an_acknowledgement_of_what_was_never_sent_goes_to_fault_to_else_reply_to_else_onto_the_response(
    source: Source, endpoint: Endpoint, speak: Orders
) -> None:
    """It names a sequence that is none of this side's, whose replies are sent there."""
    source.create()
    faults, block = f"{endpoint.url}/faults", speak.acknowledgement_header(uuid.uuid4().urn, (1, 1))
    for reply_to, headers, place in (
        (endpoint.url, fault_to(speak, faults), faults),
        (endpoint.url, "", endpoint.url),
        (None, fault_to(speak, faults), faults),
    ):
        with endpoint.lock:
            endpoint.requests.clear()
        action = speak.rm.action("SequenceAcknowledgement")
        said = speak.envelope(action, "", headers=block + headers, reply_to=reply_to, message_id="urn:bad:1")
        assert is_empty_202(source.post(said))
        told = one_fault(endpoint)
        assert (told.to, told.relates_to) == (place, "urn:bad:1")
        assert told.fault is not None
        assert told.fault.subcode == "UnknownSequence"
    on_response = source.post(speak.envelope(action, "", headers=block, message_id="urn:bad:2")).reply
    assert on_response.fault is not None
    assert (on_response.fault.subcode, on_response.relates_to) == ("UnknownSequence", "urn:bad:2")


@pytest.mark.spec("F-023")
@each_rm
def test_who_has_to_use_reliable_messaging_is_told_where_the_request_wants_it(
    servers: Servers, endpoint: Endpoint, speak: Orders
) -> None:
    with Source(servers(require_rm=True, decoupled=ALLOWED), speak) as source:
        assert is_empty_202(source.post(speak.envelope(PUT_ORDER, put_order(1), reply_to=endpoint.url)))
        told = one_fault(endpoint)
        assert told.fault is not None
        assert (told.fault.subcode, told.to) == ("WSRMRequired", endpoint.url)
        assert source.post(speak.put_plain(1)).reply.fault is not None


@pytest.mark.spec("F-023", "SEC-003")
@each_rm_at_length
def test_for_a_stranger_no_fault_is_sent_anywhere(server: OrdersServer, endpoint: Endpoint, speak: Orders) -> None:
    """Who is turned away has nothing sent, whatever is wrong with the message besides."""
    with Source(server, speak, fields=("X-User: nobody",)) as stranger:
        for headers, reply_to in (("", endpoint.url), (fault_to(speak, endpoint.url), "anonymous")):
            to = {} if reply_to == "anonymous" else {"reply_to": reply_to}
            assert stranger.post(speak.echo(uuid.uuid4().urn, "x", "one", headers=headers, **to)).status == 401
    assert endpoint.soon(lambda: endpoint.received, seconds=1) == []


@pytest.mark.spec("F-024")
@each_rm_at_length
def test_a_malformed_fault_is_answered_with_none_anywhere(source: Source, endpoint: Endpoint, speak: Orders) -> None:
    action = speak.addressing.soap_fault_action if speak.rm is WSRM_1_0 else f"{speak.rm.namespace}/fault"
    sequence = "<wsrm:Sequence><wsrm:MessageNumber>x</wsrm:MessageNumber></wsrm:Sequence>"
    envelope = speak.envelope(action, "<p:other xmlns:p='urn:p'/>", headers=sequence, reply_to=endpoint.url)
    assert is_empty_202(source.post(envelope))
    assert endpoint.soon(lambda: endpoint.received, seconds=1) == []
