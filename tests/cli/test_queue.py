"""``wsrm-mq queue``: what is put there, looked at, taken and given up, with real stores."""

from __future__ import annotations

import os
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Service
from tests.cli.test_completing import offered
from tests.support.commands import Wsrm, document
from wsrm_mq.node import connect
from wsrm_mq.queue import clearing
from wsrm_mq.store import outside
from wsrm_mq.store.driver import connect_looker
from wsrm_mq.store.invariants import all_findings

WHY = ("--yes", "--reason", "test data", "--actor", "alice")


@pytest.fixture
def orders(path: Path, wsrm: Wsrm) -> Path:
    """A store with the queue ``orders``."""
    done = wsrm("queue", "declare", "orders", "max_failures=3", "ttl=3600", "overflow=drop_head")
    assert (done.exit_code, done.stderr) == (0, "orders is made.\n")
    return path


def put(wsrm: Wsrm, body: bytes, *options: object) -> int:
    return int(document(wsrm("queue", "put", "orders", "-", "--json", *options, input=body))["position"])


MOVES = {"oldest_age": 0, "put_rate": 0, "gone_rate": 0}
"""Facts that change with time alone."""


def stats(wsrm: Wsrm) -> dict[str, Any]:
    return document(wsrm("queue", "stats", "orders", "--json"))


def acts(wsrm: Wsrm) -> list[tuple[str, str, str]]:
    found = document(wsrm("audit", "list", "--json"))["acts"]
    return [(one["event"], one["actor"], one["reason"]) for one in found]


def test_express_messages_are_counted_where_they_are_and_told_where_they_are_not(orders: Path, wsrm: Wsrm) -> None:
    with connect(orders) as node:
        node.declare("ticks", durability="express")
        node.put_many("ticks", range(3))
        had = document(wsrm("queue", "stats", "ticks", "--json"))
        assert (had["ready"], had["keeper"]["pid"], had["keeper"]["lives"]) == (3, os.getpid(), True)
        assert f"process {os.getpid()}\n" in wsrm("queue", "stats", "ticks").stdout
        for command in (("list",), ("peek", "ticks")):
            said = wsrm("queue", *command).stderr
            assert f"ticks: express messages are in the memory of process {os.getpid()}" in said
        refused = wsrm("queue", "delete", "ticks", *WHY)
        assert f"process {os.getpid()}" in refused.stderr
        assert "--force" in refused.stderr
    assert document(wsrm("queue", "stats", "ticks", "--json"))["ready"] == 0


def test_what_is_put_is_looked_at_and_taken(orders: Path, somewhere: Path, wsrm: Wsrm) -> None:
    (somewhere / "order.xml").write_bytes(b"<order/>")
    given = ("--type", "place", "--priority", 7, "--property", "region=eu", "--property", "amount=5")
    position = document(wsrm("queue", "put", "orders", "order.xml", *given, "--json"))["position"]
    put(wsrm, b"\xff\x00", "--message-id", "second")
    (one, other) = document(wsrm("queue", "peek", "orders", "--json"))["messages"]
    assert (one["position"], one["type"], one["priority"], one["state"], one["size"]) == (
        position,
        "place",
        7,
        "ready",
        8,
    )
    assert other["message_id"] == "second"
    fits = document(wsrm("queue", "peek", "orders", "--filter", "amount = 5 and region = 'eu'", "--json"))
    assert [found["position"] for found in fits["messages"]] == [position]
    for query, found in (("op:place", [position]), ("id:second", [other["position"]]), ("state:held", [])):
        asked = document(wsrm("queue", "peek", "orders", query, "age:<1h", "-pos:9", "--limit", 1, "--json"))
        assert [one["position"] for one in asked["messages"]] == found
    both = wsrm("queue", "peek", "orders", "id:second", "--filter", "amount = 5")
    assert (both.exit_code, len(both.stdout.splitlines())) == (0, 1), "the names of the columns"
    assert "did you mean op?" in wsrm("queue", "peek", "orders", "opp:place").stderr
    assert wsrm("queue", "get", "orders").stdout_bytes == b"<order/>"
    assert wsrm("queue", "get", "orders").stdout_bytes == b"\xff\x00"
    missing = wsrm("queue", "get", "orders")
    assert (missing.exit_code, "`wsrm-mq queue stats orders`" in missing.stderr) == (3, True)
    with connect_looker(orders) as db:
        assert list(all_findings(db)) == []


