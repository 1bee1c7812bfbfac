"""A dead letter, from the failure to the service that takes it after all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source
from wsrm_mq.cli import program

Start = Callable[..., OrdersServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[OrdersServer] = []

    def begin(**options: Any) -> OrdersServer:
        servers.append(OrdersServer(tmp_path, **options))
        servers[-1].start()
        return servers[-1]

    yield begin
    for server in servers:
        if server.is_running:
            server.stop()


def wsrm(server: OrdersServer, *arguments: object) -> dict[str, Any]:
    """What a command answers, as JSON."""
    command = [*map(str, arguments), "--store", str(server.store), "--json"]
    result = CliRunner().invoke(program, command, prog_name="wsrm-mq")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def act(server: OrdersServer, *arguments: object) -> dict[str, Any]:
    return wsrm(server, *arguments, "--yes", "--reason", "the disk has room again", "--actor", "alice")


def letters(server: OrdersServer, *query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = wsrm(server, "dead-letter", "list", *query)["dead_letters"]
    return found


@pytest.mark.scenario("Q-097")
def test_an_operator_sees_all_of_a_dead_letter_and_redrives_it_with_its_history_kept(
    start: Start, speak: Orders
) -> None:
    server = start(retry=[0.02], on_poison="dead_letter")
    with Source(server, speak) as source:
        identifier = source.create()
        source.put(identifier, 1, "fail=2")
        source.put(identifier, 2)
        (letter,) = within(5, lambda: letters(server), bool)
        position = letter["position"]
        assert (letter["queue"], letter["sequence"], letter["number"]) == (server.path, identifier, 1)
        assert (letter["reason"], letter["failures"], letter["deliveries"]) == ("max_failures", 2, 2)
        assert letter["died_at"] > letter["received_at"]
        assert "OSError: the operation fails, as it was told to" in letter["last_error"]
        body = wsrm(server, "message", "body", position)["body"]
        assert body.encode() == source.store.body(identifier, 1)
        assert source.soon(identifier, [2]) == [2]

        act(server, "dead-letter", "redrive", position)
        assert source.soon(identifier, [2, 1]) == [2, 1], "under the key that the service knows it by"
        replayed = "select deliveries, failures, outcome from entry where replay_of = ?"
        assert within(5, lambda: source.store.rows(replayed, position), lambda row: row[0][2] is not None) == [
            (1, 0, "delivered")
        ]
        before = wsrm(server, "message", "show", position)
        assert (before["message"]["failures"], before["message"]["reason"]) == (2, "replayed")
        assert [row["event"] for row in before["ledger"]] == ["failed", "failed", "dead", "redriven"]
        assert before["ledger"][-1]["actor"] == "alice"
    assert letters(server) == []


def test_what_the_service_has_done_it_does_not_do_again_when_its_dead_letter_is_redriven(
    start: Start, speak: Orders
) -> None:
    """It died after it had done the message; an operator gave that up, and had it delivered after all."""
    server = start()
    with Source(server, speak) as source:
        identifier = source.create()
        source.send(speak.put_once(identifier, 1, "die-after=1"))
        server.died()
        act(server, "sequence", "skip", identifier, 1)
        act(server, "dead-letter", "redrive", "--all")
        server.start()
        assert within(5, lambda: source.calls(identifier), lambda calls: len(calls) == 2) == [1, 1]
        assert within(5, lambda: source.store.rows("select 1 from entry where outcome = 'delivered'"), bool)
        assert source.soon(identifier, [1]) == [1], "one effect"


@pytest.mark.scenario("Q-098")
def test_a_store_at_its_quota_still_moves_messages_to_the_dead_letters_and_back(start: Start, speak: Orders) -> None:
    quota = 1_000_000
    server = start(retry=[0.3], on_poison="dead_letter", max_store=quota)
    with Source(server, speak) as source, Source(server, speak) as other:
        identifier, filler = source.create(), other.create()
        source.put(identifier, 1, "fail=2")
        number = 1
        while (answer := other.put(filler, number, "x" * 100_000)).status != 503:
            number += 1
        assert number < 20, answer
        assert letters(server) == [], "it waits for its second try"
        (letter,) = within(5, lambda: letters(server), bool)
        assert other.put(filler, number, "x" * 100_000).status == 503
        act(server, "dead-letter", "redrive", letter["position"])
        assert source.soon(identifier, [1]) == [1]
        assert other.put(filler, number, "x" * 100_000).status == 503
