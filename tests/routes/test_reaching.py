"""What the answers of next nodes say, and what is in front of them says in their place."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tests.routes.net import Answer, Net
from wsrm_mq.cli.node import hops_of
from wsrm_mq.config import settings_from
from wsrm_mq.errors import ConfigurationError, LeftAlone, NotAnswered, StoreUnavailable
from wsrm_mq.node import Node
from wsrm_mq.routes.hops import Hops
from wsrm_mq.routes.running import Routing
from wsrm_mq.routes.sending import Hop, Reaching, Sending, poster_of, why_away
from wsrm_mq.server.routes import Routes

NODES = {"nodes": {"north": {"url": "http://127.0.0.1:1", "token_env": "TOKEN_AT_NORTH"}}}


def answer(status: int, kind: str, content: bytes = b"<x/>", *, by_node: bool = False) -> Answer:
    return Answer(status, [("content-type", kind), *([("Wsrm-Mq-Node", "rm")] if by_node else [])], content)


@pytest.mark.parametrize(
    ("said", "takes"),
    [
        (answer(400, "text/html"), False),
        (answer(400, "text/plain"), False),
        (answer(400, "text/plain", by_node=True), True),
        (answer(413, "text/html"), True),
        (answer(502, "text/xml"), False),
        (answer(503, "application/xhtml+xml"), False),
        (answer(200, "application/xhtml+xml"), False),
        (answer(500, "application/soap+xml"), False),
        (answer(500, "application/soap+xml", by_node=True), True),
        (answer(200, "", b"", by_node=True), False),
        (answer(202, "", b""), False),
        (answer(202, "", b"", by_node=True), True),
    ],
)
def test_a_page_of_what_is_in_between_is_no_word_of_the_node(said: Answer, takes: bool) -> None:
    assert (why_away(said) is None) == takes


def test_a_next_node_is_away_by_itself_though_another_answers_behind_the_same_host() -> None:
    reaching = Reaching(lambda url, *_: answer(502 if "/east/" in url else 202, "", b"", by_node="/west/" in url))
    with pytest.raises(LeftAlone):
        reaching("https://gw/east/rm", {}, b"")
    reaching("https://gw/west/rm", {}, b"")
    assert reaching.away("https://gw/east/rm") is not None
    assert reaching.away("https://gw/west/rm") is None


def test_the_line_end_of_a_file_is_no_part_of_a_token_and_one_that_cannot_be_sent_is_told_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = settings_from(NODES)
    monkeypatch.setenv("TOKEN_AT_NORTH", "wsrm-mq-secret\n")
    assert hops_of(settings)["http://127.0.0.1:1/rm"].token == "wsrm-mq-secret"
    monkeypatch.setenv("TOKEN_AT_NORTH", "wsrm-mq-secret\nmore")
    with pytest.raises(ConfigurationError, match="TOKEN_AT_NORTH is no token") as refused:
        hops_of(settings)
    with pytest.raises(NotAnswered, match="cannot be sent") as failed:
        poster_of({"http://127.0.0.1:1/rm": Hop("wsrm-mq-secret\n")})("http://127.0.0.1:1/rm", {}, b"")
    assert "secret" not in f"{refused.value} {failed.value}"


@pytest.mark.parametrize("next_hop", ["https://u:secret@north/rm", "https://secret@north/rm", "https://n/rm?k=secret"])
def test_the_address_of_a_next_node_has_no_secret(net: Net, next_hop: str) -> None:
    a = net.add("a")
    with pytest.raises(ConfigurationError, match=r"\[node\.NAME\]") as refused:
        a.node.route("*", next_hop)
    assert "secret" not in str(refused.value)


def test_a_next_node_that_cannot_be_looked_at_keeps_no_other_from_being(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    look = Hops._look_at

    def breaks(self: Hops, address: str, *known: object) -> None:
        if "first" in address:
            raise ValueError("a mistake")
        look(self, address, *known)  # type: ignore[arg-type]
        looked.set()

    monkeypatch.setattr(Hops, "_look_at", breaks)
    a, b = net.add("a"), net.add("second")
    a.node.route("*", "http://first/rm", cost=9)
    a.node.route("*", b.url)
    assert looked.wait(30)


def test_a_start_that_fails_leaves_nothing_behind_and_the_next_look_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sendings: list[Sending] = []
    call = Sending.call

    def fails(self: Sending, verb: object) -> None:
        sendings.append(self)
        if len(sendings) == 1:
            raise StoreUnavailable("the disk is full", "Free some of it.")
        call(self, verb)

    monkeypatch.setattr(Sending, "call", fails)
    with Node(tmp_path / "a.db", "a") as node:
        with pytest.raises(StoreUnavailable):
            Routing(node).start()
        assert not sendings[0]._engine.is_running
        with Routing(node):
            assert sendings[1]._engine.is_running


def test_what_is_raised_where_routes_begin_ends_no_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Node(tmp_path / "a.db", "a") as node:
        routes = Routes(node, {})
        begins = iter((ValueError("a mistake"), None))

        def begin() -> None:
            if (error := next(begins)) is not None:
                raise error
            routes._begun = object()  # type: ignore[assignment]

        monkeypatch.setattr(routes, "_begin", begin)
        monkeypatch.setattr("wsrm_mq.server.routes._LOOK_SECONDS", 0.01)
        asyncio.run(routes.watch())
        routes._begun = None
