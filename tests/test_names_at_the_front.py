"""Addresses with names, behind both fronts: a name server that is silent keeps nobody waiting but who named it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, taken
from tests.support.name_server import NameServer
from tests.support.stored import Stored
from tests.test_asgi_in_process import Exchange, asked
from wsrm_mq import WSRMMiddleware
from wsrm_mq.asgi import WSRMASGIMiddleware
from wsrm_mq.testing import ASGIWire, HTTPAnswer, Wire, WSGIWire

NAMED = "https://slow.example:9/callback"
PLACES: dict[str, Callable[[str], bytes]] = {
    "AcksTo": lambda address: FACTORY.create_sequence(acks_to=address),
    "ReplyTo": lambda address: FACTORY.create_sequence(reply_to=address),
    "FaultTo": lambda address: FACTORY.create_sequence(
        headers=f"<wsa:FaultTo><wsa:Address>{address}</wsa:Address></wsa:FaultTo>"
    ),
    "Endpoint": lambda address: FACTORY.create_sequence(
        acks_to="http://127.0.0.1:9/", offer="urn:offered:1", offer_endpoint=address
    ),
}
Make = Callable[..., Any]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    made = NameServer()
    made.answers = {"slow.example": [["127.0.0.1"]], "none.example": [[]]}
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.speaks.set()


@pytest.fixture(params=[WSRMMiddleware, WSRMASGIMiddleware], ids=["wsgi", "asgi"])
def front(request: pytest.FixtureRequest, tmp_path: Path, names: NameServer) -> Iterator[Make]:
    opened: list[Any] = []

    def make(**options: Any) -> Any:
        opened.append(
            request.param(
                lambda _environ, answer: taken(answer),
                tmp_path / "store.db",
                one_way=["urn:example:orders/put"],
                **options,
            )
        )
        return opened[-1]

    yield make
    names.speaks.set()
    for one in opened:
        one.close(5)


def post(front: Any, body: bytes) -> HTTPAnswer:
    wire: Wire = WSGIWire(front, "/orders") if isinstance(front, WSRMMiddleware) else ASGIWire(front, "/orders")
    return wire.post(body, {"Content-Type": FACTORY.content_type})


@pytest.mark.spec("SEC-016", versions="all")
@pytest.mark.parametrize("place", PLACES)
def test_what_no_answer_could_admit_is_refused_at_once(front: Make, names: NameServer, place: str) -> None:
    """No name is asked for where only addresses are listed; a good answer would change nothing."""
    names.speaks.clear()
    service = front(decoupled=["https://orders.acme.example", "http://127.0.0.1:9"])
    answer = post(service, PLACES[place](NAMED)).reply
    assert answer.fault is not None or (answer.created is not None and answer.created.accept is None)
    assert names.asked == []


@pytest.mark.spec("SEC-016", versions="all")
@pytest.mark.parametrize("place", PLACES)
def test_a_name_that_is_not_known_in_time_is_answered_503_and_taken_when_it_is(
    front: Make, names: NameServer, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.outbound.names.SECONDS", 0.05)
    names.speaks.clear()
    service = front(decoupled=["127.0.0.0/8"])
    before = Stored(tmp_path / "store.db").everything()
    for _ in range(2):
        answer = post(service, PLACES[place](NAMED))
        assert (answer.status, answer.fields["retry-after"]) == (503, "5")
        assert b"slow.example" in answer.body
    assert Stored(tmp_path / "store.db").everything() == before
    assert names.asked == ["slow.example"], "it is looked up once"
    monkeypatch.setattr("wsrm_mq.outbound.names.SECONDS", 5.0)
    names.speaks.set()
    assert post(service, PLACES[place](NAMED)).status in (200, 202)


def test_a_name_that_is_none_is_refused_as_what_may_not_be_sent_to(front: Make) -> None:
    service = front(decoupled=["127.0.0.0/8"])
    fault = post(service, PLACES["AcksTo"]("https://none.example/")).reply.fault
    assert fault is not None
    assert 'decoupled = ["https://none.example"]' in fault.reason


def test_no_fault_waits_for_a_name(front: Make, names: NameServer) -> None:
    """It leaves on the response, where its place is not known to be one."""
    names.speaks.clear()
    service = front(decoupled=["127.0.0.0/8"])
    fault_to = f"<wsa:FaultTo><wsa:Address>{NAMED}</wsa:Address></wsa:FaultTo>"
    assert post(service, FACTORY.message("urn:unknown", 1, headers=fault_to)).fault == "UnknownSequence"
    assert names.asked == []


@pytest.mark.spec("SEC-018", versions="all")
def test_a_loop_serves_others_while_names_are_looked_up(names: NameServer, tmp_path: Path) -> None:
    names.answers |= {f"{number}.example": [["127.0.0.1"]] for number in range(100)}
    names.speaks.clear()
    service = WSRMASGIMiddleware(
        lambda _environ, answer: taken(answer), tmp_path / "store.db", decoupled=["127.0.0.0/8"]
    )

    async def conversation() -> list[int]:
        waiting = [Exchange(PLACES["AcksTo"](f"https://{number}.example/")) for number in range(100)]
        strangers = [exchange.through(service) for exchange in waiting]
        assert (await asked(service, FACTORY.create_sequence())).status == 200
        assert not all(stranger.done() for stranger in strangers)
        names.speaks.set()
        await asyncio.wait(strangers)
        return [exchange.status for exchange in waiting]

    statuses = asyncio.run(conversation())
    service.close(5)
    assert 0 < statuses.count(200) <= len(names.asked) < 32, "one of them may not have all threads"
    assert statuses.count(503) == 100 - statuses.count(200)


@pytest.mark.spec("SEC-030", versions="all")
def test_few_threads_of_a_server_wait_for_names(names: NameServer, tmp_path: Path) -> None:
    names.answers |= {f"{number}.example": [["127.0.0.1"]] for number in range(9)}
    names.speaks.clear()
    service = WSRMMiddleware(
        lambda _environ, answer: taken(answer), tmp_path / "store.db", decoupled=["127.0.0.0/8"], max_waiting=2
    )
    waiting = [
        threading.Thread(target=post, args=(service, PLACES["AcksTo"](f"https://{number}.example/")), daemon=True)
        for number in range(9)
    ]
    for one in waiting:
        one.start()
    for one in waiting[2:]:
        one.join(0.3)
    assert sum(one.is_alive() for one in waiting) == 2
    names.speaks.set()
    for one in waiting:
        one.join(5)
    service.close(5)
