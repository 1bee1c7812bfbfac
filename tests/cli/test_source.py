"""``wsrm-mq source`` over real stores, and to a real service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Wsrm, document
from tests.support.orders_server import OrdersServer
from wsrm_mq.source import RMSource

THERE = "http://127.0.0.1:9/rm"
"""Nothing listens there."""
ORDERS = "urn:example:orders"


def envelope(operation: str, *fields: tuple[str, object]) -> str:
    inner = "".join(f"<o:{name}>{value}</o:{name}>" for name, value in fields)
    return (
        '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>'
        f'<o:{operation} xmlns:o="{ORDERS}">{inner}</o:{operation}></s:Body></s:Envelope>'
    )


def stored(path: Path, *, minutes_ago: float = 0) -> None:
    """Three requests that no program sends any more."""
    with RMSource(path, clock=lambda: round((time.time() - minutes_ago * 60) * 1000)) as source:
        for n in range(3):
            source.send(envelope("put_order", ("n", n)).encode(), to=THERE, action=f"{ORDERS}/put_order")


@pytest.fixture
def outbox(somewhere: Path) -> Path:
    return somewhere / "wsrm.db"


def explained(wsrm: Wsrm) -> str:
    (one,) = document(wsrm("source", "explain", "--json"))["explanations"]
    sentence: str = one["explanation"]
    return sentence


def test_an_outbox_whose_program_is_gone_is_no_service_that_is_down(outbox: Path, wsrm: Wsrm) -> None:
    stored(outbox)
    told = document(wsrm("status", "--json"))["attention"]
    assert [one for one in told if one["severity"] != "notice"] == []
    status = wsrm("status")
    assert "no service: programs put, consume or send" in status.stdout
    assert explained(wsrm).endswith("and no program that sends from this store lives: start it.")
    assert wsrm("check").exit_code == 0


def test_requests_that_wait_for_long_are_told_with_what_can_be_done(outbox: Path, wsrm: Wsrm) -> None:
    stored(outbox, minutes_ago=10)
    found = {one["kind"]: one for one in document(wsrm("status", "--json"))["attention"]}
    assert found["requests"]["sentence"].startswith(f"3 requests to {THERE} wait for 10 min, and no program")
    assert "requests=1;0" in wsrm("check").stdout
    (listed,) = document(wsrm("source", "list", "--json"))["requests"]
    assert (listed["to"], listed["state"], listed["sent"], listed["waiting"]) == (THERE, "creating", 3, 3)
    shown = document(wsrm("source", "show", THERE, "--json"))["waiting"]
    assert [one["number"] for one in shown] == [1, 2, 3]


def test_a_program_that_sends_has_the_last_attempt_told(outbox: Path, wsrm: Wsrm) -> None:
    stored(outbox, minutes_ago=10)
    with RMSource(outbox):
        deadline = time.monotonic() + 20
        while "Connection refused" not in explained(wsrm):
            assert time.monotonic() < deadline
        (one,) = document(wsrm("source", "explain", "--json"))["explanations"]
        assert [step["command"].split()[2] for step in one["next_steps"]] == ["resend", "terminate"]
        (found,) = (each for each in document(wsrm("status", "--json"))["attention"] if each["kind"] == "requests")
        assert "Connection refused" in found["sentence"]


def test_what_is_held_is_told_and_goes_on_when_it_is_resumed(outbox: Path, wsrm: Wsrm) -> None:
    stored(outbox)
    assert wsrm("source", "hold", THERE, "--reason", "they move", "--yes").exit_code == 0
    assert "held by an operator since" in explained(wsrm)
    again = wsrm("source", "hold", THERE, "--reason", "they move", "--yes")
    assert (again.exit_code, "that is not held already" in again.stderr) == (4, True)
    assert wsrm("source", "resume", THERE, "--reason", "they have moved", "--yes").exit_code == 0
    assert "held" not in explained(wsrm)
    acts = document(wsrm("audit", "list", "--json"))["acts"]
    assert {one["reason"] for one in acts} == {"they move", "they have moved"}


def test_what_is_given_up_is_among_the_dead_letters(outbox: Path, wsrm: Wsrm) -> None:
    stored(outbox)
    dry = wsrm("source", "terminate", THERE, "--dry-run")
    assert "This would end the sequences" in dry.stderr
    assert "3 requests" in explained(wsrm)
    assert wsrm("source", "terminate", THERE, "--reason", "they are no more", "--yes").exit_code == 0
    (one,) = document(wsrm("source", "explain", "--json"))["explanations"]
    assert one["explanation"] == f"Nothing waits for {THERE}: of 3 requests 3 were given up."
    (step,) = one["next_steps"]
    letters = document(wsrm(*step["command"].split()[1:], "--json"))["dead_letters"]
    assert [letter["reason"] for letter in letters] == ["terminated_by_operator"] * 3
    assert document(wsrm("audit", "list", "--json"))["acts"][0]["event"] == "requests_terminated"


def test_a_destination_that_nothing_was_sent_to_is_told_as_such(outbox: Path, wsrm: Wsrm) -> None:
    stored(outbox)
    for command in (("show",), ("close", "--reason", "why", "--yes")):
        done = wsrm("source", command[0], "http://other/", *command[1:])
        assert (done.exit_code, "`wsrm-mq source list" in done.stderr) == (3, True)


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[OrdersServer]:
    server = OrdersServer(tmp_path)
    server.start()
    yield server
    server.stop()


def test_a_file_is_sent_to_a_service_and_its_reply_is_written(
    somewhere: Path, orders: OrdersServer, wsrm: Wsrm
) -> None:
    (somewhere / "order.xml").write_text(envelope("put_order", ("n", 7), ("text", "two seats")))
    (somewhere / "echo.xml").write_text(envelope("echo", ("n", 8), ("text", "who is there")))
    seen = orders.mark()
    sent = wsrm("source", "send", "order.xml", "--to", orders.url, "--action", f"{ORDERS}/put_order")
    assert sent.stdout.endswith(" is acknowledged.\n"), sent.output
    assert seen.soon([7]) == [7]
    asked = wsrm("source", "send", "echo.xml", "--to", orders.url, "--action", f"{ORDERS}/echo", "--ask")
    assert "who is there" in asked.stdout
    *_others, listed = document(wsrm("source", "list", "--json"))["requests"]
    assert listed["replied"] == "1"
    (shown,) = document(wsrm("source", "show", listed["offered"], "--json"))["requests"]
    assert shown == listed, "it is found by the sequence that its replies come in"
    refused = wsrm("source", "send", "order.xml", "--to", orders.url)
    assert (refused.exit_code, "`--action URI`" in refused.stderr) == (1, True)


def test_what_is_listed_is_asked_for_in_the_language_of_the_other_lists(outbox: Path, wsrm: Wsrm) -> None:
    stored(outbox, minutes_ago=10)
    with RMSource(outbox) as source:
        source.send(envelope("cancel", ("n", 9)).encode(), to="http://127.0.0.1:9/other", action=f"{ORDERS}/cancel")

    def listed(*words: str) -> list[str]:
        found = document(wsrm("source", "list", "--json", *words))["requests"]
        return [one["to"].rpartition("/")[2] for one in found]

    sequence = document(wsrm("source", "list", "--json"))["requests"][0]["sequence"]
    assert listed() == ["rm", "other"]
    assert listed("op:put_order") == listed("-op:cancel") == listed("127.0.0.1:9/rm") == listed("age:5m") == ["rm"]
    assert listed(f"seq:{sequence[-12:]}") == ["rm"]
    assert listed("op:put_order,cancel", "age:<5m", "outcome:live") == ["other"]
    assert listed("msg:3", "op:cancel") == []
    assert "did you mean" in wsrm("source", "list", "op:put_ordr").stderr
    assert "requests have none" in wsrm("source", "list", "verdict:ok").stderr
