"""What the test suites of CXF, Metro, Sandesha2 and WCF check of a destination, on the wire and without their stacks.

The rows are ``tests/acceptance/peers.tsv``; those that a client alone decides, or that need one to run, are elsewhere.
"""

from __future__ import annotations

import time
from typing import Final

import pytest

from tests.support.endpoint import ALLOWED, listening
from tests.support.orders import Orders, OrderSender
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source, each_rm, each_rm_at_length, every_version, in_1_0
from wsrm_mq.testing import Line, LossyWire

from .conftest import Servers
from .test_decoupled import created
from .test_offer import offering, outgoing, place

INTERVAL: Final = 0.4
"""Seconds that an acknowledgement is put off."""
PUT_OFF: Final = {"all": {"path": "/", "one_way_answer": "empty", "acknowledgement_interval": INTERVAL}}
LOSSY: Final = {"loss": 0.5, "duplicates": 0.2, "seed": 7}
"""Of a line: every second message is lost on its way there or back."""


@pytest.mark.peer("P-01")
@every_version
def test_each_of_three_one_way_messages_is_acknowledged_on_its_response(source: Source) -> None:
    identifier = source.create()
    answers = [source.put(identifier, number) for number in (1, 2, 3)]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert [answer.reply.ack.ranges for answer in answers] == [((1, 1),), ((1, 2),), ((1, 3),)]


@pytest.mark.peer("P-02")
@each_rm
def test_an_acknowledgement_that_is_put_off_comes_when_the_interval_is_over(servers: Servers, speak: Orders) -> None:
    with Source(servers(partners=PUT_OFF), speak) as source:
        identifier = source.create()
        assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),), "the first shows that there are some"
        begun = time.monotonic()
        answers = [source.put(identifier, number) for number in (2, 3)]
        if time.monotonic() - begun < INTERVAL:
            assert [(answer.status, answer.body) for answer in answers] == [(202, b""), (202, b"")]
        time.sleep(INTERVAL)
        assert source.put(identifier, 4).reply.ack.ranges == ((1, 4),)


@pytest.mark.peer("P-04")
@each_rm
def test_what_is_sent_again_while_acknowledgements_are_put_off_is_acknowledged_at_once(
    servers: Servers, speak: Orders
) -> None:
    held_back = {"all": {"path": "/", "one_way_answer": "empty", "acknowledgement_interval": 3_600}}
    with Source(servers(partners=held_back), speak) as source:
        identifier = source.create()
        first = speak.put(identifier, 1)
        source.post(first)
        assert [source.put(identifier, number).status for number in (2, 3)] == [202, 202]
        assert source.post(first).reply.ack.ranges == ((1, 3),)
        assert source.delivered(identifier) == [1, 2, 3]


@pytest.mark.peer("P-05")
@every_version
def test_a_sequence_for_each_message_is_created_filled_and_ended(source: Source) -> None:
    rm = source.speak.rm
    for n in (1, 2, 3):
        identifier = source.create()
        assert source.put(identifier, 1, last=rm.has_last_message, n=n).reply.ack.ranges == ((1, 1),)
        source.terminate(identifier, 1 if rm.has_close else None)
        assert source.delivered(identifier) == [n]
        assert source.store.sequence(identifier)["ended"] == "terminated"


@pytest.mark.peer("P-07")
@each_rm
def test_fifty_messages_that_ask_for_acknowledgements_are_acknowledged_and_the_close_returns(source: Source) -> None:
    identifier, last = source.create(), 50
    for number in range(1, last + 1):
        answer = source.put(identifier, number, ack_requested=True)
        assert answer.reply.ack.ranges == ((1, number),)
        if number % 10 == 0:
            assert source.ask(identifier).reply.ack.ranges == ((1, number),)
    if source.speak.rm.has_close:
        assert source.close(identifier, last).reply.ack.ranges == ((1, last),)
    source.terminate(identifier, last if source.speak.rm.has_close else None)
    assert source.delivered(identifier) == list(range(1, last + 1))


@pytest.mark.peer("P-13")
@each_rm
def test_where_a_client_ends_its_sequence_after_two_messages_the_one_for_replies_ends_too(source: Source) -> None:
    rm, speak = source.speak.rm, source.speak
    mine, offered = offering(source)
    assert place(source.echo(mine, 1, "one")).number == 1
    answer = source.echo(mine, 2, "two", last=rm.has_last_message)
    assert place(answer) == (offered, 2, rm.has_last_message)
    acknowledged = speak.acknowledgement_header(offered, (1, 2))
    source.terminate(mine, 2 if rm.has_close else None, headers=acknowledged)
    assert source.store.sequence(mine)["ended"] == "terminated"
    row = outgoing(source, offered)
    assert (row["state"], row["unacknowledged"]) == ("terminated", 0)


