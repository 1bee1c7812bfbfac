"""The commands of queues at a server: each does there what it does in a store, and says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.queues import TOKEN
from tests.support.commands import Wsrm, document
from wsrm_mq.client.node import RemoteNode


@pytest.fixture
def far(somewhere: Path, wsrm: Wsrm, where: str, monkeypatch: pytest.MonkeyPatch) -> Wsrm:
    """Run a command at the server."""
    monkeypatch.setenv("WSRM_QUEUE_TOKEN", TOKEN)
    return lambda *arguments, **options: wsrm(*arguments, "--server", where, **options)


def test_what_a_command_says_of_a_server_it_says_of_its_store(
    far: Wsrm, wsrm: Wsrm, path: Path, node: RemoteNode
) -> None:
    assert far("queue", "declare", "orders", "max_failures=1").stderr == "orders is made.\n"
    position = document(far("queue", "put", "orders", "-", "--type", "Order", "--json", input=b"one"))["position"]
    node.put("orders", b"two", properties={"a": 1})
    for command, moves in (
        (("queue", "list"), {"kind"}),
        (("queue", "show", "orders"), {"kind", "pace", "topics"}),
        (("queue", "stats", "orders"), {"oldest_age", "put_rate", "gone_rate"}),
        (("queue", "peek", "orders"), set()),
        (("queue", "peek", "orders", position), set()),
    ):
        there, here = (document(one) for one in (far(*command, "--json"), wsrm(*command, "--json", "--store", path)))
        for one in (there, here, *there.get("queues", ()), *here.get("queues", ())):
            for name in moves:
                one.pop(name, None)
        assert there == here
        assert far(*command).exit_code == 0
    taken = far("queue", "get", "orders", "--no-ack")
    assert (taken.stdout, "is given back" in taken.stderr) == ("one", True)
    assert far("queue", "get", "orders").stdout == "one"
    assert far("queue", "bind", "orders", "db/#").stderr == "db/# leads into orders.\n"
    assert document(far("topic", "publish", "db/add", "-", "--json", input=b"three"))["queues"] == ["orders"]
    assert document(far("queue", "unbind", "orders", "db/#", "--json"))["bindings"] == 1
    assert document(far("queue", "purge", "orders", "--yes", "--json"))["purged"] == 2
    assert document(far("queue", "delete", "orders", "--yes", "--json"))["purged"] == 0
    assert node.keys() == []


def test_dead_letters_at_a_server_are_delivered_again_or_given_up(far: Wsrm, node: RemoteNode) -> None:
    node.put_many("orders", range(3))
    node.reject(node.receive("orders", 3), "no good")
    first, *_others = node.dead("orders").peek()
    done = document(far("dead-letter", "redrive", "queue:orders", first.position, "--yes", "--json"))
    assert (done["act"], done["done"]) == ("redrive", 1)
    assert document(far("dead-letter", "discard", "queue:orders", "--yes", "--json"))["done"] == 2
    assert (node.stats("orders").ready, node.stats("orders").dead) == (1, 0)
    refused = far("dead-letter", "discard", "reason:rejected", "--yes")
    assert (refused.exit_code, "name the queue, as queue:orders" in refused.stderr) == (2, True)


def test_what_cannot_be_at_a_server_is_told_in_words(far: Wsrm, wsrm: Wsrm, node: RemoteNode) -> None:
    node.put("orders", b"one")
    for command, code, said in (
        (("queue", "stats", "none"), 3, "There is no queue none"),
        (("queue", "purge", "orders"), 4, "there is no terminal to ask on; say --yes."),
        (("queue", "purge", "orders", "--yes", "--reason", "test"), 2, "--reason is for a store here"),
        (("queue", "peek", "orders", 999), 3, "no message at position 999"),
        (("queue", "peek", "orders", "--token", "wrong"), 1, "The token is not known here"),
    ):
        done = far(*command)
        assert (done.exit_code, said in done.stderr) == (code, True), done.stderr
    done = wsrm("queue", "list", "--server", "localhost:8080")
    assert (done.exit_code, "is no address of a queue server" in done.stderr) == (2, True)
