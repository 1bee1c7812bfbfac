"""Limits as a peer meets them (groups SEC and D-EXP): each server here has them low."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.protocol.conftest import Servers
from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source, each_rm, each_rm_at_length, every_version, in_1_1
from wsrm_mq.testing import HTTPAnswer
from wsrm_mq.versions import SOAPVersion

IDLE = 150
HOLD_WAIT = 2.0
FAR = 4611686018427387904


@pytest.fixture
def limited(servers: Servers) -> OrdersServer:
    """A server with a path for each low limit."""
    sections = {
        "idle": {"inactivity": IDLE},
        "near": {"window": 100},
        "hundred": {"max_held": 100},
        "wcf": {"stack": "wcf", "window": 4},
        "sparing": {"one_way_answer": "empty", "acknowledgement_interval": 3600},
        "strict": {"strict_addressing": True},
    }
    partners = {name: {"path": f"/{name}", **options} for name, options in sections.items()}
    return servers(partners=partners, hold_wait=HOLD_WAIT, max_waiting=4, threads=16)


@pytest.fixture
def narrow(servers: Servers) -> OrdersServer:
    """A server with low limits for all."""
    return servers(
        partners={
            "whole": {"path": "/whole", "behavior": "DiscardEntireSequence"},
            "binding": {"path": "/binding", "sender_fault_status": 400},
        },
        bounds={"wsrm_mq.config.settings.Room": {"max_held_bytes": 4_000}},
        max_sequences=2,
        max_waiting_peer=1,
        max_body=20_000,
        verify_body=True,
        hold_wait=HOLD_WAIT,
        max_waiting=4,
        threads=16,
    )


def sources(server: OrdersServer, speak: Orders) -> Iterator[type[Source]]:
    """At a path of the server, each of a principal."""
    opened: list[Source] = []

    def source(path: str, user: str = "acme") -> Source:
        opened.append(Source(server, speak, path, fields=(f"X-User: {user}",)))
        return opened[-1]

    yield source  # type: ignore[misc]
    for each in opened:
        each.wire.close()


@pytest.fixture
def at(limited: OrdersServer, speak: Orders) -> Iterator[type[Source]]:
    yield from sources(limited, speak)


@pytest.fixture
def narrowly(narrow: OrdersServer, speak: Orders) -> Iterator[type[Source]]:
    yield from sources(narrow, speak)


def turned_away(answer: HTTPAnswer) -> None:
    assert answer.status == 503
    assert int(answer.fields["retry-after"]) > 0
    assert answer.acked is None if answer.body.startswith(b"<") else True


@every_version
@pytest.mark.spec("SEC-009")
@pytest.mark.peer("P-33")
def test_a_peer_that_opens_too_many_sequences_is_refused_and_the_others_notice_nothing(narrowly, request) -> None:
    ours, others = (f"{name} {request.node.callspec.id}" for name in ("greedy", "modest"))
    greedy, modest = narrowly("/orders", ours), narrowly("/orders", others)
    first, second = greedy.create(), greedy.create()
    refused = greedy.post(greedy.speak.create_sequence())
    assert refused.status == 500
    fault = refused.reply.fault
    assert fault is not None
    assert fault.subcode == "CreateSequenceRefused"
    if greedy.speak.soap is SOAPVersion.SOAP_1_2:
        assert fault.code == "Receiver"
    assert greedy.put(first, 1).acked == [(1, 1)], "what is open goes on"
    identifier = modest.create()
    assert modest.put(identifier, 1).acked == [(1, 1)]
    greedy.terminate(second)
    assert greedy.create()


@each_rm
@pytest.mark.spec("SEC-010")
@pytest.mark.peer("P-31")
def test_abandoned_sequences_end_at_the_idle_limit_although_they_were_to_last_for_ever(at) -> None:
    source = at("/idle")
    abandoned = [source.create(expires="PT0S") for _ in range(5)]
    for identifier in abandoned:
        source.put(identifier, 1)

    def states() -> set[str]:
        return {source.store.sequence(identifier)["state"] for identifier in abandoned}

    source.server.let_pass(IDLE)
    assert within(5, states, lambda seen: seen == {"ended"}) == {"ended"}
    for identifier in abandoned:
        fault = source.put(identifier, 2).reply.fault
        assert fault is not None
        assert fault.subcode in ("UnknownSequence", "SequenceTerminated")
        assert source.delivered(identifier) == [1]


@each_rm
@pytest.mark.spec("SEC-010")
@pytest.mark.peer("P-32")
def test_keep_alives_at_half_the_idle_limit_let_a_sequence_live(at) -> None:
    source = at("/idle")
    identifier = source.create()
    source.put(identifier, 1)
    for _ in range(6):
        source.server.let_pass(IDLE / 2)
        assert source.ask(identifier).acked == [(1, 1)]
    assert source.put(identifier, 2).acked == [(1, 2)]


@each_rm
@pytest.mark.spec("SEC-011")
def test_a_number_far_outside_the_window_costs_nothing_and_is_not_taken(at, limited: OrdersServer) -> None:
    source = at("/near")
    for _ in range(20):
        turned_away(source.put(source.create(), FAR))
    before = limited.memory()
    begun = time.monotonic()
    for _ in range(20):
        turned_away(source.put(source.create(), FAR))
    assert time.monotonic() - begun < 20 * 0.25
    assert limited.memory() - before < 2**20
    identifier = source.create()
    turned_away(source.put(identifier, 101))
    assert source.put(identifier, 100).acked == [(100, 100)]
    assert source.store.received(identifier) == [(100, 100)]


@each_rm
@pytest.mark.spec("SEC-014")
@pytest.mark.scenario("Q-051")
def test_message_101_beyond_a_gap_is_turned_away_without_a_trace_until_there_is_room(at) -> None:
    source = at("/hundred")
    identifier = source.create()
    for number in range(2, 102):
        assert source.put(identifier, number).acked == [(2, number)]
    before = source.store.everything()
    for number in (102, 5_000):
        turned_away(source.put(identifier, number))
    turned_away(source.echo(identifier, 103, "no"))
    assert source.store.everything() == before
    assert source.ask(identifier).acked == [(2, 101)]
    assert source.put(identifier, 50).acked == [(2, 101)], "a duplicate needs no room"
    assert source.put(identifier, 1).acked == [(1, 101)], "what fills the gap makes room"
    assert source.put(identifier, 102).acked == [(1, 102)]
    assert source.delivered(identifier) == list(range(1, 103))


@each_rm
@pytest.mark.spec("SEC-014")
def test_what_is_held_altogether_is_bounded_over_all_sequences(servers: Servers, speak: Orders) -> None:
    """In count and bytes, over all principals; and in time: the sequence ends, what it held is delivered."""
    room = {"max_held_total": 3, "max_held_bytes_total": 6_000}
    limited = servers(bounds={"wsrm_mq.config.settings.Room": room}, inactivity=IDLE)
    with Source(limited, speak, fields=("X-User: one",)) as one, Source(limited, speak) as other:
        first, second, third = one.create(), other.create(), one.create()
        assert one.put(first, 2).acked == [(2, 2)]
        assert one.put(first, 3).acked == [(2, 3)]
        assert other.put(second, 2).acked == [(2, 2)]
        turned_away(one.put(third, 2))
        turned_away(other.put(second, 3))
        assert other.put(second, 1).acked == [(1, 2)], "what fills the gap makes room"
        assert one.put(third, 2).acked == [(2, 2)]
        assert one.put(third, 1).acked == [(1, 2)]
        turned_away(other.put(second, 4, "x" * 6_000))
        limited.let_pass(IDLE)
        assert within(8, lambda: one.store.sequence(first)["state"], lambda state: state == "ended") == "ended"
        assert one.delivered(first) == [2, 3]
        assert other.delivered(second) == [1, 2]


@each_rm
@pytest.mark.spec("SEC-014")
def test_what_is_over_the_bytes_that_may_wait_is_taken_when_there_is_room(narrowly, request) -> None:
    source = narrowly("/orders", request.node.name)
    identifier = source.create()
    text = "x" * 800
    assert source.put(identifier, 2, text).acked == [(2, 2)]
    assert source.put(identifier, 3, text).acked == [(2, 3)]
    turned_away(source.put(identifier, 4, text))
    assert source.store.received(identifier) == [(2, 3)]
    assert source.put(identifier, 1, text * 5).acked == [(1, 3)], "what fills the gap makes room"
    assert source.put(identifier, 4, text).acked == [(1, 4)]
    assert source.delivered(identifier) == [1, 2, 3, 4]


@in_1_1
@pytest.mark.spec("SEC-014")
def test_a_sequence_that_waits_to_be_whole_is_terminated_when_it_is_too_large(narrowly, request) -> None:
    source = narrowly("/whole", request.node.name)
    identifier = source.create()
    text = "x" * 800
    for number in (1, 2):
        assert source.put(identifier, number, text).acked == [(1, number)]
    fault = source.put(identifier, 3, text).reply.fault
    assert fault is not None
    assert fault.subcode == "SequenceTerminated"
    dead = {1: "dead", 2: "dead"}
    assert within(5, lambda: source.store.outcomes(identifier), lambda seen: seen == dead) == dead


@each_rm_at_length
@pytest.mark.spec("SEC-030")
def test_a_peer_may_have_few_requests_wait_and_the_others_still_may(narrowly, request) -> None:
    one, other = (f"{name} {request.node.name}" for name in ("patient", "alone"))
    greedy, again, modest = narrowly("/orders", one), narrowly("/orders", one), narrowly("/orders", other)
    seconds: dict[str, float] = {}

    def wait(name: str, source: Source) -> None:
        identifier = source.create()
        begun = time.monotonic()
        answer = source.echo(identifier, 2, "two")
        seconds[name] = time.monotonic() - begun
        assert (answer.status, answer.body) == (202, b"")

    waiting = threading.Thread(target=wait, args=("greedy", greedy))
    waiting.start()
    time.sleep(HOLD_WAIT / 4)
    wait("again", again)
    wait("modest", modest)
    waiting.join()
    assert seconds["again"] < HOLD_WAIT / 2
    assert min(seconds["greedy"], seconds["modest"]) > HOLD_WAIT * 0.9


@each_rm
@pytest.mark.peer("P-67")
@pytest.mark.spec("D-SEQ-024")
def test_wcf_is_told_how_much_room_there_is_and_what_finds_none_stays_unacknowledged(at) -> None:
    source = at("/wcf")
    identifier = source.create()
    answer = source.put(identifier, 1)
    (room,) = answer.elements("BufferRemaining")
    assert (room.tag, room.text) == ("{http://schemas.microsoft.com/ws/2006/05/rm}BufferRemaining", "4")
    assert room.getparent().tag == f"{{{source.speak.rm.namespace}}}SequenceAcknowledgement"
    assert source.put(identifier, 5).text("BufferRemaining") == "0"
    refused = source.put(identifier, 6)
    assert (refused.status, refused.acked, refused.text("BufferRemaining")) == (200, [(1, 1), (5, 5)], "0")
    assert source.store.received(identifier) == [(1, 1), (5, 5)]
    assert source.put(identifier, 2).acked == [(1, 2), (5, 5)]
    assert source.put(identifier, 6).acked == [(1, 2), (5, 6)]


@each_rm
@pytest.mark.peer("P-67")
@pytest.mark.spec("D-SEQ-024")
def test_wcf_is_told_of_the_room_on_replies_and_when_it_asks_too(at) -> None:
    source = at("/wcf")
    identifier = source.create()
    assert source.put(identifier, 3).text("BufferRemaining") == "1"
    answer = source.echo(identifier, 1, "one")
    assert (answer.reply.body_name, answer.acked) == ("echoResponse", [(1, 1), (3, 3)])
    assert answer.text("BufferRemaining") == "2"
    assert source.echo(identifier, 1, "one").text("BufferRemaining") == "2", "a duplicate gets the stored reply"
    assert source.ask(identifier).text("BufferRemaining") == "2"
    assert source.put(identifier, 2).text("BufferRemaining") == "4"
    usual = at("/orders")
    assert usual.echo(usual.create(), 1, "one").elements("BufferRemaining") == []


@each_rm
def test_with_empty_answers_an_acknowledgement_comes_after_its_interval_and_whenever_it_matters(at) -> None:
    source = at("/sparing")
    identifier = source.create()
    assert source.put(identifier, 1).acked == [(1, 1)], "the first: there was none before"
    answer = source.put(identifier, 2)
    assert (answer.status, answer.body) == (202, b"")
    assert source.put(identifier, 2).acked == [(1, 2)], "a duplicate: the source does not know"
    assert source.put(identifier, 4).acked == [(1, 2), (4, 4)], "a gap"
    assert source.put(identifier, 3).body == b""
    assert source.put(identifier, 5, ack_requested=True).acked == [(1, 5)]


@each_rm
def test_a_partner_may_be_asked_for_more_than_others(at) -> None:
    usual = at("/orders")
    incomplete = usual.speak.create_sequence(message_id=None, reply_to=None)
    assert usual.post(incomplete).status == 200 or usual.speak.soap is SOAPVersion.SOAP_1_1
    fault = at("/strict").post(incomplete).reply.fault
    assert fault is not None


@each_rm
def test_a_body_may_be_bounded_and_checked(at, narrowly, request) -> None:
    usual, checked = at("/orders"), narrowly("/orders", request.node.name)
    for source, status in ((usual, 200), (checked, 500)):
        broken = source.speak.put(source.create(), 1).replace(b"</t:text>", b"</t:txet>")
        assert source.post(broken).status == status
    identifier = checked.create()
    assert checked.put(identifier, 1, "x" * 20_000).status == 413
    assert checked.put(identifier, 1, "x").acked == [(1, 1)]


@pytest.mark.spec("H-012", "H-013")
@every_version
def test_a_fault_of_the_sender_is_under_500_but_for_the_partner_whose_section_wants_400(narrowly, request) -> None:
    """A CXF client does not read what comes under 400: its caller waits for a minute."""
    for path, under_1_2 in (("/orders", 500), ("/binding", 400)):
        source = narrowly(path, request.node.name)
        expected = under_1_2 if source.speak.soap is SOAPVersion.SOAP_1_2 else 500
        identifier = source.create()
        answers = [
            source.put("urn:example:unknown", 1),
            source.post(source.speak.create_sequence(acks_to="http://192.0.2.1/acks")),
        ]
        assert [answer.status for answer in answers] == [expected] * 2, path
        assert source.put(identifier, 0).status == 500, "nothing is known of the sender of what makes no sense"
    broken = source.speak.put(identifier, 1).replace(b"</t:text>", b"</t:txet>")
    assert source.post(broken).status == 400, "what is not even XML, in either version of SOAP"


@pytest.mark.spec("H-013")
@each_rm
def test_the_status_of_the_senders_faults_may_be_400_for_all(servers: Servers, speak: Orders) -> None:
    with Source(servers(sender_fault_status=400), speak) as source:
        is_1_2 = speak.soap is SOAPVersion.SOAP_1_2
        assert source.put("urn:example:unknown", 1).status == (400 if is_1_2 else 500)
        assert source.post(b"<nothing").status == 400
