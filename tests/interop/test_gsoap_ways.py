"""Each way by which a gSOAP client gets its replies and acknowledgements: on the response, at an address of its own,
and fetched by WS-MakeConnection. It offers a sequence for replies: they come numbered in it until it acknowledges them.

The line to the server, and the one back to the client's address, lose every second message, repeat some and delay all.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.endpoint import ALLOWED
from tests.support.orders_server import OrdersServer, within
from tests.support.proxy import EverySecond, Numbered, Proxy
from tests.support.stored import Stored
from wsrm_mq.testing import HTTPAnswer
from wsrm_mq.versions import MAKE_CONNECTION_NAMESPACE, RMVersion

from .conftest import StartServer
from .gsoap_client import Conversation, GsoapClient, Step, at_length, each_addressing, every_variant, rm_1_0, rm_1_1

Gsoap = Callable[[OrdersServer], GsoapClient]

OPTIONS: Any = {
    "decoupled": ALLOWED,
    "resend": [0.3] * 20,
    "bounds": {"wsrm_mq.queue.polling.LENT_FOR": 500},
}
"""What is not acknowledged is sent, or may be fetched, again before a test grows old."""
HASTY: Any = {**OPTIONS, "hold_wait": 0.2}
"""And a request does not wait long for its reply."""


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrdersServer]:
    server = OrdersServer(tmp_path_factory.mktemp("orders"), **OPTIONS)
    server.start()
    yield server
    server.stop()


class Way(enum.Enum):
    RESPONSE = enum.auto()
    ADDRESS = enum.auto()
    FETCHED = enum.auto()


def bad_line(seed: int) -> EverySecond:
    return EverySecond(duplicates=0.3, delay=0.03, seed=seed)


class PollsAreLost(Proxy):
    """And every second answer to a MakeConnection is lost too, which has no number to go by."""

    polls = 0

    def pass_on(self, path: str, body: bytes, fields: dict[str, str]) -> HTTPAnswer | None:
        answer = super().pass_on(path, body, fields)
        if b"MakeConnection>" not in body:
            return answer
        self.polls += 1
        return answer if self.polls % 2 else None


@dataclass(frozen=True)
class Talk:
    """A client, its lines, and how it gets what is for it."""

    source: Conversation
    there: Proxy
    back: Proxy | None
    address: str | None
    """ReplyTo and AcksTo; ``None``: anonymous."""
    offered: str = field(default_factory=lambda: uuid.uuid4().urn)

    def create(self, *, offer: bool = True) -> Step:
        """Create the sequence, and wait for the response wherever it goes."""
        addresses = f" replyto={self.address} acksto={self.address}" if self.address else ""
        created = self.source.step(f"create expires=600000{f' offer={self.offered}' if offer else ''}{addresses}")
        assert self.until(lambda step: step.state == "created").state == "created"
        return created

    def state(self) -> Step:
        return self.source.step("state")

    def until(self, wanted: Callable[[Step], bool], meanwhile: str = "state") -> Step:
        """Take that step until what the client knows is ``wanted``."""
        return within(30, lambda: self.source.step(meanwhile), wanted)

    def answered(self, number: int, first: Step) -> Step:
        """What the client has once its request is answered: it sends the same bytes until a response has come."""
        if first.http:
            return first
        return self.until(lambda step: step.http > 0, f"again {number}")

    def replied(self, number: int) -> Step:
        """Call the operation, again and again until its reply comes on a response."""
        called = self.source.step(f"echo {number} text{number}")
        return called if called.reply else self.until(lambda step: step.reply is not None, f"again {number}")


@contextmanager
def talking(
    client: GsoapClient, server: OrdersServer, way: Way, there: Numbered | None = None, back: Numbered | None = None
) -> Iterator[Talk]:
    """A client that speaks to ``server`` over the line ``there``, and has answers at its address over ``back``."""
    with ExitStack() as stack:
        forth = stack.enter_context(PollsAreLost(server.port, there) if there else Proxy(server.port))
        url = forth.url.removesuffix("/") + server.path
        source = stack.enter_context(replace(client, url=url).conversation())
        home, address = None, None
        if way is Way.ADDRESS:
            home = stack.enter_context(Proxy(source.step("listen").port, back))
            address = f"{home.url}client"
        elif way is Way.FETCHED:
            address = f"{MAKE_CONNECTION_NAMESPACE}/anonymous?id={uuid.uuid4()}"
        yield Talk(source, forth, home, address)


def texts(first: int, last: int) -> list[tuple[int, str]]:
    """The replies to the calls of these numbers, where every call has one."""
    return [(number, f"text{number}") for number in range(first, last + 1)]


def unacknowledged(server: OrdersServer, talk: Talk) -> int:
    """How many replies the server still keeps, of the offered sequence."""
    [(count,)] = Stored(server.store).rows(
        "select unacknowledged from outbound_sequence where identifier = ?", talk.offered
    )
    return int(count)


def all_acknowledged(server: OrdersServer, talk: Talk) -> bool:
    """The client acknowledges by itself, once or more often: no answer says that it arrived."""

    def say() -> int:
        talk.source.step("ack")
        return unacknowledged(server, talk)

    return within(10, say, lambda count: count == 0) == 0


def assert_both_sequences_end(server: OrdersServer, talk: Talk, rm: RMVersion) -> None:
    """The client closes and terminates. In 1.0 the plug-in does not read the answer to its last message, which holds
    ours: where that is no request of its own the offered sequence is not known to be complete before it expires."""
    offered = "closed" if not rm.has_close and not talk.address else "terminated"
    talk.source.step("close")
    if not rm.has_close and talk.address:
        assert talk.until(lambda step: not step.pending).pending == []
        assert within(10, lambda: unacknowledged(server, talk), lambda count: count == 0) == 0
    ended = talk.source.step("terminate")
    assert (ended.error, ended.state) == (0, "terminated")
    query = (
        "select sequences.state, outbound_sequence.state from sequences, outbound_sequence"
        " where sequences.sequence = ? and outbound_sequence.identifier = ?"
    )
    assert Stored(server.store).rows(query, ended.seq, talk.offered) == [("ended", offered)]


# ---- on the response


@every_variant
@pytest.mark.spec("D-CRE-022", "D-CRE-033", "H-005", "H-006")
@pytest.mark.peer("P-12")
def test_replies_on_the_response_are_numbered_and_kept_until_the_client_acknowledges_them(
    gsoap: Gsoap, orders: OrdersServer, rm: RMVersion
) -> None:
    """The plug-in sends its acknowledgement to AcksTo of our Accept."""
    with talking(gsoap(orders), orders, Way.RESPONSE) as talk:
        talk.create()
        talk.source.steps("echo 1 text1", "send 2")
        third = talk.source.step("echo 3 text3")
        assert (third.acked, third.replies, third.received) == ([(1, 3)], [(1, "text1"), (2, "text3")], [(1, 2)])
        assert unacknowledged(orders, talk) == 1, "the request took along that the first was received"
        assert all_acknowledged(orders, talk)
        assert_both_sequences_end(orders, talk, rm)


@at_length
@pytest.mark.spec("D-DEL-020", "H-010")
@pytest.mark.peer("P-14", "P-15", "P-18")
def test_calls_over_a_bad_line_and_a_kill_run_once_and_each_has_its_reply(
    gsoap: Gsoap, orders_server: StartServer, rm: RMVersion
) -> None:
    server = orders_server(**OPTIONS)
    seen = server.mark()
    with talking(gsoap(server), server, Way.RESPONSE, line := bad_line(1)) as talk:
        talk.create()
        for number in range(1, 12):
            talk.replied(number)
        lost = talk.source.step("echo 12 text12")
        assert (lost.http, lost.pending) == (0, [12])
        assert seen.soon([0] * 12) == [None] * 12
        server.kill()
        assert talk.source.step("again 12").http == 0
        server.start()
        assert talk.until(lambda step: step.reply is not None, "again 12").reply == "text12"
        for number in range(13, 21):
            talk.replied(number)
        state = talk.state()
        assert (state.replies, state.pending) == (texts(1, 20), [])
        assert all_acknowledged(server, talk)
        assert_both_sequences_end(server, talk, rm)
    assert seen.texts() == [text for _number, text in texts(1, 20)]
    assert line.traffic.requests_lost == line.traffic.answers_lost == 5
    assert line.traffic.duplicates > 0


@at_length
@pytest.mark.spec("D-DEL-001", "D-DUR-002", "H-022")
@pytest.mark.peer("P-18", "P-27")
@pytest.mark.parametrize("way", [Way.RESPONSE, Way.ADDRESS])
def test_one_way_messages_over_a_bad_line_and_a_kill_arrive_once_and_in_order(
    way: Way, gsoap: Gsoap, orders_server: StartServer
) -> None:
    """The plug-in's resend does not read what comes of it: on the response it has to ask for an acknowledgement."""
    server = orders_server(**OPTIONS)
    seen = server.mark()
    with talking(gsoap(server), server, way, line := bad_line(3)) as talk:
        talk.create()
        for number in range(1, 21):
            talk.source.step(f"send {number}")
            if number == 10:
                server.kill()
                server.start()

        def resent() -> list[int]:
            talk.source.step("resend")
            return (talk.source.step("ackreq") if way is Way.RESPONSE else talk.state()).pending

        assert within(30, resent, lambda pending: not pending) == []
        assert seen.soon(list(range(1, 21))) == list(range(1, 21))
    assert line.traffic.requests_lost == line.traffic.answers_lost == 5


