"""`connection list|show`: the inbound queue of each connection."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Service
from tests.queue.build import sender
from tests.support.commands import Wsrm, document
from wsrm_mq.queue.creation import create
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import CreateSequence
from wsrm_mq.versions import WSRM_1_1


@pytest.fixture
def two(service: Service) -> list[int]:
    """Two connections that took turns: numbers 3, 1 and 4 came on the first, 2 on the second. Answers when."""
    alice = sender(WSRM_1_1, principal="alice")
    sequence = service.instance.create()
    request = CreateSequence(None, None)
    private = service.instance.run(lambda tx: create(tx, alice, request, None, QueuePolicy())).created
    assert private is not None
    times = []
    for identifier, number, connection, who in (
        (sequence, 3, "192.0.2.1:5000/aa", {}),
        (sequence, 1, "192.0.2.1:5000/aa", {}),
        (sequence, 2, "192.0.2.1:5001/bb", {}),
        (private, 1, "192.0.2.1:5000/aa", {"sender": alice}),
    ):
        times.append(service.clock.advance(1_000))
        receipt = service.instance.take(
            identifier.terms.identifier,
            number,
            connection=connection,
            environ='{"REMOTE_ADDR":"192.0.2.1"}',
            **who,
        )
        assert receipt.fault is None
    service.deliver(sequence, 1)
    return times


def test_the_list_tells_who_sent_how_much_and_what_of_it_waits(wsrm: Wsrm, two: list[int]) -> None:
    found = document(wsrm("connection", "list", "--json"))["connections"]
    assert found == [
        {
            "name": "192.0.2.1:5000/aa",
            "peer": "192.0.2.1",
            "principal": "alice",
            "messages": 3,
            "unsettled": 2,
            "first_seen": two[0],
            "last_seen": two[3],
        },
        {
            "name": "192.0.2.1:5001/bb",
            "peer": "192.0.2.1",
            "principal": None,
            "messages": 1,
            "unsettled": 1,
            "first_seen": two[2],
            "last_seen": two[2],
        },
    ]
    (shown,) = document(wsrm("connection", "list", "--json", "--limit", 1))["connections"]
    assert shown == found[0]


def test_the_list_for_people_has_a_line_for_each(wsrm: Wsrm, two: list[int]) -> None:
    head, *lines = wsrm("connection", "list").stdout.splitlines()
    assert head.split("\t") == ["name", "peer", "principal", "messages", "unsettled", "first seen", "last seen"]
    assert [line.split("\t")[:5] for line in lines] == [
        ["192.0.2.1:5000/aa", "192.0.2.1", "alice", "3", "2"],
        ["192.0.2.1:5001/bb", "192.0.2.1", "", "1", "1"],
    ]


@pytest.mark.parametrize("name", ["192.0.2.1:5000/aa", "192.0.2.1:5000"])
def test_a_connection_shows_its_messages_in_the_order_of_receipt(wsrm: Wsrm, two: list[int], name: str) -> None:
    found = document(wsrm("connection", "show", name, "--json"))
    assert found["connection"]["messages"] == 3
    assert [(one["position"], one["number"], one["state"]) for one in found["messages"]] == [
        (1, 3, "ready"),
        (2, 1, "delivered"),
        (4, 1, "leased"),
    ]
    piece = document(wsrm("connection", "show", name, "--json", "--after", 1, "--limit", 1))
    assert [one["position"] for one in piece["messages"]] == [2]
    assert piece["next"] == 2
    lines = wsrm("connection", "show", name).stdout
    assert "unsettled" in lines
    assert lines.splitlines()[-1].startswith("4\t/orders\t")


def test_what_is_not_there_or_not_clear_is_said_so(wsrm: Wsrm, two: list[int]) -> None:
    missing = wsrm("connection", "show", "198.51.100.1")
    assert missing.exit_code == 3
    assert "`wsrm-mq connection list` shows those there are" in missing.stderr
    unclear = wsrm("connection", "show", "192.0.2.1:500")
    assert unclear.exit_code == 3
    assert "fits several connections: 192.0.2.1:5000/aa, 192.0.2.1:5001/bb" in unclear.stderr


def test_an_empty_store_has_no_connections(wsrm: Wsrm, service: Service) -> None:
    assert document(wsrm("connection", "list", "--json")) == {"connections": []}