def test_looking_changes_nothing(orders: Path, wsrm: Wsrm) -> None:
    position = put(wsrm, b"<order/>")
    before = orders.read_bytes(), {**stats(wsrm), **MOVES}
    assert wsrm("queue", "peek", "orders").exit_code == 0
    assert wsrm("queue", "peek", "orders", position).stdout_bytes == b"<order/>"
    for command in ("show", "stats"):
        assert wsrm("queue", command, "orders").exit_code == 0
    assert wsrm("queue", "list").exit_code == 0
    assert (orders.read_bytes(), {**stats(wsrm), **MOVES}) == before
    (one,) = document(wsrm("queue", "peek", "orders", "--json"))["messages"]
    assert (one["deliveries"], one["state"]) == (0, "ready")


def test_a_message_is_acknowledged_only_when_it_was_written(orders: Path, somewhere: Path, wsrm: Wsrm) -> None:
    put(wsrm, b"<order/>")
    (somewhere / "there").write_bytes(b"kept")
    refused = wsrm("queue", "get", "orders", "--output", "there")
    assert (refused.exit_code, (somewhere / "there").read_bytes(), stats(wsrm)["ready"]) == (4, b"kept", 1)
    back = wsrm("queue", "get", "orders", "--no-ack")
    assert (back.stdout_bytes, "given back" in back.stderr, stats(wsrm)["ready"]) == (b"<order/>", True, 1)
    assert wsrm("queue", "get", "orders", "-o", "new").exit_code == 0
    assert ((somewhere / "new").read_bytes(), stats(wsrm)["messages"]) == (b"<order/>", 0)


def test_who_takes_a_message_by_hand_is_on_record_and_a_rehearsed_put_is_none(orders: Path, wsrm: Wsrm) -> None:
    told = wsrm("queue", "put", "orders", "-", "--dry-run", input=b"<order/>")
    assert told.stderr == "This would put 8 bytes into orders. Nothing was changed.\n"
    refused = wsrm("queue", "put", "orders", "-", "--dry-run", "--message-id", "#1", input=b"<order/>")
    assert "`message_id` is '#1'" in refused.stderr
    assert stats(wsrm)["messages"] == 0
    put(wsrm, b"<order/>")
    assert wsrm("queue", "get", "orders", "--no-ack").exit_code == 0
    assert wsrm("queue", "get", "orders", "--actor", "alice").exit_code == 0
    assert [act for act in acts(wsrm) if act[0] == "taken_by_hand"] == [("taken_by_hand", "alice", "orders")]


def test_a_queue_that_is_used_is_not_deleted_where_that_is_asked_for(orders: Path, wsrm: Wsrm) -> None:
    with connect(orders, "shop") as node, node.subscribe("orders"):
        refused = wsrm("queue", "delete", "orders", "--if-unused", *WHY)
        assert f"shop (process {os.getpid()})" in refused.stderr
        assert "--if-unused" in refused.stderr
    assert wsrm("queue", "delete", "orders", "--if-unused", *WHY).exit_code == 0


def test_what_a_pipe_did_not_take_is_given_back(orders: Path, wsrm: Wsrm) -> None:
    put(wsrm, b"x" * 1_000_000)
    command = '"$0" -m wsrm_mq queue get orders | true'
    done = subprocess.run(["bash", "-c", command, sys.executable], timeout=60, check=True, capture_output=True)
    assert b"acknowledged" not in done.stderr
    assert stats(wsrm)["ready"] == 1


def test_a_list_shows_every_queue(orders: Path, service: Service, wsrm: Wsrm) -> None:
    put(wsrm, b"12345")
    put(wsrm, b"12345", "--delay", 60)
    service.sequence(1, 3)
    found = {one["queue"]: one for one in document(wsrm("queue", "list", "--json"))["queues"]}
    assert found["orders"]["declared"]
    assert [found["orders"][name] for name in ("ready", "held", "leased", "dead", "bytes")] == [1, 1, 0, 0, 10]
    assert [found["/orders"][name] for name in ("ready", "held", "declared")] == [1, 1, False]
    lines = wsrm("queue", "list").stdout.splitlines()
    assert lines[0].split("\t") == ["queue", "kind", "ready", "held", "leased", "dead", "bytes", "oldest"]
    assert stats(wsrm)["held"] == {"scheduled": 1}