# ---- at an address of its own


@every_variant
@pytest.mark.spec("D-ACK-020", "H-002", "H-007")
@pytest.mark.peer("P-09", "P-48")
def test_everything_comes_to_the_address_of_the_client(gsoap: Gsoap, orders: OrdersServer, rm: RMVersion) -> None:
    with talking(gsoap(orders), orders, Way.ADDRESS) as talk:
        created = talk.create()
        calls = talk.source.steps("echo 1 text1", "send 2", "echo 3 text3")
        assert [step.http for step in (created, *calls)] == [202] * 4
        state = talk.until(lambda step: not step.pending and len(step.replies) == 2)
        assert (state.pending, state.replies, state.received) == ([], [(1, "text1"), (2, "text3")], [(1, 2)])
        assert all_acknowledged(orders, talk)
        assert all(one.answer is None or not one.answer.body for one in talk.there.exchanges)
        assert_both_sequences_end(orders, talk, rm)


@each_addressing
@pytest.mark.spec("D-ACK-023", "D-ACK-027")
@pytest.mark.peer("P-03")
def test_one_acknowledgement_of_several_messages_comes_to_the_address_by_itself(
    gsoap: Gsoap, orders: OrdersServer
) -> None:
    with talking(gsoap(orders), orders, Way.ADDRESS) as talk:
        back = talk.back
        assert back is not None

        def told() -> list[bytes]:
            return [one.request for one in back.exchanges if b"AcknowledgementRange" in one.request]

        talk.create()
        talk.source.steps("send 1", "send 2", "send 3")
        last = b'Upper="3"'
        assert talk.until(lambda step: not step.pending and any(last in one for one in told())).pending == []
        said = told()
        assert 1 <= len(said) <= 3
        assert last in said[-1]