@pytest.mark.peer("P-17")
@each_rm
def test_the_application_can_keep_its_state_apart_for_each_sequence(source: Source) -> None:
    first, second = source.create(), source.create()
    for number in (1, 2, 3):
        source.put(first, number, f"of the first: {number}")
        source.put(second, number, f"of the second: {number}")
    assert source.texts(first) == [f"of the first: {number}" for number in (1, 2, 3)]
    assert source.texts(second) == [f"of the second: {number}" for number in (1, 2, 3)]


@pytest.mark.peer("P-18", "P-19")
@pytest.mark.parametrize("assurance", ["at_least_once", "at_most_once", "exactly_once"])
@each_rm_at_length
def test_each_assurance_holds_on_a_line_that_loses_every_second_message(
    assurance: str, servers: Servers, speak: Orders
) -> None:
    server, last = servers(assurance=assurance), 20
    line = Line(**LOSSY)
    sender = OrderSender(server, speak)
    connect = sender._connect
    sender._connect = lambda: LossyWire(connect(), line)  # type: ignore[assignment, return-value]
    sender.disconnect()
    with Source(server, speak) as source:
        for number in range(1, last + 1):
            sender.send_until_acknowledged(number)
        sender.disconnect()
        assert source.store.received(sender.identifier) == [(1, last)]
        everything = list(range(1, last + 1))
        assert source.soon(sender.identifier, everything) == everything, "nothing crashed, so all promise the same"
    assert line.traffic.requests_lost > 3
    assert line.traffic.answers_lost > 3


@pytest.mark.peer("P-20")
@pytest.mark.parametrize(
    ("assurance", "early", "delivered"),
    [("at_most_once", [1, 4], [1, 4, 5]), ("exactly_once", [1], [1, 2, 3, 4, 5])],
)
@each_rm
def test_in_order_a_gap_is_skipped_at_most_once_and_waited_for_exactly_once(
    assurance: str, early: list[int], delivered: list[int], servers: Servers, speak: Orders
) -> None:
    with Source(servers(assurance=assurance), speak) as source:
        identifier = source.create()
        for number in (1, 4):
            source.put(identifier, number)
        assert source.soon(identifier, early) == early
        for number in (3, 2, 5):
            source.put(identifier, number)
        assert source.soon(identifier, delivered) == delivered
        assert source.ask(identifier).reply.ack.ranges == ((1, 5),)


@pytest.mark.peer("P-24")
@pytest.mark.scenario("Q-051")
@every_version
def test_where_nothing_is_to_be_held_a_message_out_of_order_is_refused_until_it_is_its_turn(
    servers: Servers, speak: Orders
) -> None:
    with Source(servers(window=1), speak) as source:
        identifier = source.create()
        assert source.put(identifier, 1).reply.ack.ranges == ((1, 1),)
        before = source.store.everything()
        third = speak.put(identifier, 3)
        refused = source.post(third)
        assert refused.status == 503
        assert int(refused.fields["retry-after"]) > 0
        assert b"number 3 came before number 2" in refused.body
        assert source.store.everything() == before
        assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
        assert source.post(third).reply.ack.ranges == ((1, 3),)
        assert source.delivered(identifier) == [1, 2, 3]


@pytest.mark.peer("P-27")
@each_rm
def test_a_hundred_one_way_messages_are_taken_and_closed(source: Source) -> None:
    identifier, last = source.create(), 100
    for number in range(1, last + 1):
        assert source.put(identifier, number).reply.ack.ranges == ((1, number),)
    if source.speak.rm.has_close:
        closed = source.close(identifier, last).reply.ack
        assert (closed.ranges, closed.final) == (((1, last),), True)
    source.terminate(identifier, last if source.speak.rm.has_close else None)
    assert source.delivered(identifier) == list(range(1, last + 1))


