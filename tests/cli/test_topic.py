"""``wsrm-mq topic``, ``subscription`` and ``client``, and ``queue bind``, ``unbind`` and ``tail``, with real stores."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_completing import offered
from tests.cli.test_queue import WHY, acts
from tests.support.commands import Wsrm, document
from wsrm_mq.node import connect

ACTOR = ("--actor", "alice")


@pytest.fixture
def shop(path: Path, wsrm: Wsrm) -> Path:
    """A store with the queue ``audit``, bound to all orders, and a durable subscription whose client is gone."""
    assert wsrm("queue", "declare", "audit", *ACTOR).exit_code == 0
    assert wsrm("queue", "bind", "audit", "orders/#", *ACTOR).stderr == "orders/# leads into audit.\n"
    with connect(path) as node:
        node.subscribe(topic="orders/placed", name="thanks", client="shop").close()
    return path


def subscriptions(wsrm: Wsrm) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document(wsrm("subscription", "list", "--json"))["subscriptions"]
    return found


def test_what_is_published_goes_where_topics_lead(shop: Path, wsrm: Wsrm) -> None:
    lines = wsrm("topic", "list").stdout.splitlines()
    assert [line.split("\t")[:3] for line in lines[1:]] == [
        ["orders/#", "", "audit"],
        ["orders/placed", "", "shop/thanks"],
    ]
    of_it = document(wsrm("topic", "list", "--topic", "orders/lost", "--json"))["bindings"]
    assert [one["queue"] for one in of_it] == ["audit"]
    done = document(
        wsrm("topic", "publish", "orders/placed", "-", "--type", "place", *ACTOR, "--json", input=b"<order/>")
    )
    assert (done["topic"], done["queues"]) == ("orders/placed", ["audit", "shop/thanks"])
    assert document(wsrm("message", "show", done["position"], "--json"))["message"]["topic"] == "orders/placed"
    told = wsrm("message", "show", done["position"]).stdout
    assert "alice" in told.split("producer")[1]
    assert ("published", "alice", "orders/placed") in acts(wsrm)


def test_what_leads_nowhere_is_told_with_the_command_that_leads_it(shop: Path, wsrm: Wsrm) -> None:
    missing = wsrm("topic", "publish", "db/add", "-", "--mandatory", input=b"1")
    assert (missing.exit_code, "`wsrm-mq queue bind QUEUE db/add`" in missing.stderr) == (3, True)
    assert document(wsrm("topic", "publish", "db/add", "-", "--json", input=b"1"))["queues"] == []
    untaken = wsrm("topic", "publish", "db/add", "-", input=b"1").stderr
    assert "`wsrm-mq queue bind QUEUE db/add` leads it there. Nothing of the message is kept." in untaken
    assert [reason for event, _actor, reason in acts(wsrm) if event == "unrouted"] == ["db/add"] * 3
    wrong = wsrm("topic", "publish", "db/*", "-", input=b"1")
    assert (wrong.exit_code, "is no topic" in wrong.stderr) == (2, True)


def test_bindings_are_tried_made_and_taken_away(shop: Path, wsrm: Wsrm) -> None:
    tried = wsrm("queue", "bind", "audit", "db/#", "--dry-run")
    assert "This would lead db/# into audit. Nothing was changed." in tried.stderr
    assert wsrm("queue", "bind", "audit", "db/#", "--filter", "amount > 5", *ACTOR).exit_code == 0
    assert wsrm("queue", "bind", "audit", "d#b").exit_code == 2
    assert wsrm("queue", "bind", "none", "db/#").exit_code == 3
    told = document(wsrm("queue", "show", "audit", "--json"))["topics"]
    assert {"pattern": "db/#", "filter": "amount > 5"} in told
    assert document(wsrm("queue", "unbind", "audit", "db/#", "--json", *ACTOR))["bindings"] == 1
    missing = wsrm("queue", "unbind", "audit", "db/#")
    assert (missing.exit_code, "`wsrm-mq topic list`" in missing.stderr) == (3, True)
    collected = wsrm("queue", "unbind", "shop/thanks", "orders/placed")
    assert (collected.exit_code, "wsrm-mq subscription drop shop/thanks" in collected.stderr) == (4, True)
    assert [event for event, actor, _reason in acts(wsrm) if actor == "alice"][-2:] == ["bound", "unbound"]


def test_a_subscription_is_there_also_while_its_client_is_away(shop: Path, wsrm: Wsrm) -> None:
    (one,) = subscriptions(wsrm)
    assert (one["queue"], one["client"], one["state"], one["pattern"]) == (
        "shop/thanks",
        "shop",
        "gone",
        "orders/placed",
    )
    with connect(shop) as node:
        thanks = node.subscribe(topic="orders/placed", name="thanks", client="shop", max_backlog=7)
        other = node.subscribe("audit", client="auditor")
        durable, plain = subscriptions(wsrm)
        assert (durable["state"], durable["backlog"], durable["pid"]) == ("live", 7, plain["pid"])
        assert (plain["client"], plain["pattern"], plain["queue"]) == ("auditor", None, "audit")
        found = document(wsrm("client", "list", "--json"))["clients"]
        assert {one["name"]: (one["state"], one["queues"]) for one in found} == {
            "shop": ("live", ["shop/thanks"]),
            "auditor": ("live", ["audit"]),
        }
        assert "auditor (process" in wsrm("queue", "show", "audit").stdout
        thanks.close()
        other.close()
        with node.subscribe(["audit", "shop/thanks"], client="both", max_backlog=5):
            durable, plain = subscriptions(wsrm)
            assert (durable["client"], durable["state"], durable["backlog"]) == ("both", "live", 5)
            assert (plain["client"], plain["queue"]) == ("both", "audit")
    wsrm("topic", "publish", "orders/placed", "-", input=b"1")
    shown = document(wsrm("subscription", "show", "shop/thanks", "--json"))
    assert (shown["subscription"]["state"], shown["subscription"]["messages"]) == ("gone", 1)
    for step in shown["next_steps"]:
        line = shlex.split(step["command"].replace("TEXT", "why"))[1:]
        assert wsrm(*line, *(["--dry-run"] if "--reason" in line else [])).exit_code == 0
    assert offered("wsrm-mq subscription drop sh") == ["shop/thanks"]


def test_a_subscription_is_dropped_with_what_waits_for_it(shop: Path, wsrm: Wsrm) -> None:
    wsrm("topic", "publish", "orders/placed", "-", input=b"1")
    assert wsrm("subscription", "drop", "audit", *WHY).exit_code == 4
    missing = wsrm("subscription", "show", "shop/thank")
    assert (missing.exit_code, "`wsrm-mq subscription list`" in missing.stderr) == (3, True)
    assert (
        "This would drop shop/thanks: 1 message given up"
        in wsrm("subscription", "drop", "shop/thanks", "--dry-run").stderr
    )
    with connect(shop) as node:
        node.receive("shop/thanks")
        busy = wsrm("subscription", "drop", "shop/thanks", *WHY)
        assert (busy.exit_code, "--force" in busy.stderr) == (4, True)
    assert document(wsrm("subscription", "drop", "shop/thanks", *WHY, "--json"))["purged"] == 1
    assert subscriptions(wsrm) == []
    assert ("subscription_dropped", "alice", "test data") in acts(wsrm)
    assert [one["queue"] for one in document(wsrm("topic", "list", "--json"))["bindings"]] == ["audit"]


def test_a_tail_shows_what_comes_also_what_was_taken(shop: Path) -> None:
    command = [sys.executable, "-u", "-m", "wsrm_mq", "queue", "tail", "audit", "--after", "0", "--interval", "0.1"]
    with connect(shop) as node:
        node.put("audit", b"1", message_id="taken")
        node.receive("audit")[0].ack()
        with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, cwd=shop.parent) as tail:
            assert tail.stdout is not None
            first = json.loads(tail.stdout.readline())
            node.put("audit", b"held", message_id="later", delay=60)
            second = json.loads(tail.stdout.readline())
            tail.send_signal(signal.SIGINT)
            assert tail.wait(20) == 130
    assert (first["message_id"], first["state"], first["schema_version"]) == ("taken", "delivered", 1)
    assert (second["message_id"], second["state"], second["reason"]) == ("later", "held", "scheduled")


def test_a_journal_shows_what_came_and_what_became_of_it(shop: Path, wsrm: Wsrm) -> None:
    assert wsrm("queue", "declare", "bills", "journal=true").exit_code == 0
    with connect(shop) as node:
        paid, bad, open_ = (node.put("bills", b"1", message_id=name) for name in ("paid", "bad", "open"))
        node.receive("bills")[0].ack()
        node.receive("bills")[0].reject("no such customer")
    (one,) = document(wsrm("journal", "list", "--json"))["journals"]
    assert (one["queue"], one["journal"], one["messages"]) == ("bills", "bills#journal", 3)
    found = document(wsrm("journal", "show", "bills", "--json"))["records"]
    assert [(row["of"], row["outcome"], row["reason"]) for row in found] == [
        (paid, "delivered", None),
        (bad, "dead", "rejected"),
        (open_, None, None),
    ]
    (dead,) = document(wsrm("journal", "show", "bills", "--filter", "outcome = 'dead'", "--json"))["records"]
    assert dead["message_id"] == "bad"
    (told,) = document(wsrm("message", "explain", dead["position"], "--json"))["messages"]
    assert f"what became of the message at position {bad}" in told["sentence"]
    missing = wsrm("journal", "show", "audit")
    assert (missing.exit_code, "`wsrm-mq queue declare audit journal=true`" in missing.stderr) == (3, True)


def test_what_is_kept_is_no_backlog(shop: Path, wsrm: Wsrm) -> None:
    wsrm("queue", "declare", "bills", "journal=true")
    with connect(shop) as node:
        node.declare_topic("kept/#", retain=3_600)
        node.publish("kept/here", b"1")
        node.put("bills", b"1")
        node.receive("bills")[0].ack()
    found = document(wsrm("status", "--json"))
    assert [one["queue"] for one in found["queues"]] == []
    assert "unconsumed=0s" in wsrm("check").stdout


def test_an_operator_says_how_long_a_topic_is_kept(shop: Path, wsrm: Wsrm) -> None:
    retain = ("topic", "retain", "orders/#")
    assert "This would keep what is published to orders/# for 60 seconds" in wsrm(*retain, 60, "--dry-run").stderr
    assert document(wsrm(*retain, 60, *WHY, "--json"))["retain"] == 60
    wsrm("topic", "publish", "orders/placed", "-", input=b"one")
    with connect(shop) as node:
        assert [one.body for one in node.replay("orders/*")] == [b"one"]
    assert document(wsrm(*retain, "none", *WHY, "--json"))["retain"] is None
    tried = wsrm(*retain, 0, "--dry-run")
    assert "This would keep nothing of orders/#: 1 message given up. Nothing was changed." in tried.stderr
    assert document(wsrm(*retain, 0, *WHY, "--json"))["given_up"] == 1
    assert [event for event, actor, _reason in acts(wsrm) if actor == "alice"][-3:] == [
        *("queue_declared", "queue_declared", "queue_deleted")
    ]
    with connect(shop) as node:
        assert list(node.replay("orders/*")) == []
    wrong = wsrm("topic", "retain", "orders/#", "soon", *WHY)
    assert (wrong.exit_code, "soon" in wrong.stderr) == (2, True)