@each_addressing
@pytest.mark.peer("P-10")
def test_replies_to_a_client_that_offered_nothing_come_to_its_address_without_a_number(
    gsoap: Gsoap, orders: OrdersServer
) -> None:
    with talking(gsoap(orders), orders, Way.ADDRESS) as talk:
        talk.create(offer=False)
        talk.source.steps("echo 1 text1", "echo 2 text2")
        state = talk.until(lambda step: not step.pending and len(step.replies) == 2)
        assert sorted(state.replies) == [(0, "text1"), (0, "text2")]


@at_length
@pytest.mark.spec("D-DEL-001", "H-010")
@pytest.mark.peer("P-09", "P-18", "P-53")
def test_requests_and_replies_over_bad_lines_and_a_kill_arrive_once_and_in_order(
    gsoap: Gsoap, orders_server: StartServer, rm: RMVersion
) -> None:
    """The plug-in hands on the next reply only, and acknowledges a copy of one it has."""
    server = orders_server(**OPTIONS)
    seen = server.mark()
    with talking(gsoap(server), server, Way.ADDRESS, there := bad_line(1), back := bad_line(2)) as talk:
        talk.create()
        for number in range(1, 11):
            talk.source.step(f"echo {number} text{number}")
        talk.until(lambda step: len(step.replies) > 3, "resend")
        server.kill()
        server.start()
        for number in range(11, 21):
            talk.source.step(f"echo {number} text{number}")
        state = talk.until(lambda step: not step.pending and len(step.replies) == 20, "resend")
        assert (state.replies, state.pending, state.received) == (texts(1, 20), [], [(1, 20)])
        assert all_acknowledged(server, talk)
        assert_both_sequences_end(server, talk, rm)
    assert seen.texts() == [text for _number, text in texts(1, 20)]
    for line in (there, back):
        assert line.traffic.requests_lost + line.traffic.answers_lost >= 10
        assert line.traffic.duplicates > 0