@pytest.mark.peer("P-36")
@each_rm
def test_a_sequence_that_ends_with_messages_undelivered_is_kept_until_they_are(source: Source) -> None:
    identifier = source.create()
    gate = f"P-36 {source.speak.rm.label}"
    source.put(identifier, 1, f"gate={gate}")
    source.put(identifier, 2)
    source.terminate(identifier, 2 if source.speak.rm.has_close else None)
    assert source.store.sequence(identifier)["ended"] == "terminated"
    assert source.store.unsettled(identifier) == 2
    source.server.open_gate(gate)
    assert source.delivered(identifier) == [1, 2]


@pytest.mark.peer("P-35")
@in_1_0
def test_a_1_0_sequence_that_ends_complete_leaves_nothing_open(source: Source) -> None:
    identifier = source.create()
    source.put(identifier, 1)
    assert source.post(source.speak.last_message(identifier, 2)).reply.ack.ranges == ((1, 2),)
    ended = source.terminate(identifier)
    assert (ended.status, ended.body) == (202, b"")
    assert source.delivered(identifier) == [1]


@pytest.mark.peer("P-53")
@each_rm
def test_a_reply_that_was_not_sent_when_the_server_died_is_sent_after_its_restart(
    mortal: OrdersServer, speak: Orders
) -> None:
    with Source(mortal, speak) as source:
        mine, offered = offering(source)
        requests = {number: speak.echo(mine, number, f"text {number}") for number in (1, 2, 3, 4)}
        for number in (1, 2, 3):
            assert place(source.post(requests[number])) == (offered, number, False)
        source.send(requests[4])
        stored = "select count(*) from reply where number is not null"
        assert within(20, lambda: source.store.rows(stored), lambda rows: rows == [(4,)]) == [(4,)]
        mortal.kill()
        mortal.start()
        source.reconnect()
        answer = source.post(requests[4])
        assert place(answer) == (offered, 4, False)
        assert b"text 4" in answer.body
        assert answer.reply.ack.ranges == ((1, 4),)
        assert place(source.post(requests[2])) == (offered, 2, False)
        assert source.calls(mine) == [1, 2, 3, 4]


@pytest.mark.peer("P-03")
@each_rm
def test_with_an_address_one_acknowledgement_by_itself_comes_when_the_interval_is_over(
    servers: Servers, speak: Orders
) -> None:
    slow = {"all": {"path": "/", "acknowledgement_interval": INTERVAL}}
    with listening() as endpoint, Source(servers(decoupled=ALLOWED, partners=slow), speak) as source:
        identifier = created(source, endpoint)
        begun = time.monotonic()
        for number in (1, 2, 3):
            assert source.put(identifier, number).status == 202
        if time.monotonic() - begun < INTERVAL:
            assert endpoint.acknowledged(identifier, (1, 3))
            assert len(endpoint.saying("SequenceAcknowledgement")) == 1
        assert source.delivered(identifier) == [1, 2, 3]


@pytest.mark.peer("P-48")
@pytest.mark.parametrize("way", ["anonymous", "decoupled"])
@every_version
def test_the_server_follows_each_client_in_its_versions_on_its_way(way: str, servers: Servers, speak: Orders) -> None:
    rm = speak.rm
    with listening() as endpoint, Source(servers(decoupled=ALLOWED), speak) as source:
        is_decoupled = way == "decoupled"
        identifier = created(source, endpoint) if is_decoupled else source.create()
        reply_to = endpoint.url if is_decoupled else ""
        said = [source.put(identifier, 1), source.echo(identifier, 2, "two", reply_to=reply_to)]
        assert source.delivered(identifier) == [1, None]
        if is_decoupled:
            assert [answer.status for answer in said] == [202, 202]
            replies = [endpoint.one("echoResponse")]
            assert endpoint.acknowledged(identifier, (1, 2))
        else:
            replies = [answer.reply for answer in said]
        for reply in (*replies, *endpoint.received):
            assert (reply.soap, reply.addressing, reply.rm or rm) == (speak.soap, speak.addressing, rm)
        source.terminate(identifier, 2 if rm.has_close else None, reply_to=reply_to)
        assert source.store.sequence(identifier)["ended"] == "terminated"


@in_1_0
def test_a_last_message_of_no_sequence_by_which_cxf_ends_is_answered_with_nothing(source: Source) -> None:
    identifier, speak = source.create(), source.speak
    source.put(identifier, 1)
    source.delivered(identifier)
    before = source.store.everything()
    for _ in range(2):
        answer = source.post(speak.envelope(speak.rm.action("LastMessage"), ""))
        assert (answer.status, answer.body) == (202, b"")
    assert source.store.everything() == before
    assert source.put(identifier, 2).reply.ack.ranges == ((1, 2),)
