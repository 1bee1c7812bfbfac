"""Messages that wait until their endpoint fetches them by MakeConnection."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source, in_1_1, in_one_version
from wsrm_mq.testing import HTTPAnswer

from .conftest import Operate, Servers
from .test_make_connection import new_address, poll
from .test_names import out_of_order

SHORT = 0.05
"""Seconds that a request waits for its reply."""
LENT_FOR = 3.0
"""Seconds for which a message that is on its way is given to no other request."""


class Client:
    """A client without an address of its own: one sequence, whose replies and acknowledgements are fetched."""

    def __init__(self, source: Source, *, offers: bool = False, **options: Any) -> None:
        self.source = source
        self.address = new_address()
        self.offered = uuid.uuid4().urn if offers else None
        offer = {"offer": self.offered, "offer_endpoint": self.address} if offers else {}
        self.identifier = source.create(acks_to=self.address, reply_to=self.address, **offer, **options)

    def gate(self, number: int) -> str:
        return f"{self.identifier.rpartition(':')[2]}{number}"

    def ask_late(self, number: int, **options: Any) -> HTTPAnswer:
        """A request whose reply is not there before its gate is opened."""
        text = f"gate={self.gate(number)}"
        return self.source.echo(self.identifier, number, text, reply_to=self.address, **options)

    def reply(self, number: int) -> None:
        """Let the service reply, and wait until that is stored."""
        self.source.server.open_gate(self.gate(number))
        self.is_replied(number)

    def is_replied(self, number: int) -> None:
        """Wait until the reply is stored."""
        query = (
            "select count(*) from reply join entry on entry.id = reply.entry where entry.number = ?"
            " and entry.lane = (select id from lane where identifier = ?)"
        )
        rows = within(10, lambda: self.source.store.rows(query, number, self.identifier), lambda seen: seen == [(1,)])
        assert rows == [(1,)]

    def poll(self, **options: Any) -> HTTPAnswer:
        return poll(self.source, self.address, **options)

    def outcomes(self) -> list[tuple[Any, ...]]:
        """Of what was to be fetched."""
        return self.source.store.rows(
            "select e.outcome, e.reason from entry e join channel c on c.lane = e.lane where c.address = ?"
            " order by e.id",
            self.address,
        )


@pytest.fixture
def client(servers: Servers, speak: Orders) -> Any:
    with Source(servers(hold_wait=SHORT), speak) as source:
        yield Client(source)


@pytest.fixture
def offering(servers: Servers, speak: Orders) -> Any:
    with Source(servers(hold_wait=SHORT), speak) as source:
        yield Client(source, offers=True)


def text_of(answer: HTTPAnswer) -> str | None:
    return answer.text("echoResult")


@pytest.mark.spec("MC-001", "MC-003", "MC-007", "MC-009", "MC-011")
@in_1_1
def test_a_reply_that_is_not_there_in_time_is_acknowledged_and_then_fetched_once(client: Client) -> None:
    first = client.ask_late(1, message_id="urn:example:the-request")
    assert (first.status, first.reply.body_name, first.reply.ack.ranges) == (200, None, ((1, 1),))
    assert client.poll().status == 202
    client.reply(1)
    for other in (client.address.upper(), client.address + "0", client.address[:-1]):
        assert poll(client.source, other).status == 202
    fetched = client.poll(message_id="urn:example:the-poll")
    assert (fetched.status, text_of(fetched)) == (200, f"gate={client.gate(1)}")
    reply = fetched.reply
    assert out_of_order(fetched.tree) == []
    assert (reply.to, reply.relates_to) == (client.address, "urn:example:the-request")
    assert (reply.pending, reply.ack.ranges) == (False, ((1, 1),))
    assert client.poll().status == 202
    assert within(5, client.outcomes, lambda seen: seen == [("delivered", None)]) == [("delivered", None)]


@pytest.mark.spec("MC-011")
@in_one_version
def test_a_reply_that_left_on_its_own_response_is_not_fetched(source: Source) -> None:
    client = Client(source)
    echo = client.source.echo(client.identifier, 1, "one", reply_to=client.address)
    assert text_of(echo) == "one"
    assert echo.reply.to == client.address
    assert client.poll().status == 202
    assert within(5, client.outcomes, lambda seen: seen == [("delivered", None)]) == [("delivered", None)]


@pytest.mark.spec("MC-006")
@pytest.mark.peer("P-16")
@in_one_version
def test_more_that_waits_is_told_by_message_pending_and_each_response_has_one_reply(client: Client) -> None:
    for number in (1, 2, 3):
        client.ask_late(number, message_id=f"urn:example:{number}")
    for number in (1, 2, 3):
        client.reply(number)
    fetched = [client.poll() for _ in range(3)]
    assert [text_of(one) for one in fetched] == [f"gate={client.gate(number)}" for number in (1, 2, 3)]
    assert [one.reply.relates_to for one in fetched] == [f"urn:example:{number}" for number in (1, 2, 3)]
    assert [one.reply.pending for one in fetched] == [True, True, False]


@pytest.mark.spec("MC-008")
@in_one_version
def test_the_addresses_of_a_poll_lead_nowhere(client: Client) -> None:
    client.ask_late(1)
    client.reply(1)
    fault_to = f"<wsa:FaultTo>{client.source.speak.endpoint('http://127.0.0.1:9/faults')}</wsa:FaultTo>"
    fetched = client.poll(reply_to="http://127.0.0.1:9/replies", headers=fault_to)
    assert (fetched.status, fetched.reply.to) == (200, client.address)


@pytest.mark.spec("MC-010", "D-DUR-006")
@in_1_1
def test_a_numbered_reply_is_fetched_until_it_is_acknowledged(offering: Client) -> None:
    client = offering
    client.ask_late(1)
    client.reply(1)
    first = client.poll()
    assert first.reply.sequence is not None
    assert (first.reply.sequence.identifier, first.reply.sequence.number) == (client.offered, 1)
    assert client.poll().status == 202  # it is on its way
    second = within(LENT_FOR + 5, client.poll, lambda answer: answer.status == 200)
    assert second.reply.message_id == first.reply.message_id
    assert second.reply.sequence == first.reply.sequence
    assert client.offered is not None
    client.source.post(client.source.speak.acknowledgement(client.offered, (1, 1)))
    assert client.outcomes() == [("delivered", None)]


@pytest.mark.spec("MC-007")
@in_one_version
def test_an_acknowledgement_that_no_response_took_along_is_fetched(servers: Servers, speak: Orders) -> None:
    with Source(servers(hold_wait=SHORT, acknowledge="delivered"), speak) as source:
        client = Client(source)
        assert source.put(client.identifier, 2).body == b""  # it waits for its turn
        assert client.poll().status == 202
        source.put(client.identifier, 1)
        assert source.delivered(client.identifier) == [1, 2]
        told = within(5, client.poll, lambda answer: answer.status == 200)
        assert (told.reply.ack.ranges, told.reply.body_name, told.reply.pending) == (((1, 2),), None, None)
        assert told.reply.to == client.address
        assert client.poll().status == 202


@pytest.mark.spec("MC-019")
@in_one_version
def test_an_acknowledgement_that_waits_is_its_principals_and_no_other_takes_it_away(
    servers: Servers, speak: Orders
) -> None:
    server = servers(hold_wait=SHORT, acknowledge="delivered")
    with (
        Source(server, speak, fields=("X-User: alice",)) as alice,
        Source(server, speak, fields=("X-User: bob",)) as bob,
    ):
        client = Client(alice)
        assert alice.put(client.identifier, 2).body == b""  # it waits for its turn
        alice.put(client.identifier, 1)
        assert alice.delivered(client.identifier) == [1, 2]
        waits = "select 1 from sequence join lane on lane.id = sequence.lane where ack_waits and identifier = ?"
        assert within(5, lambda: alice.store.rows(waits, client.identifier), bool)
        assert (poll(bob, client.address).status, poll(bob, client.address).body) == (202, b"")
        assert client.poll().reply.ack.ranges == ((1, 2),)


@pytest.mark.spec("MC-007", "D-CLO-012", "D-TRM-011")
@pytest.mark.parametrize(
    ("act", "said"),
    [(("close",), "CloseSequence"), (("terminate", "--drain"), "TerminateSequence")],
    ids=["close", "end"],
)
@in_1_1
def test_what_an_operator_did_to_its_sequence_is_fetched(
    act: tuple[str, ...], said: str, source: Source, operate: Operate
) -> None:
    client = Client(source)
    source.put(client.identifier, 1)
    assert source.delivered(client.identifier) == [1]
    verb, *options = act
    operate(verb, client.identifier, *options)
    fetched = within(5, client.poll, lambda answer: answer.status == 200)
    assert (fetched.reply.body_name, fetched.reply.to, fetched.reply.relates_to) == (said, client.address, None)
    assert (fetched.reply.ack.ranges, fetched.reply.ack.final) == (((1, 1),), True)
    assert out_of_order(fetched.tree) == []


@pytest.mark.spec("MC-007", "F-022")
@in_1_1
def test_a_fault_of_the_service_is_fetched(client: Client) -> None:
    held = client.source.echo(client.identifier, 2, "client-fault", reply_to=client.address)
    assert held.reply.ack.ranges == ((2, 2),)
    client.source.put(client.identifier, 1)
    client.is_replied(2)
    fetched = client.poll()
    assert fetched.reply.fault is not None
    assert (fetched.reply.to, fetched.reply.pending) == (client.address, False)


@pytest.mark.spec("D-DEL-002")
@pytest.mark.parametrize("offers", [False, True])
@in_one_version
def test_a_request_that_is_put_aside_has_a_fault_fetched(offers: bool, servers: Servers, speak: Orders) -> None:
    with Source(servers(hold_wait=SHORT, retry_faults=True, on_poison="dead_letter", retry=[0.3]), speak) as source:
        client = Client(source, offers=offers)
        asked = source.echo(client.identifier, 1, "fail=9", reply_to=client.address, message_id="urn:example:asks")
        assert (asked.status, asked.reply.ack.ranges) == (200, ((1, 1),))
        fetched = within(10, client.poll, lambda answer: answer.status == 200)
        fault = fetched.reply.fault
        assert fault is not None
        assert "was set aside" in fault.reason
        assert (fault.code, fetched.reply.to, fetched.reply.relates_to) == (
            "Receiver",
            client.address,
            "urn:example:asks",
        )
        assert (fetched.reply.sequence is not None) is offers


@pytest.mark.spec("D-DEL-002", "MC-011")
@in_one_version
def test_a_request_that_waits_while_it_is_put_aside_has_the_fault_and_nothing_is_fetched(
    servers: Servers, speak: Orders
) -> None:
    with Source(servers(retry_faults=True, on_poison="dead_letter", retry=[0.1]), speak) as source:
        client = Client(source)
        asked = source.echo(client.identifier, 1, "fail=9", reply_to=client.address)
        assert asked.reply.fault is not None
        assert "was set aside" in asked.reply.fault.reason
        assert within(5, client.outcomes, lambda seen: seen == [("delivered", None)]) == [("delivered", None)]
        assert client.poll().status == 202


@pytest.mark.spec("D-DUR-006", "MC-010")
@in_one_version
def test_a_request_that_comes_again_gets_its_reply_and_nothing_is_left_to_fetch(client: Client) -> None:
    client.ask_late(1, message_id="urn:example:again")
    client.reply(1)
    again = client.ask_late(1, message_id="urn:example:again")
    assert text_of(again) == f"gate={client.gate(1)}"
    assert within(5, client.outcomes, lambda seen: seen == [("delivered", None)]) == [("delivered", None)]
    assert client.poll().status == 202


@pytest.mark.spec("MC-009")
@in_one_version
def test_the_end_of_the_offered_sequence_is_fetched(offering: Client) -> None:
    source, offered = offering.source, offering.offered
    assert offered is not None
    offering.ask_late(1)
    offering.reply(1)
    assert text_of(offering.poll()) == f"gate={offering.gate(1)}"
    source.terminate(offering.identifier, 1, reply_to=offering.address)
    assert offering.poll().status == 202
    source.post(source.speak.acknowledgement(offered, (1, 1)))
    ended = offering.poll()
    assert ended.reply.body is not None
    assert [one.text for one in ended.reply.body] == [offered, "1"]
    assert ended.reply.action == source.speak.rm.action("TerminateSequence")
    assert offering.poll().status == 202


@pytest.mark.spec("MC-009")
@in_one_version
def test_a_reply_is_fetched_after_the_sequence_was_terminated(client: Client) -> None:
    client.ask_late(1)
    assert client.source.terminate(client.identifier, 1, reply_to=client.address).status == 200
    client.reply(1)
    assert text_of(client.poll()) == f"gate={client.gate(1)}"


@pytest.mark.spec("MC-009")
@in_one_version
def test_what_nothing_fetches_is_forgotten_with_its_sequence_and_a_row_says_so(tmp_path: Path, speak: Orders) -> None:
    server = OrdersServer(tmp_path, hold_wait=SHORT)
    server.start()
    try:
        with Source(server, speak) as source:
            client = Client(source, expires="PT1H")
            client.ask_late(1)
            client.reply(1)
            server.set_clock(3_601)
            gone = [("discarded", "not_fetched")]
            assert within(10, client.outcomes, lambda seen: seen == gone) == gone
            assert client.poll().status == 202
            said = "select reason from ledger where event = 'discarded'"
            assert source.store.rows(said) == [("not_fetched: 1",)]
    finally:
        server.kill()


@pytest.mark.spec("MC-010", "D-DUR-006")
@pytest.mark.parametrize("offers", [False, True])
@in_one_version
def test_a_kill_loses_no_reply_that_waits(offers: bool, tmp_path: Path, speak: Orders) -> None:
    server = OrdersServer(tmp_path, hold_wait=SHORT)
    server.start()
    try:
        with Source(server, speak) as source:
            client = Client(source, offers=offers)
            client.ask_late(1)
            client.ask_late(2)
            client.reply(1)
            server.kill()
            server.open_gate(client.gate(2))
            server.start()
            source.reconnect()
            fetched = [within(20, client.poll, lambda answer: answer.status == 200) for _ in range(2)]
            assert [text_of(one) for one in fetched] == [f"gate={client.gate(number)}" for number in (1, 2)]
    finally:
        server.kill()


@pytest.mark.spec("MC-010")
@in_one_version
def test_another_process_runs_what_a_killed_one_began_and_has_the_reply_fetched(tmp_path: Path, speak: Orders) -> None:
    first, second = OrdersServer(tmp_path, hold_wait=SHORT), OrdersServer(tmp_path, hold_wait=SHORT)
    first.start()
    second.start()
    try:
        with Source(first, speak) as source, Source(second, speak) as other:
            client = Client(source, offers=True)
            client.ask_late(1)
            first.kill()
            first.open_gate(client.gate(1))
            client.source = other
            fetched = within(20, client.poll, lambda answer: answer.status == 200)
            assert text_of(fetched) == f"gate={client.gate(1)}"
            assert fetched.reply.ack.ranges == ((1, 1),)
    finally:
        first.kill()
        second.kill()


@pytest.mark.spec("SEC-029")
@in_one_version
def test_polls_for_nothing_write_nothing(client: Client) -> None:
    client.ask_late(1)
    before = client.source.store.everything()
    for _ in range(20):
        assert poll(client.source, new_address()).status == 202
    assert client.source.store.everything() == before


@in_one_version
def test_a_client_that_is_gone_leaves_its_reply_to_the_next_poll(client: Client) -> None:
    """Its reply is not numbered: what was given to a broken connection may be given again."""
    client.ask_late(1)
    client.reply(1)
    source = client.source
    source.send(source.speak.make_connection(client.address))
    source.wire.close()
    source.reconnect()
    time.sleep(0.2)
    seen = within(LENT_FOR + 5, client.poll, lambda answer: answer.status == 200 or client.outcomes()[0][0] is not None)
    assert seen.status == 200 or client.outcomes() == [("delivered", None)]
