"""What an operator stumbled over: each is seen in ``status`` alone, and cured with three commands at most."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.stories.conftest import NOTHING, Operator, Serve, done, send, until_shown
from tests.support.orders import OrderSender
from tests.support.orders_server import OrdersServer
from wsrm_mq.testing import Refused

DAY = 86_400


def test_a_store_that_another_program_has_locked(operator: Operator, serve: Serve, tmp_path: Path) -> None:
    """Every message got 503, and status said OK."""
    server = serve()
    sender = send(server, 1)
    script = (
        "import sqlite3, sys, time; db = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "db.execute('BEGIN IMMEDIATE'); print('locked', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", script, server.store], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        shown = operator.status()
        assert shown.startswith("CRITICAL  No message is taken: another program holds the write lock")
        examined = operator.follow(shown, "doctor")
        (pid,) = re.findall(r"fix: kill (\d+)$", examined, re.MULTILINE)
        os.kill(int(pid), signal.SIGKILL)
    finally:
        other.kill()
        other.communicate()
    sender.send_until_acknowledged(2)
    assert done(server, 1, 2)
    shown = operator.status()
    assert NOTHING in shown or "another program had the store locked" in shown, "refusals are told for five minutes"


@pytest.mark.parametrize(("ago", "age"), [(2 * DAY, "P1D"), (2 * DAY / 24, "PT1H")])
def test_a_store_that_is_full(operator: Operator, serve: Serve, ago: float, age: str) -> None:
    """Old messages fill it: they are pruned, by an age that makes room, and the next one is taken."""
    server = serve(ago=ago, max_store=1_000_000)
    sender = OrderSender(server)
    number = 0
    for number in range(1, 40):
        if sender.send(number, "x" * 50_000).status == 503:
            break
    assert done(server, *range(1, number))
    server.set_clock(0)
    assert sender.send(number).status == 503
    shown = operator.status()
    assert "CRITICAL  Messages were refused, the last" in shown
    assert "max_store is reached" in shown
    operator.follow(shown, f"store prune --older-than {age}")
    sender.send_until_acknowledged(number)
    assert done(server, *range(1, number + 1))
    assert len(operator.typed) == 2


def test_many_that_wait_are_named_with_the_partner_to_call(operator: Operator, serve: Serve, tmp_path: Path) -> None:
    """24 were counted, and none was named; and behind a proxy the sender was 127.0.0.1."""
    partners = {"acme": {"address": "192.0.2.0/24"}}
    server = serve(behind="uvicorn", **PROXIED, partners=partners)
    (tmp_path / "wsrm-mq.toml").write_text('[partner.acme]\naddress = "192.0.2.0/24"\ncontact = "+49 30 1234"\n')
    for _ in range(5):
        sender = proxied(server, "203.0.113.9, 192.0.2.7")
        for number in (1, 3):
            assert sender.wire.ask(sender.request_put(number, "", "X-Forwarded-For: 192.0.2.7")).status == 200
    shown = until_shown(operator, "and 2 more: wsrm-mq sequence explain verdict:waiting")
    assert shown.count(" from acme, 192.0.2.7; contact: +49 30 1234: waiting. It waits for number 2") == 3
    explained = operator.type("wsrm-mq sequence explain verdict:waiting")
    assert explained.startswith("waiting: 5 sequences: urn:uuid:")
    assert operator.follow(explained, "sequence list").count("waiting") == 5


PROXIED = {"trusted_proxies": ["127.0.0.1"], "address_header": "X-Forwarded-For"}


def proxied(server: OrdersServer, client: str) -> OrderSender:
    """A sequence that was created through a proxy."""
    sender = OrderSender(server, identifier="")
    fields = {"X-Forwarded-For": client, "Content-Type": sender.envelopes.content_type}
    created = sender.wire.post(sender.envelopes.create_sequence(), fields).reply.created
    assert created is not None
    sender.identifier = created.identifier
    return sender


def test_a_sender_behind_a_proxy(operator: Operator, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was 127.0.0.1. The doctor has the lines of the configuration; with them the sender is known."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "192.0.2.250")  # or uvicorn would believe the proxy by itself
    server = serve(behind="uvicorn")
    sender = proxied(server, "192.0.2.7")
    assert sender.wire.ask(sender.request_put(1, "", "X-Forwarded-For: 192.0.2.7")).status == 200
    assert done(server, 1)
    lines = operator.type("wsrm-mq doctor").splitlines()
    (place,) = (at for at, line in enumerate(lines) if "a proxy at 127.0.0.1 sent that on" in line)
    fix = "\n".join(line.removeprefix("    fix:").strip() for line in lines[place + 1 : place + 3])
    server.stop()
    server = serve(behind="uvicorn", **tomllib.loads(fix))
    late = proxied(server, "192.0.2.7")
    assert "source: 192.0.2.7\n" in operator.type(f"wsrm-mq sequence explain {late.identifier}")


def test_a_service_that_is_not_there(operator: Operator, serve: Serve) -> None:
    server = serve()
    send(server, 1, text="gate=go")
    server.kill()
    shown = operator.status()
    assert shown.startswith("CRITICAL  No process of the service lives; 1 message waits for it: start the service.")
    examined = operator.follow(shown, "doctor")
    assert "fix: wsrm-mq serve MODULE:APP" in examined
    server.open_gate("go")
    server.start()
    assert done(server, 1)
    assert NOTHING in until_shown(operator, NOTHING)


def test_what_was_skipped_is_delivered_after_the_repair(operator: Operator, serve: Serve) -> None:
    """After the skip check stayed WARNING for ever."""
    server = serve(retry=[])
    send(server, 1, 2, text="fail=1")
    shown = until_shown(operator, ": blocked. Number 2 stopped the sequence")
    explained = operator.type(operator.offered(shown, "resume").replace(" resume ", " explain ").split(" --reason")[0])
    operator.follow(explained, "sequence skip")
    shown = operator.status()
    assert "1 dead letter of /orders that no operator has confirmed." in shown
    assert operator.follow(shown, "dead-letter list").count("skipped") == 1
    operator.type("wsrm-mq dead-letter redrive queue:/orders --reason TEXT")
    assert done(server, 1, 2)
    assert NOTHING in until_shown(operator, NOTHING)


@pytest.mark.parametrize("verb", ["confirm", "discard"])
def test_what_was_skipped_alarms_until_it_is_decided_that_it_stays_undelivered(
    operator: Operator, serve: Serve, verb: str
) -> None:
    server = serve(retry=[])
    sender = send(server, 1, text="fail=1")
    until_shown(operator, ": blocked. Number 1 stopped the sequence")
    operator.type(f"wsrm-mq sequence skip {sender.identifier} 1 --reason TEXT")
    assert "WSRM WARNING - dead letters, not confirmed: 1" in operator.type("wsrm-mq check")
    operator.type(f"wsrm-mq dead-letter {verb} queue:/orders --reason TEXT")
    assert operator.type("wsrm-mq check").startswith("WSRM OK")
    assert NOTHING in operator.status()
    sender.send_until_acknowledged(2)
    assert done(server, 2), "and the message stays where it is"


def test_a_source_that_breaks_the_protocol_is_no_alarm(operator: Operator, serve: Serve) -> None:
    server = serve()
    with pytest.raises(Refused):
        OrderSender(server, identifier="urn:uuid:unknown").send(1)
    assert NOTHING in operator.status()