def test_what_is_leased_and_dead_is_counted(orders: Path, wsrm: Wsrm) -> None:
    put(wsrm, b"1")
    put(wsrm, b"2")
    with connect(orders) as node:
        first, _second = node.receive("orders", 2)
        first.reject("no such customer")
        row = next(one for one in document(wsrm("queue", "list", "--json"))["queues"] if one["queue"] == "orders")
        assert (row["leased"], row["dead"], row["ready"]) == (1, 1, 0)
        busy = wsrm("queue", "delete", "orders", *WHY)
        assert (busy.exit_code, "--force" in busy.stderr, "are leased" in busy.stderr) == (4, True, True)
        done = document(wsrm("queue", "purge", "orders", *WHY, "--json"))
        assert (done["purged"], done["skipped"]) == (0, 1)
    letters = wsrm("queue", "purge", "orders#dead", *WHY)
    assert (letters.exit_code, "wsrm-mq dead-letter discard" in letters.stderr) == (4, True)
    (letter,) = document(wsrm("queue", "peek", "orders#dead", "--json"))["messages"]
    assert letter["state"] == "dead"


def test_a_declaration_is_shown_and_tried(orders: Path, wsrm: Wsrm) -> None:
    policy = document(wsrm("queue", "show", "orders", "--json"))["policy"]
    assert (policy["max_failures"], policy["ttl"], policy["overflow"]) == (3, 3600, "drop_head")
    tried = document(wsrm("queue", "declare", "orders", "ttl=null", "--dry-run", "--json"))
    assert (tried["policy"]["ttl"], tried["made"], tried["dry_run"]) == (None, False, True)
    assert document(wsrm("queue", "show", "orders", "--json"))["policy"] == policy
    wsrm("queue", "declare", "new", "--dry-run")
    assert [one["queue"] for one in document(wsrm("queue", "list", "--json"))["queues"]] == ["orders"]
    for words, told in ((("ttl",), "NAME=VALUE"), (("tll=5",), "max_failures"), (("overflow=x",), "overflow")):
        wrong = wsrm("queue", "declare", "orders", *words)
        assert (wrong.exit_code, told in wrong.stderr) == (2, True)
    assert [event for event, _actor, _reason in acts(wsrm)] == ["queue_declared"]


def test_acts_are_tried_asked_for_and_written_down(orders: Path, wsrm: Wsrm) -> None:
    positions = [put(wsrm, b"1"), put(wsrm, b"2"), put(wsrm, b"3")]
    tried = wsrm("queue", "purge", "orders", "--dry-run")
    assert "This would purge orders: 3 messages given up. Nothing was changed." in tried.stderr
    assert wsrm("queue", "purge", "orders", "--yes").exit_code == 4
    assert wsrm("queue", "purge", "orders", "--reason", "test data").exit_code == 4
    assert stats(wsrm)["ready"] == 3
    done = document(wsrm("queue", "purge", "orders", "--to", positions[1], *WHY, "--json"))
    assert (done["purged"], stats(wsrm)["ready"]) == (2, 1)
    refused = wsrm("queue", "delete", "orders", "--if-empty", *WHY)
    assert (refused.exit_code, "`wsrm-mq queue purge orders`" in refused.stderr) == (4, True)
    assert wsrm("queue", "delete", "orders", *WHY).exit_code == 0
    assert document(wsrm("queue", "list", "--json"))["queues"] == []
    assert [one for one in acts(wsrm) if one[0] != "put"][1:] == [
        ("queue_purged", "alice", "test data"),
        ("queue_deleted", "alice", "test data"),
    ]


