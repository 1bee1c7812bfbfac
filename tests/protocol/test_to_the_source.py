"""What a destination says to a source's address of its own accord: that a gap stays open, that a sequence is over."""

from __future__ import annotations

import uuid
from typing import Final

import pytest
from lxml import etree

from tests.support.endpoint import ALLOWED, Endpoint
from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source, each_rm, each_rm_at_length, every_version, in_1_0, in_1_1

from .conftest import Operate, Servers
from .test_decoupled import created
from .test_names import out_of_order

HOLD_TIMEOUT: Final = 0.3
PATIENCE: Final = 10
"""Several messages come in less, on a busy machine too."""
TOLD: Final = "select number, reason from ledger where event = 'gap_open' and sequence = ?"


@pytest.fixture
def server(servers: Servers) -> OrdersServer:
    return servers(decoupled=ALLOWED, hold_timeout=HOLD_TIMEOUT, resend=[0.3, 30])


def told(source: Source, identifier: str, count: int) -> list[tuple[object, ...]]:
    """What the ledger has of open gaps, waited for."""
    key = source.store.sequence(identifier)["id"]
    return within(10, lambda: source.store.rows(TOLD, key), lambda rows: len(rows) >= count)


def asked_for(endpoint: Endpoint) -> list[list[str]]:
    """The numbers that each Nack names."""
    with endpoint.lock:
        bodies = [body for _fields, body in endpoint.requests if b"Nack" in body]
    return [[part.partition(b"<")[0].decode() for part in body.split(b"Nack>")[1::2]] for body in bodies]


def hold_timeout_is_over(server: OrdersServer) -> None:
    """On the clock of the server, where it is ``PATIENCE``."""
    before = float(server.clock.read_text()) if server.clock.exists() else 0.0
    server.set_clock(before + PATIENCE + 1)


def faults(endpoint: Endpoint, count: int) -> list[str]:
    """The subcodes of the faults that came, waited for."""
    found = endpoint.soon(lambda: [one for one in endpoint.received if one.fault is not None], count)
    return [one.fault.subcode for one in found if one.fault is not None]


def in_schema_order(endpoint: Endpoint) -> None:
    """All that came is as the schemas have it."""
    with endpoint.lock:
        bodies = [body for _fields, body in endpoint.requests]
    assert [wrong for body in bodies for wrong in out_of_order(etree.fromstring(body))] == []


@pytest.mark.scenario("Q-052")
@pytest.mark.spec("D-ACK-012", "D-ACK-013", "D-ACK-014")
@every_version
def test_a_gap_that_stays_open_is_told_once_and_asked_for_and_nothing_is_thrown_away(
    servers: Servers, speak: Orders, endpoint: Endpoint
) -> None:
    server = servers(decoupled=ALLOWED, hold_timeout=PATIENCE, resend=[0.3, 30])
    source = Source(server, speak)
    identifier = created(source, endpoint)
    for number in (1, 4, 6):
        source.put(identifier, number)
    hold_timeout_is_over(server)
    assert told(source, identifier, 1) == [(2, "missing 2-3,5")]
    within(10, lambda: asked_for(endpoint), bool)
    later = source.create()
    source.put(later, 2)
    hold_timeout_is_over(server)
    assert told(source, later, 1) == [(1, "missing 1")], "every gap was looked at again"
    assert told(source, identifier, 1) == [(2, "missing 2-3,5")]
    assert asked_for(endpoint) == [["2", "3", "5"]]
    in_schema_order(endpoint)
    for body in [body for _fields, body in endpoint.requests if b"Nack" in body]:
        assert b"AcknowledgementRange" not in body
        assert body.count(b"<wsrm:SequenceAcknowledgement ") == 1
        assert b"Final" not in body
    assert endpoint.acknowledged(identifier, (1, 1), (4, 4), (6, 6))
    for number in (5, 3, 2):
        source.put(identifier, number)
    assert source.delivered(identifier) == [1, 2, 3, 4, 5, 6]
    assert told(source, identifier, 1) == [(2, "missing 2-3,5")]
    source.wire.close()


@pytest.mark.scenario("Q-052")
@each_rm_at_length
def test_where_a_source_has_no_address_the_gap_is_told_and_its_answers_go_on_to_show_it(source: Source) -> None:
    identifier = source.create()
    for number in (1, 3):
        source.put(identifier, number)
    assert told(source, identifier, 1) == [(2, "missing 2")]
    assert source.ask(identifier).reply.ack.ranges == ((1, 1), (3, 3))
    source.put(identifier, 2)
    source.put(identifier, 5)
    assert told(source, identifier, 2) == [(2, "missing 2"), (4, "missing 4")]
    source.put(identifier, 4)
    assert source.delivered(identifier) == [1, 2, 3, 4, 5]


@pytest.mark.spec("D-CLO-012", "D-ACK-009")
@in_1_1
def test_an_operator_who_closes_a_sequence_has_its_source_told_by_close_sequence_and_final(
    source: Source, endpoint: Endpoint, operate: Operate
) -> None:
    identifier = created(source, endpoint)
    source.put(identifier, 1)
    operate("close", identifier)
    said = endpoint.one("CloseSequence")
    assert (said.body_name, said.to) == ("CloseSequence", endpoint.url)
    assert said.message_id
    assert (said.ack.identifier, said.ack.ranges, said.ack.final) == (identifier, ((1, 1),), True)
    source.put(identifier, 2)
    assert faults(endpoint, 1) == ["SequenceClosed"]
    assert source.delivered(identifier) == [1]
    in_schema_order(endpoint)


