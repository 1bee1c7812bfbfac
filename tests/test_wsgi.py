"""The middleware as a WSGI application: what it takes, what it leaves alone, and how it ends."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, TWO_WAY, InProcess, taken, until
from wsrm_mq.testing import Reply


class Recorder:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        self.bodies.append(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        return taken(start_response)


@pytest.fixture
def app() -> Recorder:
    return Recorder()


@pytest.fixture
def wsrm(app: Recorder, tmp_path: Path) -> Iterator[InProcess]:
    service = InProcess(tmp_path, app, hold_wait=20)
    yield service
    service.middleware.close(5)


@pytest.mark.spec("H-020", versions="all")
@pytest.mark.parametrize("media_type", ["application/xml", "text/plain", "application/json", ""])
def test_a_reliable_message_under_another_media_type_is_refused_and_not_run(
    wsrm: InProcess, app: Recorder, media_type: str
) -> None:
    """An application that does not look at it would run it as often as it is sent."""
    message = FACTORY.message(wsrm.create(), 1)
    status, content = wsrm.post(message, CONTENT_TYPE=media_type)
    assert status.startswith("415")
    assert b"application/soap+xml" in content
    assert app.bodies == []
    assert wsrm.rows("SELECT count(*) FROM message") == [(0,)]


@pytest.mark.parametrize("body", [b'{"a": 1}', b"x" * 200_000], ids=["short", "long"])
def test_what_is_no_soap_reaches_the_application_as_it_came(wsrm: InProcess, app: Recorder, body: bytes) -> None:
    assert wsrm.post(body, CONTENT_TYPE="application/json")[0].startswith("202")
    assert app.bodies == [body]


def test_a_close_answers_requests_that_only_wait_for_a_gap(wsrm: InProcess) -> None:
    identifier = wsrm.create()
    statuses: list[str] = []
    waiting = threading.Thread(target=lambda: statuses.append(wsrm.put(identifier, 2, reply_to=TWO_WAY)))
    waiting.start()
    assert until(lambda: wsrm.rows("SELECT count(*) FROM entry") == [(1,)])
    assert wsrm.middleware.close(5)
    waiting.join(3)
    assert not waiting.is_alive()
    assert statuses[0][:3] in ("202", "503")


def test_an_answer_that_cannot_be_made_is_raised_to_the_server_and_the_message_is_delivered_once(
    wsrm: InProcess, app: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = wsrm.create()
    with monkeypatch.context() as broken:
        broken.setattr("wsrm_mq.destination.answers.acknowledgement", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            wsrm.put(identifier, 1)
    assert wsrm.put(identifier, 1).startswith("200")
    assert until(lambda: wsrm.rows("SELECT outcome FROM entry") == [("delivered",)])
    assert len(app.bodies) == 1


@pytest.mark.parametrize("header", ["HTTP_X_LARGE", "HTTP_X_REQUEST_ID", "HTTP_X_CONNECTION"])
def test_requests_with_large_headers_are_not_remembered(app: Recorder, tmp_path: Path, header: str) -> None:
    """Whether they are stored or not, and where one names the connection: any client can send some thousand of them."""
    options = {"connection_header": "X-Connection", "trusted_proxies": ("127.0.0.1",)}
    wsrm = InProcess(tmp_path, app, **options)

    def create(numbers: range) -> None:
        for number in numbers:
            assert wsrm.post(FACTORY.create_sequence(), **{header: f"{number:05}" + "x" * 60_000})[0].startswith("200")

    try:
        create(range(10))
        tracemalloc.start()
        create(range(10, 60))
        kept, _most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        wsrm.middleware.close(5)
    assert kept < 50 * 60_000 / 4


def test_behind_a_trusted_proxy_the_sender_is_the_one_that_it_reports(app: Recorder, tmp_path: Path) -> None:
    """Of its sequence, of its messages, to the service, and for the partner whose address it is; header by header."""
    partners = {"acme": {"address": "192.0.2.0/24"}}
    wsrm = InProcess(
        tmp_path, app, trusted_proxies=("127.0.0.1",), address_header="X-Client", partners=partners, one_way=("urn:a",)
    )
    try:
        for client in ("192.0.2.7", "198.51.100.9"):
            created = wsrm.post(FACTORY.create_sequence(), HTTP_X_CLIENT=f"203.0.113.5, {client}")[1]
            offered = Reply.parse(created).created
            assert offered is not None
            message = FACTORY.message(offered.identifier, 1, reply_to="", action="urn:a")
            assert wsrm.post(message, HTTP_X_CLIENT=client)[0].startswith("200")
        found = wsrm.rows("SELECT peer, partner FROM sequences ORDER BY key")
        assert found == [("192.0.2.7", "acme"), ("198.51.100.9", None)]
        assert wsrm.rows("SELECT peer FROM messages ORDER BY position") == [("192.0.2.7",), ("198.51.100.9",)]
    finally:
        wsrm.middleware.close(5)
