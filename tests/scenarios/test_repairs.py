"""What an operator repairs while the service is stopped, or dead, goes on when it starts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source
from wsrm_mq.cli import program


@pytest.fixture
def server(tmp_path: Path) -> Any:
    server = OrdersServer(tmp_path, retry=[])
    server.start()
    yield server
    server.stop()


@pytest.fixture
def repair(server: OrdersServer) -> Callable[..., Result]:
    def run(*arguments: object) -> Result:
        command = ["sequence", *map(str, arguments), "--store", str(server.store), "--yes", "--reason", "it is 3 am"]
        return CliRunner().invoke(program, command, prog_name="wsrm-mq")

    return run


@pytest.mark.scenario("Q-079")
def test_a_message_that_runs_when_the_service_is_killed_is_skipped_before_it_starts_again(
    server: OrdersServer, speak: Orders, repair: Callable[..., Result]
) -> None:
    with Source(server, speak) as source:
        identifier = source.create()
        source.put(identifier, 1, "gate=never")
        source.put(identifier, 2)
        assert within(5, lambda: source.calls(identifier), bool) == [1]
        refused = repair("skip", identifier, 1)
        assert (refused.exit_code, "is being run" in refused.stderr) == (4, True)
        server.kill()
        done = repair("skip", identifier, 1)
        assert done.exit_code == 0, done.output
        server.start()
        assert source.soon(identifier, [2]) == [2]
        assert within(5, lambda: source.store.unsettled(identifier), lambda left: left == 0) == 0
        assert source.store.outcomes(identifier) == {1: "dead", 2: "delivered"}
        assert source.calls(identifier) == [1, 2]


@pytest.mark.scenario("Q-079")
def test_the_last_failure_of_a_message_blocks_its_sequence_and_no_other_with_an_alarm(
    server: OrdersServer, speak: Orders, repair: Callable[..., Result]
) -> None:
    with Source(server, speak) as source:
        stuck, other = source.create(), source.create()
        source.put(stuck, 1, "fail=1")
        source.put(stuck, 2)
        assert within(5, lambda: source.store.sequence(stuck)["blocked"], bool)
        source.put(stuck, 3)
        source.put(other, 1)
        assert source.delivered(other) == [1]
        assert source.soon(stuck, []) == [], "what follows waits"
        told = [line for line in server.log.read_text().splitlines() if line.startswith("sequence.blocked")]
        assert [stuck in line for line in told] == [True]
        check = CliRunner().invoke(program, ["check", "--store", str(server.store)], prog_name="wsrm-mq")
        assert (check.exit_code, "sequences stopped by a message: 1" in check.output) == (1, True), check.output
        done = repair("skip", stuck, 1)
        assert done.exit_code == 0, done.output
        assert source.soon(stuck, [2, 3]) == [2, 3]


@pytest.mark.parametrize("end", [OrdersServer.stop, OrdersServer.kill], ids=["stopped", "killed"])
def test_a_blocked_sequence_is_resumed_while_the_service_is_down(
    server: OrdersServer, speak: Orders, repair: Callable[..., Result], end: Callable[[OrdersServer], None]
) -> None:
    with Source(server, speak) as source:
        identifier = source.create()
        source.put(identifier, 1, "fail=1")
        source.put(identifier, 2)
        blocked = within(5, lambda: source.store.sequence(identifier)["blocked"], bool)
        assert blocked
        end(server)
        done = repair("resume", identifier)
        assert done.exit_code == 0, done.output
        assert "when the service starts" in done.stderr
        server.start()
        assert source.soon(identifier, [1, 2]) == [1, 2]


@pytest.mark.invariant("I3")
def test_what_a_dead_worker_ran_is_resumed_beside_another_that_lives(
    server: OrdersServer, speak: Orders, tmp_path: Path, repair: Callable[..., Result]
) -> None:
    """Whether the operator or the live worker comes first: the message runs once more, marked."""
    other = OrdersServer(tmp_path, retry=[])
    other.start()
    try:
        with Source(server, speak) as source:
            identifier = source.create()
            source.put(identifier, 1, "gate=later")
            assert within(5, lambda: source.calls(identifier), bool) == [1]
            server.kill()
            repair("resume", identifier)
            other.open_gate("later")
            assert source.soon(identifier, [1]) == [1]
            assert within(5, lambda: source.store.unsettled(identifier), lambda left: left == 0) == 0
            assert source.calls(identifier) == [1, 1]
    finally:
        other.stop()


@pytest.mark.peer("P-25")
@pytest.mark.parametrize("ran", [2, 3], ids=["the late one", "one behind it"])
def test_a_kill_counts_against_the_number_that_ran_when_another_came_late(
    server: OrdersServer, speak: Orders, repair: Callable[..., Result], ran: int
) -> None:
    """Number 2 comes after the sequence was forced past it, while 3 runs; 3 is done before 2 runs."""
    with Source(server, speak) as source:
        identifier = source.create()
        source.put(identifier, 1)
        source.put(identifier, 3, "gate=third")
        assert repair("force", identifier, "--past", "2").exit_code == 0
        assert within(5, lambda: source.calls(identifier), lambda calls: calls[-1:] == [3])[-1] == 3
        source.put(identifier, 2, "gate=never")
        if ran == 2:
            server.open_gate("third")
            assert within(5, lambda: source.calls(identifier), lambda calls: calls[-1:] == [2])[-1] == 2
        server.kill()
        repaired = repair("skip", identifier, 2)
        assert repaired.exit_code == 0, repaired.output
        deaths = "SELECT number, deaths FROM entry WHERE deaths > 0"
        with closing(sqlite3.connect(server.store)) as db:
            assert db.execute(deaths).fetchall() == [(ran, 1)]