@pytest.mark.spec("D-TRM-011")
@in_1_1
def test_an_operator_who_terminates_a_sequence_has_its_source_told_and_takes_nothing_more_of_it(
    source: Source, endpoint: Endpoint, operate: Operate
) -> None:
    identifier = created(source, endpoint)
    source.put(identifier, 1)
    operate("terminate", identifier, "--drain")
    said = endpoint.one("TerminateSequence")
    assert (said.body_name, said.to) == ("TerminateSequence", endpoint.url)
    assert (said.ack.ranges, said.ack.final) == (((1, 1),), True)
    source.put(identifier, 2)
    source.close(identifier)
    assert faults(endpoint, 2) == ["SequenceTerminated"] * 2
    assert source.delivered(identifier) == [1]
    in_schema_order(endpoint)


@pytest.mark.spec("D-TRM-011")
@in_1_1
def test_a_source_that_answers_with_its_response_hears_of_the_end_once(
    source: Source, endpoint: Endpoint, operate: Operate
) -> None:
    identifier = created(source, endpoint)
    operate("terminate", identifier, "--drain")
    endpoint.one("TerminateSequence")
    unsent = (
        "select e.id from entry e join channel c on c.lane = e.lane join lane s on s.id = c.answers "
        "where s.identifier = ? and e.outcome is null"
    )
    assert within(10, lambda: source.store.rows(unsent, identifier), lambda rows: not rows) == []
    assert len(endpoint.saying("TerminateSequence")) == 1


@pytest.mark.spec("D-LST-009")
@in_1_0
def test_the_end_of_a_1_0_sequence_is_said_by_a_fault_alone(
    source: Source, endpoint: Endpoint, operate: Operate, speak: Orders
) -> None:
    identifier = created(source, endpoint)
    source.put(identifier, 1)
    assert endpoint.acknowledged(identifier, (1, 1))
    operate("terminate", identifier, "--drain")
    source.put(identifier, 2)
    assert faults(endpoint, 1) == ["SequenceTerminated"]
    assert endpoint.saying("TerminateSequence") == []


@pytest.mark.spec("S-RET-002", "S-RET-005", "S-RET-006")
@each_rm
def test_a_reply_that_a_nack_names_is_sent_again_at_once_and_one_that_is_acknowledged_is_not(
    servers: Servers, speak: Orders, endpoint: Endpoint
) -> None:
    with Source(servers(decoupled=ALLOWED, resend=[60]), speak) as source:
        offered = uuid.uuid4().urn
        identifier = created(source, endpoint, offer=offered, offer_endpoint=endpoint.url)
        for number in (1, 2):
            source.echo(identifier, number, f"text {number}", reply_to=endpoint.url)

        def numbers() -> list[int]:
            return [one.sequence.number for one in endpoint.received if one.sequence is not None]

        assert sorted(within(10, numbers, lambda found: len(found) == 2)) == [1, 2]
        source.post(speak.acknowledgement(offered, (1, 1)))
        source.post(speak.acknowledgement(offered, nacks=(1, 2)))
        assert sorted(within(10, numbers, lambda found: len(found) == 3)) == [1, 2, 2]
        again = [one for one in endpoint.received if one.sequence is not None and one.sequence.number == 2]
        assert len({one.message_id for one in again}) == 1
        source.post(speak.acknowledgement(offered, (1, 2)))


@pytest.mark.spec("S-RET-002", "S-RET-006")
@each_rm_at_length
def test_a_reply_that_is_sent_because_a_nack_names_it_takes_no_step_of_resend(
    servers: Servers, speak: Orders, endpoint: Endpoint
) -> None:
    """A source that says often that it lacks a reply has it sent as often, and not given up."""
    with Source(servers(decoupled=ALLOWED, resend=[60]), speak) as source:
        offered = uuid.uuid4().urn
        identifier = created(source, endpoint, offer=offered, offer_endpoint=endpoint.url)
        source.echo(identifier, 1, "text", reply_to=endpoint.url)

        def entry() -> list[tuple[object, ...]]:
            """Its outcome, and whether it waits for its next try."""
            query = "select outcome, retry_at is not null from entry join channel using (lane) where is_numbered"
            return source.store.rows(f"{query} and address = ?", endpoint.url)

        for times in (1, 2, 3, 4):
            assert len(endpoint.soon(lambda: endpoint.saying("echoResponse"), times)) == times
            assert within(5, entry, lambda found: found == [(None, 1)]) == [(None, 1)]
            source.post(speak.acknowledgement(offered, nacks=(1,)))
        source.post(speak.acknowledgement(offered, (1, 1)))
        assert entry() == [("delivered", 0)]


@pytest.mark.spec("D-TRM-011")
@in_1_1
def test_a_response_of_the_source_in_a_request_of_its_own_is_taken_and_changes_nothing(
    source: Source, endpoint: Endpoint, operate: Operate, speak: Orders
) -> None:
    identifier = created(source, endpoint)
    operate("terminate", identifier, "--drain")
    asked = endpoint.one("TerminateSequence")
    named = f"<wsrm:Identifier>{identifier}</wsrm:Identifier>"
    response = f"<wsrm:TerminateSequenceResponse>{named}</wsrm:TerminateSequenceResponse>"
    related = f"<wsa:RelatesTo>{asked.message_id}</wsa:RelatesTo>"
    answer = source.post(speak.envelope(speak.rm.action("TerminateSequenceResponse"), response, headers=related))
    assert (answer.status, answer.body) == (202, b"")
    assert source.store.sequence(identifier)["ended"] == "failed"
