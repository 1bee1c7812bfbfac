"""What is remembered of one client is not what the next one gets: who it is, is asked of every request."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest

from tests.conftest import Wrapped
from tests.support.in_process import FACTORY, taken, until
from tests.support.stored import Stored
from wsrm_mq.testing import Reply
from wsrm_mq.versions import MAKE_CONNECTION


def named_by_authorization(environ: dict[str, Any], _headers: object) -> str | None:
    return environ.get("HTTP_AUTHORIZATION")


@pytest.mark.spec("SEC-002", versions=("1.1",))
@pytest.mark.parametrize(
    ("field", "hooks"),
    [("REMOTE_USER", {}), ("HTTP_AUTHORIZATION", {"authenticate": named_by_authorization})],
    ids=["named by the server", "named by a hook"],
)
def test_a_stranger_s_message_like_the_last_one_is_not_taken_into_its_sequence(
    in_process: Wrapped, field: str, hooks: dict[str, Any]
) -> None:
    """The same bytes but for number and MessageID, from the same address, after the owner's: only the server, or a hook
    that looks at a header which is not kept, knows that it is another user."""
    alice, mallory = {field: "alice"}, {field: "mallory"}
    delivered: list[int] = []

    def service(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        delivered.append(environ["wsrm.message_number"])
        return taken(start_response)

    server = in_process(service, **hooks)
    created = Reply.parse(server.post(FACTORY.create_sequence(), **alice)[1]).created
    assert created is not None
    for number in (1, 2, 3):
        status, answer = server.post(FACTORY.message(created.identifier, number), **alice)
        assert Reply.parse(answer).ack.ranges == ((1, number),), status
    for who in (mallory, {}):
        fault = Reply.parse(server.post(FACTORY.message(created.identifier, 4), **who)[1]).fault
        assert fault is not None, who
        assert fault.subcode == "UnknownSequence"
    status, answer = server.post(FACTORY.message(created.identifier, 4), **alice)
    assert Reply.parse(answer).ack.ranges == ((1, 4),)
    assert until(lambda: delivered == [1, 2, 3, 4])  # number 4 may still wait for the settlement of 3


@pytest.mark.spec("MC-019", "SEC-029", versions="all")
def test_what_waits_to_be_fetched_is_its_principals(in_process: Wrapped) -> None:
    """Another one polls for the same address, which it has guessed or read, and changes nothing by it."""
    address = f"{MAKE_CONNECTION.anonymous}{uuid.uuid4()}"
    replies = threading.Event()

    def service(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        environ["wsgi.input"].read()
        replies.wait(10)
        start_response("200 OK", [("Content-Type", FACTORY.content_type)])
        return [FACTORY.envelope("urn:example:reply", "<reply/>")]

    server = in_process(service, hold_wait=0.05)
    alice, mallory = {"REMOTE_USER": "alice"}, {"REMOTE_USER": "mallory"}
    created = Reply.parse(server.post(FACTORY.create_sequence(acks_to=address), **alice)[1]).created
    assert created is not None
    server.post(FACTORY.message(created.identifier, 1, reply_to=address), **alice)
    replies.set()
    query = "SELECT count(*) FROM entry WHERE lane IN (SELECT lane FROM channel)"
    assert until(lambda: server.rows(query) == [(1,)])
    store = Stored(server.path)
    before = store.everything()
    for who in (mallory, {}):
        assert server.post(FACTORY.make_connection(address), **who) == ("202 Accepted", b"")
    assert store.everything() == before
    status, answer = server.post(FACTORY.make_connection(address), **alice)
    assert (status, Reply.parse(answer).body_name) == ("200 OK", "reply")