@pytest.mark.parametrize(
    "command",
    [("queue", "delete", "orders"), ("queue", "purge", "orders"), ("subscription", "drop", "shop/s")],
    ids=str,
)
def test_much_is_given_up_in_transactions_between_which_others_write_and_not_where_it_is_used(
    orders: Path, wsrm: Wsrm, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    written, before = [], outside.run_once

    def run_once(*arguments: Any, **options: Any) -> Any:
        written.append(not options.get("dry_run"))
        return before(*arguments, **options)

    with connect(orders) as node:
        node.bind("db/#", "orders")
        node.subscribe_durable("db/#", "s", client="shop")
        for number in range(7):
            node.publish("db/add", number)
        if command[1] != "purge":
            (one,) = node.receive(command[-1])
            assert wsrm(*command, *WHY).exit_code == 4
            one.release()
        monkeypatch.setattr(clearing, "PIECE", 2)
        monkeypatch.setattr("wsrm_mq.store.outside.run_once", run_once)
        assert document(wsrm(*command, "--dry-run", "--json"))["purged"] == 7
        assert not any(written), "a rehearsal counts, and holds no transaction open"
        assert document(wsrm(*command, *WHY, "--json"))["purged"] == 7
        assert sum(written) >= 4
        assert (node.peek(command[-1]) == []) if command[1] == "purge" else ({*node.keys()}.isdisjoint(command))
    assert [actor for _event, actor, reason in acts(wsrm) if reason == "test data"] == ["alice"]


@pytest.mark.parametrize("command", ["show", "stats", "peek", "get", "purge", "delete", "put"])
def test_a_queue_that_is_not_there_is_said_with_what_to_do(path: Path, wsrm: Wsrm, command: str) -> None:
    more = {"put": ["-"], "purge": WHY, "delete": WHY}.get(command, [])
    missing = wsrm("queue", command, "no where", *more, input=b"x")
    assert missing.exit_code == 3
    assert "`wsrm-mq queue declare 'no where'`" in missing.stderr
    assert "`wsrm-mq queue list`" in missing.stderr


def test_the_queue_of_a_service_is_not_consumed(service: Service, wsrm: Wsrm) -> None:
    service.sequence(1)
    for command in ("peek", "get", "stats"):
        refused = wsrm("queue", command, "/orders")
        assert (refused.exit_code, "`wsrm-mq message list queue:/orders`" in refused.stderr) == (4, True)
    assert wsrm("message", "list", "queue:/orders").exit_code == 0


def test_without_a_store_none_is_made(somewhere: Path, wsrm: Wsrm) -> None:
    for words in (["list"], ["get", "orders"], ["put", "orders", "-"], ["declare", "orders"]):
        assert wsrm("queue", *words, input=b"x").exit_code == 5
    assert list(somewhere.iterdir()) == []


def test_what_a_producer_wrote_has_no_effect_on_a_terminal(orders: Path, wsrm: Wsrm) -> None:
    put(wsrm, b"x", "--type", "\x1b[2Jplace")
    assert "\x1b" not in wsrm("queue", "peek", "orders").stdout
    assert "\\x1b[2Jplace" in wsrm("queue", "peek", "orders").stdout


def test_names_of_queues_are_completed(orders: Path) -> None:
    for command in ("show", "stats", "peek", "get", "put", "declare", "purge", "delete"):
        assert offered(f"wsrm-mq queue {command} or") == ["orders"]


def test_a_filter_that_cannot_be_read_is_pointed_at(orders: Path, wsrm: Wsrm) -> None:
    for command in ("peek", "get"):
        wrong = wsrm("queue", command, "orders", "--filter", "priority >")
        assert (wrong.exit_code, "filter" in wrong.stderr) == (2, True)


def test_a_program_that_consumes_is_taken_for_no_process_of_the_service(
    service: Service, wsrm: Wsrm, path: Path
) -> None:
    service.presence.abandon()
    with connect(path):
        found = wsrm("check", "-w", "disk_free=", "-c", "disk_free=")
        assert (found.exit_code, "processes of the service that live: 0" in found.stdout) == (2, True), found.stdout


def test_a_store_that_only_programs_use_lacks_no_service(orders: Path, wsrm: Wsrm) -> None:
    with connect(orders) as node:
        node.put("orders", b"1")
        for place in ("while it is open", "when it is closed"):
            found = wsrm("check", "-w", "disk_free=", "-c", "disk_free=")
            assert found.exit_code == 0, (place, found.stdout)
            assert "no service: programs put, consume or send" in wsrm("status").stdout
            node.close()


def test_a_queue_that_no_program_consumes_is_told_after_an_hour(orders: Path, wsrm: Wsrm) -> None:
    put(wsrm, b"1")
    put(wsrm, b"2")
    room = ("-w", "disk_free=", "-c", "disk_free=")
    assert wsrm("check", *room).exit_code == 0
    found = wsrm("check", *room, "-w", "unconsumed=0")
    assert (found.exit_code, "age of the message that is next" in found.stdout) == (1, True)
    with sqlite3.connect(orders) as db:
        db.execute("UPDATE message SET received_at = received_at - 4000000")
    assert wsrm("check", *room).exit_code == 1
    told = wsrm("status").stdout
    assert "The next message of orders is 66 min old: 2 messages wait; it does not get less" in told
    assert "Does a program consume it?" in told
    (line,) = [line for line in told.splitlines() if "queue show" in line]
    assert wsrm(*shlex.split(line.partition("wsrm-mq ")[2])).exit_code == 0


def test_what_is_settled_is_pruned_with_all_that_was_said_of_it(orders: Path, wsrm: Wsrm) -> None:
    put(wsrm, b"1", "--property", "region=eu", "--message-id", "one")
    put(wsrm, b"2", "--property", "region=eu")
    put(wsrm, b"3", "--group", "a")
    for _ in range(2):
        assert wsrm("queue", "get", "orders").exit_code == 0
    with sqlite3.connect(orders) as db:
        db.execute("UPDATE entry SET settled_at = settled_at - 600000 WHERE settled_at IS NOT NULL")
        db.execute("UPDATE message SET received_at = received_at - 600000")
    assert wsrm("store", "prune", "--older-than", "0", "--yes", "--reason", "tidy").exit_code == 0
    with sqlite3.connect(orders) as db:
        left = [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("entry", "message", "header")]
    assert left == [1, 1, 1]
    assert wsrm("store", "verify").exit_code == 0
    assert wsrm("queue", "get", "orders").stdout_bytes == b"3"


def test_what_a_queue_retains_is_not_pruned_before(orders: Path, wsrm: Wsrm) -> None:
    assert wsrm("queue", "declare", "orders", "retain=86400").exit_code == 0
    put(wsrm, b"1")
    assert wsrm("queue", "get", "orders").exit_code == 0
    for hours, left in ((23, [(b"1",)]), (2, [])):
        with sqlite3.connect(orders) as db:
            db.execute("UPDATE entry SET settled_at = settled_at - ?", (hours * 3_600_000,))
            db.execute("UPDATE message SET received_at = received_at - ?", (hours * 3_600_000,))
        assert wsrm("store", "prune", "--older-than", "PT1H", "--yes", "--reason", "tidy").exit_code == 0
        with sqlite3.connect(orders) as db:
            assert db.execute("SELECT body FROM message").fetchall() == left


def test_a_dead_letter_of_a_program_is_edited_and_the_ledger_says_who_did(orders: Path, wsrm: Wsrm) -> None:
    first = put(wsrm, b"<ordr/>", "--type", "place", "--priority", 7)
    with connect(orders) as node:
        node.receive("orders")[0].reject("no order")
    edit = ("dead-letter", "edit", first, "-", "--property", "region=eu", "--json", *WHY)
    dry = document(wsrm(*edit, "--dry-run", input=b"<order/>"))
    assert (dry["edited"], dry["dry_run"], stats(wsrm)["dead"]) == (first, True, 1)
    done = document(wsrm(*edit, input=b"<order/>"))
    assert stats(wsrm)["dead"] == 0
    got = wsrm("queue", "get", "orders", "--json")
    facts = document(got)["message"]
    assert (facts["position"], facts["type"], facts["priority"]) == (done["position"], "place", 7)
    assert (facts["properties"], document(got)["body"]) == ({"region": "eu"}, "<order/>")
    (row,) = [one for one in document(wsrm("audit", "list", "--json"))["acts"] if one["event"] == "redriven"]
    assert (row["actor"], row["reason"]) == ("alice", f"test data; as edited at position {done['position']}")


def test_a_dead_letter_may_go_to_another_queue_and_count_on(orders: Path, wsrm: Wsrm) -> None:
    first = put(wsrm, b"one")
    wsrm("queue", "declare", "repairs")
    with connect(orders) as node:
        node.declare("orders", max_failures=1, retry=[])
        node.receive("orders")[0].nack("bad")
        assert wsrm("dead-letter", "redrive", first, "--to", "repairs", "--counts", "keep", *WHY).exit_code == 0
        assert [one.failures for one in node.receive("repairs")] == [1]
    unknown = wsrm("dead-letter", "redrive", first, "--to", "nowhere", *WHY)
    assert unknown.exit_code != 0
