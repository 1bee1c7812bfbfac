"""Sequences that end by the clock (group D-EXP)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.policies import At, Start, having_policies
from tests.support.source import Source, each_rm, in_1_0, in_1_1
from wsrm_mq.envelope.lexical import parse_duration

HOUR = 3600.0
LIFETIME = 300
EXPIRES = f"PT{LIFETIME}S"
IDLE = 150


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory, front: str) -> Iterator[OrdersServer]:
    """One whose clock the tests set: it only ever goes on."""
    with having_policies(tmp_path_factory.mktemp("policies"), front, idle={"inactivity": IDLE}) as server:
        yield server


def ended(source: Source, identifier: str, seconds: float = 4) -> dict[str, Any]:
    """The row of a sequence as soon as it has ended."""
    return within(seconds, lambda: source.store.sequence(identifier), lambda row: row["state"] == "ended")


def fault_of(source: Source, envelope: bytes) -> str | None:
    reply = source.post(envelope).reply
    return reply.fault.subcode if reply.fault is not None else None


@each_rm
@pytest.mark.spec("D-EXP-001", "D-EXP-002")
def test_a_sequence_ends_by_itself_when_its_time_is_over(at: At) -> None:
    source = at()
    identifier = source.create(expires=EXPIRES)
    source.put(identifier, 1)
    source.server.let_pass(LIFETIME)
    row = ended(source, identifier)
    assert (row["state"], row["ended"]) == ("ended", "expired")
    assert fault_of(source, source.speak.put(identifier, 2)) == "UnknownSequence"
    assert fault_of(source, source.speak.put(identifier, 1)) == "UnknownSequence"
    assert fault_of(source, source.speak.ack_requested(identifier)) == "UnknownSequence"
    assert source.delivered(identifier) == [1]
    assert sorted(source.store.outcomes(identifier)) == [1]


@in_1_1
@pytest.mark.spec("D-EXP-003")
@pytest.mark.parametrize(
    ("path", "delivered", "dead"),
    [
        ("/orders", [1, 2, 4], {}),
        ("/gap", [1, 2], {4: "first_gap"}),
        ("/whole", [], dict.fromkeys((1, 2, 4), "incomplete_sequence")),
        ("/bury", [1, 2], {4: "sequence_terminated"}),
    ],
)
def test_an_incomplete_sequence_that_expires_is_treated_as_one_that_is_terminated(
    at: At, path: str, delivered: list[int], dead: dict[int, str]
) -> None:
    source = at(path)
    identifier = source.create(expires=EXPIRES)
    for number in (1, 2, 4):
        source.put(identifier, number)
    source.server.let_pass(LIFETIME)
    assert ended(source, identifier)["ended"] == "expired"
    assert within(5, lambda: source.store.dead_letters(identifier), lambda found: found == dead) == dead
    assert source.delivered(identifier) == delivered


@each_rm
@pytest.mark.spec("D-EXP-004")
def test_messages_do_not_make_a_sequence_live_longer(at: At) -> None:
    source = at()
    identifier = source.create(expires=EXPIRES)
    for number in (1, 2, 3):
        source.server.let_pass(0.3 * LIFETIME)
        assert source.put(identifier, number).reply.ack.ranges == ((1, number),)
    source.server.let_pass(0.1 * LIFETIME)
    assert ended(source, identifier)["ended"] == "expired"
    assert fault_of(source, source.speak.put(identifier, 4)) == "UnknownSequence"
    assert source.delivered(identifier) == [1, 2, 3]


@in_1_0
@pytest.mark.spec("D-EXP-005")
def test_a_sequence_that_is_silent_for_the_inactivity_timeout_ends(at: At) -> None:
    source = at("/idle")
    identifier = source.create()
    for number in range(1, 5):
        source.server.let_pass(0.5 * IDLE)  # four times: each message starts the timeout anew
        assert source.put(identifier, number).reply.ack.ranges == ((1, number),)
    assert source.store.sequence(identifier)["state"] == "created"
    source.server.let_pass(IDLE)
    assert ended(source, identifier)["ended"] == "expired"
    assert fault_of(source, source.speak.put(identifier, 5)) == "UnknownSequence"
    assert source.delivered(identifier) == [1, 2, 3, 4]


@pytest.fixture
def timed(start: Start) -> OrdersServer:
    """A server whose clock the test sets."""
    return start()


@each_rm
@pytest.mark.spec("D-EXP-006")
def test_the_time_goes_on_while_the_server_is_down(at: At, timed: OrdersServer) -> None:
    source = at(server=timed)
    long, short = source.create(expires="PT3H"), source.create(expires="PT1H")
    for identifier in (long, short):
        source.put(identifier, 1)
        assert source.delivered(identifier) == [1]
    before = source.store.sequence(long)["due_at"]
    timed.stop()
    timed.set_clock(2 * HOUR)
    timed.start()
    source.reconnect()
    assert ended(source, short)["ended"] == "expired"
    assert fault_of(source, source.speak.put(short, 2)) == "UnknownSequence"
    assert source.put(long, 2).reply.ack.ranges == ((1, 2),)
    assert source.store.sequence(long)["due_at"] == before
    timed.set_clock(3 * HOUR + 60)
    assert ended(source, long)["ended"] == "expired"


@each_rm
@pytest.mark.spec("D-EXP-007")
@pytest.mark.parametrize("asked", ["PT0S", "P0D", None])
def test_a_sequence_without_end_lives_for_as_long_as_the_server_lets_any(
    at: At, timed: OrdersServer, speak: Orders, asked: str | None
) -> None:
    """It is granted a finite time all the same, ours to set: gSOAP takes PT0S for a time that is over."""
    source = at(server=timed)
    created = source.post(speak.create_sequence(expires=asked)).reply.created
    assert created is not None
    granted = parse_duration(created.expires or "")
    assert granted == 7 * 24 * HOUR * 1000
    timed.set_clock(6.9 * 24 * HOUR)
    assert source.put(created.identifier, 1).reply.ack.ranges == ((1, 1),)
    timed.set_clock(7.1 * 24 * HOUR)
    assert ended(source, created.identifier)["ended"] == "expired"
