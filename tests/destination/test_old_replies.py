"""A client that asks again and again for a reply that left long ago, because it cannot use it, is brought to an end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, TWO_WAY, InProcess, until
from tests.test_asgi_in_process import ANSWER
from wsrm_mq.events.telling import Event
from wsrm_mq.testing import Reply


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


def service(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", FACTORY.content_type)])
    return [ANSWER]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def wsrm(tmp_path: Path, clock: Clock) -> Iterator[InProcess]:
    made = InProcess(tmp_path, service, clock=clock)
    yield made
    made.middleware.close(5)


def kind_of(wsrm: InProcess, message: bytes) -> str:
    status, content = wsrm.post(message)
    reply = Reply.parse(content)
    assert (status, reply.ack.ranges) == ("200 OK", ((1, 1),))
    if reply.action == FACTORY.rm.action("SequenceAcknowledgement"):
        assert reply.relates_to is None
        return "acknowledgement"
    assert b"done" in content
    return "reply"


@pytest.mark.spec("H-009", versions="all")
def test_a_fresh_reply_goes_out_as_often_as_it_is_asked_for(wsrm: InProcess, clock: Clock) -> None:
    message = FACTORY.message(wsrm.create(), 1, reply_to=TWO_WAY)
    kinds = {kind_of(wsrm, message)}
    clock.now += 59_000
    assert kinds | {kind_of(wsrm, message) for _copy in range(7)} == {"reply"}


def test_an_old_one_goes_out_in_turn_with_the_acknowledgement_alone(wsrm: InProcess, clock: Clock) -> None:
    message = FACTORY.message(wsrm.create(), 1, reply_to=TWO_WAY)
    first = kind_of(wsrm, message)
    clock.now += 60_000
    copies = [kind_of(wsrm, message) for _copy in range(6)]
    assert [first, *copies] == [
        "reply",
        "reply",
        "reply",
        "acknowledgement",
        "reply",
        "acknowledgement",
        "reply",
    ]


def test_after_a_restart_it_ends_too(wsrm: InProcess, clock: Clock) -> None:
    message = FACTORY.message(wsrm.create(), 1, reply_to=TWO_WAY)
    assert kind_of(wsrm, message) == "reply"
    assert wsrm.middleware.close(5)
    clock.now += 3_600_000
    wsrm.open()
    assert "acknowledgement" in {kind_of(wsrm, message) for _copy in range(4)}


@pytest.mark.parametrize("assurance", ["exactly_once", "at_most_once"])
@pytest.mark.parametrize("content_type", ["text/html", "application/json", FACTORY.content_type])
def test_a_reply_that_is_no_envelope_is_told_and_its_message_is_acknowledged_when_it_comes_again(
    tmp_path: Path, content_type: str, assurance: str
) -> None:
    """The acknowledgement cannot ride on it; without one the client would send for ever."""
    told: list[Event] = []
    calls: list[int] = []

    def page(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        calls.append(environ["wsrm.message_number"])
        start_response("200 OK", [("Content-Type", content_type)])
        return [b"no envelope"]

    wsrm = InProcess(tmp_path, page, on_event=told.append, assurance=assurance)
    try:
        identifier = wsrm.create()
        message = FACTORY.message(identifier, 1, reply_to=TWO_WAY)
        answers = [wsrm.post(message) for _copy in range(4)]
        assert until(lambda: told)
    finally:
        wsrm.middleware.close(5)
    assert [content for _status, content in answers[::2]] == [b"no envelope"] * 2
    for status, content in answers[1::2]:
        assert (status, Reply.parse(content).ack.ranges) == ("200 OK", ((1, 1),))
    assert calls == [1]
    [event] = [event for event in told if event.name == "reply.not_soap"]
    assert (event.sequence, event.number, event.fields["content_type"]) == (identifier, 1, content_type)


@pytest.mark.parametrize("assurance", ["exactly_once", "at_most_once"])
def test_a_reply_that_is_no_envelope_and_was_to_be_sent_to_an_address_is_told(tmp_path: Path, assurance: str) -> None:
    told: list[Event] = []

    def page(_environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/html")])
        return [b"no envelope"]

    wsrm = InProcess(tmp_path, page, on_event=told.append, assurance=assurance, decoupled=["http://127.0.0.1:9"])
    try:
        identifier = wsrm.create()
        wsrm.post(FACTORY.message(identifier, 1, reply_to=TWO_WAY.replace(FACTORY.anonymous, "http://127.0.0.1:9/r")))
        assert until(lambda: [event for event in told if event.name == "reply.not_soap"])
    finally:
        wsrm.middleware.close(5)
    [event] = [event for event in told if event.name == "reply.not_soap"]
    assert (event.sequence, event.number, event.fields["content_type"]) == (identifier, 1, "text/html")