# ---- fetched by WS-MakeConnection


@rm_1_1
@pytest.mark.spec("MC-008", "MC-012")
def test_a_reply_that_is_there_in_time_comes_on_the_response_to_a_client_that_polls(
    gsoap: Gsoap, orders: OrdersServer, rm: RMVersion
) -> None:
    with talking(gsoap(orders), orders, Way.FETCHED) as talk:
        talk.create()
        assert talk.replied(1).acked == [(1, 1)]
        assert talk.source.step("send 2").acked == [(1, 2)]
        assert all_acknowledged(orders, talk)
        nothing = talk.source.step(f"poll {talk.address}")
        assert (nothing.http, nothing.reply, nothing.more) == (202, None, False)
        assert_both_sequences_end(orders, talk, rm)


@rm_1_1
@pytest.mark.spec("MC-001", "MC-006", "MC-010", "MC-011")
@pytest.mark.peer("P-16")
def test_replies_that_are_late_are_fetched_each_once_and_told_to_be_pending(
    gsoap: Gsoap, orders_server: StartServer
) -> None:
    orders, gate = orders_server(**HASTY), "go"
    with talking(gsoap(orders), orders, Way.FETCHED) as talk:
        talk.create()
        late = talk.source.steps(f"echo 1 gate={gate}", "echo 2 text2", "echo 3 text3")
        assert [step.reply for step in late] == [None] * 3
        assert (late[-1].acked, late[-1].pending) == ([(1, 3)], []), "acknowledged before the reply is there"
        assert talk.source.step(f"poll {talk.address}").http == 202
        orders.open_gate(gate)
        assert within(10, lambda: unacknowledged(orders, talk), lambda count: count == 3) == 3
        fetched = talk.source.steps(*[f"poll {talk.address}"] * 4)
        assert [(step.http, step.reply) for step in fetched] == [
            (200, f"gate={gate}"),
            (200, "text2"),
            (200, "text3"),
            (202, None),
        ]
        assert [step.more for step in fetched] == [True, True, False, False]
        assert [number for number, _text in fetched[-1].replies] == [1, 2, 3]
        again = talk.until(lambda step: step.reply is not None, f"poll {talk.address}")
        assert again.reply == f"gate={gate}", "not acknowledged, it is fetched again"
        assert (again.replies, again.received) == (fetched[-1].replies, [(1, 3)])
        assert all_acknowledged(orders, talk)
        assert talk.source.step(f"poll {talk.address}").http == 202


@rm_1_1
@pytest.mark.spec("MC-010", "D-DUR-006")
@pytest.mark.peer("P-16", "P-18", "P-53")
def test_replies_are_fetched_over_a_bad_line_and_after_a_kill_each_once(
    gsoap: Gsoap, orders_server: StartServer, rm: RMVersion
) -> None:
    """Of the polls every second answer is lost too. While the first operation waits nothing is replied to."""
    server = orders_server(**HASTY)
    seen = server.mark()
    with talking(gsoap(server), server, Way.FETCHED, line := bad_line(1)) as talk:
        talk.create()
        for number, text in enumerate(["gate=go", *(f"text{number}" for number in range(2, 11))], 1):
            talk.answered(number, talk.source.step(f"echo {number} {text}"))
        server.kill()
        server.start()
        server.open_gate("go")
        talk.until(lambda step: len(step.replies) > 3, f"poll {talk.address}")
        server.kill()
        server.start()
        state = talk.until(lambda step: len(step.replies) == 10, f"poll {talk.address}")
        assert sorted(state.replies) == [(1, "gate=go"), *texts(2, 10)]
        assert all_acknowledged(server, talk)
        assert_both_sequences_end(server, talk, rm)
    assert seen.texts() == ["gate=go", *(text for _number, text in texts(2, 10))]
    assert line.traffic.requests_lost + line.traffic.answers_lost == 5


@rm_1_0
@pytest.mark.spec("MC-020")
def test_a_sequence_of_rm_1_0_with_an_address_of_make_connection_is_refused(gsoap: Gsoap, orders: OrdersServer) -> None:
    address = f"{MAKE_CONNECTION_NAMESPACE}/anonymous?id={uuid.uuid4()}"
    [refused] = gsoap(orders).run([f"create offer replyto={address} acksto={address}"])
    assert refused.fault is not None
    assert refused.fault.name == "CreateSequenceRefused"
