"""kill -9 of a real server, with threads or with an event loop, at each boundary of a message's way: twenty times each.

One store and one sequence live through all twenty lives of a test: what an earlier death left behind is there for the
next one.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.checker import problems
from tests.crash.witness import Witness, settled
from tests.support.orders import OrderSender
from tests.support.orders_server import within

each_front = pytest.mark.parametrize(
    ("front", "lives"),
    [
        *(pytest.param(front, 20, marks=pytest.mark.long) for front in ("waitress", "uvicorn")),
        pytest.param("uvicorn", 4, marks=pytest.mark.brief),
    ],
)
A_LIFE = 6
"""Messages sent in each life; the server dies at the third or fourth."""


def live_and_die(witness: Witness, source: OrderSender, point: str, passing: int, *, echo: bool = False) -> None:
    """The rest of one life: send until the server dies."""
    witness.die_at(point, passing)
    source.disconnect()  # from an earlier life
    first = max(source.acknowledged, default=0) + 1
    with suppress(OSError):
        for number in range(first, first + A_LIFE):
            if echo:
                source.echo(number, f"t{number}")
            else:
                source.send(number)
    witness.wait()


@pytest.mark.timeout(240)
@each_front
@pytest.mark.parametrize("point", ["before_commit", "after_commit", "in_call", "before_settle", "after_settle"])
@pytest.mark.spec("D-DUR-001", "D-DUR-002", "D-ACK-030", versions="all")
@pytest.mark.invariant("I7")
def test_a_kill_at_each_boundary_loses_repeats_and_swaps_nothing(
    tmp_path: Path, point: str, front: str, lives: int
) -> None:
    """One-way messages in one life, two-way ones in the next."""
    witness = Witness(tmp_path, front)
    witness.start()
    source = OrderSender(witness)
    for life in range(lives):
        live_and_die(witness, source, point, 3 + life % 2, echo=life % 2 == 1)
        acknowledged_before = set(source.acknowledged)
        witness.start()
        # What was deliverable at the kill is delivered although nothing is sent.
        effects = settled(witness, source.identifier, max(acknowledged_before))
        assert acknowledged_before <= set(effects)
    last = max(source.acknowledged) + 1
    for number in range(1, last + 1):
        source.send_until_acknowledged(number)
    settled(witness, source.identifier, last)
    witness.stop()
    assert source.acknowledged == set(range(1, last + 1))
    found = problems(source.acknowledged, witness.effects(source.identifier), witness.calls(source.identifier))
    assert found == []
    assert witness.lives == lives + 1


@pytest.mark.timeout(240)
@each_front
@pytest.mark.spec("D-DUR-006", "D-DEL-020", versions="all")
def test_a_kill_between_settling_a_request_and_answering_it_runs_it_no_second_time(
    tmp_path: Path, front: str, lives: int
) -> None:
    """The reply is stored with the settlement: the resend gets it, and the service is not called again."""
    witness = Witness(tmp_path, front)
    witness.start()
    source = OrderSender(witness)
    for _ in range(lives):
        live_and_die(witness, source, "after_settle", 3, echo=True)
        witness.start()
    last = max(source.acknowledged) + 1
    for number in range(1, last + 1):
        source.send_until_acknowledged(number)
    witness.stop()
    calls = witness.calls(source.identifier)
    assert [n for n, _ in calls] == list(range(1, last + 1))
    assert problems(source.acknowledged, witness.effects(source.identifier), calls) == []


@pytest.mark.timeout(240)
@each_front
@pytest.mark.spec("S-SND-004", "S-RET-010", "H-010", "D-DUR-006", versions="all")
@pytest.mark.parametrize("point", ["before_settle", "after_settle"])
def test_a_kill_around_a_reply_s_commit_gives_its_place_in_the_offered_sequence_once(
    tmp_path: Path, point: str, front: str, lives: int
) -> None:
    """Whatever was on the wire before a kill is the same after it: each reply's number and MessageID."""
    witness = Witness(tmp_path, front)
    witness.start()
    source = OrderSender(witness, offer=uuid.uuid4().urn)
    seen: dict[int, set[tuple[int, str | None]]] = {}

    def echo(number: int) -> None:
        # What ran at the kill is called again after a pause: until then there is no answer.
        reply = within(20, lambda: source.echo(number, f"t{number}"), lambda answer: bool(answer.body)).reply
        assert reply.sequence is not None
        seen.setdefault(number, set()).add((reply.sequence.number, reply.message_id))

    for _ in range(lives):
        witness.die_at(point, 2)
        source.disconnect()
        first = max(seen, default=0) + 1
        with suppress(OSError):
            for number in range(first, first + A_LIFE):
                echo(number)
        witness.wait()
        witness.start()
    source.disconnect()
    for number in range(1, max(seen) + 1):
        echo(number)
    witness.stop()
    assert [sorted(places)[0][0] for _number, places in sorted(seen.items())] == list(range(1, max(seen) + 1))
    assert {len(places) for places in seen.values()} == {1}


@pytest.mark.scenario("Q-040")
@pytest.mark.spec("D-DUR-005", versions="all")
def test_what_was_held_at_a_kill_is_delivered_when_the_gap_is_filled_after_it(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    witness.start()
    source = OrderSender(witness)
    for number in (2, 3, 4, 5):
        source.send(number)
    assert source.acknowledged == {2, 3, 4, 5}
    witness.kill()
    witness.start()
    assert witness.effects(source.identifier) == []
    source.send_until_acknowledged(1)
    assert settled(witness, source.identifier, 5) == [1, 2, 3, 4, 5]
    witness.stop()
    assert witness.calls(source.identifier) == [(n, False) for n in range(1, 6)]


@pytest.mark.spec("D-DUR-001", versions="all")
@pytest.mark.peer("P-55")
def test_what_ran_at_a_kill_and_was_not_settled_is_called_again_with_a_mark(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    witness.start()
    source = OrderSender(witness)
    source.send(1)
    assert settled(witness, source.identifier, 1) == [1]
    witness.die_at("before_settle", 1)
    with suppress(OSError):
        source.send(2)
    witness.wait()
    witness.start()
    source.send_until_acknowledged(3)
    assert settled(witness, source.identifier, 3) == [1, 2, 3]
    witness.stop()
    assert witness.calls(source.identifier) == [(1, False), (2, False), (2, True), (3, False)]
