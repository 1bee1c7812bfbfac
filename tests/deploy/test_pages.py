"""Every page on deployment is followed as it stands, on a real server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.client import SPEAK, Client
from tests.deploy.page import HOWTO, Page
from tests.support.orders_server import within

OBJECT = r"127\.0\.0\.1:{port}/[0-9a-f]{{8}}"
NAMES = {
    "waitress": OBJECT,
    "gunicorn-gthread": OBJECT,
    "gunicorn-gevent": OBJECT,
    "cheroot": OBJECT,
    "uwsgi": OBJECT,
    "granian": None,
    "granian-asgi": OBJECT,
    "uvicorn": OBJECT,
    "nginx": r"\d+-\d+",
}
"""Page -> the name of a connection on that server; ``port`` is the client's."""
TELLS_THE_END = {"gunicorn-gthread", "gunicorn-gevent", "uvicorn"}
"""Servers that show at once that a connection is over."""
DRAINS = set(NAMES) - {"uwsgi"}
"""uWSGI does not wait for a thread that still looks after a connection."""


def test_every_page_is_followed() -> None:
    assert {path.stem.removeprefix("deploy-") for path in HOWTO.glob("deploy-*.md")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_deploys_a_service_that_keeps_order_and_knows_its_connections(name: str, tmp_path: Path) -> None:
    with Page(f"deploy-{name}", tmp_path) as page:
        page.follow()
        with Client(page.url_port) as offering:
            assert offering.offer(b"GET /smuggled HTTP/1.1\r\nHost: here\r\n\r\n").fault == "Client"
            assert offering.offer(SPEAK.create_sequence()).reply.created
        with Client(page.url_port) as client, Client(page.url_port) as other:
            identifier = other.identifier = client.create()
            assert client.send(2).reply.ack.ranges == ((2, 2),)
            assert other.send(4).reply.ack.ranges == ((2, 2), (4, 4))
            assert client.send(1).reply.ack.ranges == ((1, 2), (4, 4))
            assert other.send(3).reply.ack.ranges == ((1, 4),), page.log
            assert within(10, lambda: page.numbers(identifier), lambda seen: len(seen) == 4) == [1, 2, 3, 4]
            for text in ("a", "b", "c"):
                assert client.put_plain(f"urn:plain:{text}").status == 202
            plain = within(10, lambda: page.seen()[4:], lambda seen: len(seen) == 3)
        messages = page.store.rows("SELECT message_id, connection FROM message ORDER BY id LIMIT -1 OFFSET 2")
        _names_fit(NAMES[name], [one for _id, one in messages], client, other)
        assert [one for one, _connection in messages[4:]] == ["urn:plain:a", "urn:plain:b", "urn:plain:c"]
        assert {call["REMOTE_ADDR"] for call in page.seen()} == {"127.0.0.1"}
        if NAMES[name] is None:
            assert sorted(call["wsrm.message_number"] for call in plain) == [1, 1, 1]
        else:
            assert [call["wsrm.message_number"] for call in plain] == [1, 2, 3]
            assert {call["wsrm.connection"] for call in plain} == {messages[0][1]}
        if name in TELLS_THE_END:
            ended = within(5, lambda: _of_connections(page), lambda rows: rows[0][0] is not None)
            assert ended == [("terminated", 4)]
        assert within(5, lambda: page.store.unsettled(identifier), lambda count: count == 0) == 0
    if name in DRAINS:
        assert page.store.rows("SELECT count(*) FROM entry WHERE outcome IS NULL") == [(0,)]
        assert page.store.rows("SELECT count(*) FROM instance WHERE ended_at IS NULL") == [(0,)], page.log


def _names_fit(pattern: str | None, names: list[str | None], client: Client, other: Client) -> None:
    """Messages 1, 3, 5, … came on the first connection, 2 and 4 on the other."""
    mine, others = {names[0], names[2], *names[4:]}, {names[1], names[3]}
    if pattern is None:
        assert mine | others == {None}
        return
    ((first,), (second,)) = mine, others
    assert first != second
    for shown, port in ((first, client.local_port), (second, other.local_port)):
        assert shown is not None
        assert re.fullmatch(pattern.format(port=port), shown), shown


def _of_connections(page: Page) -> list[tuple[str | None, int]]:
    return page.store.rows("SELECT ended, expected FROM sequences WHERE kind = 'connection'")


@pytest.mark.timeout(240)
def test_behind_uwsgi_s_router_all_processes_call_a_connection_the_same(tmp_path: Path) -> None:
    changes = {
        "http11-socket =": "http-keepalive = 60\nhttp =",
        "processes = 1": "processes = 2",
        "threads = 8": "threads = 2",
    }
    with Page("deploy-uwsgi", tmp_path, changes) as page:
        page.wait_for(2)
        with Client(page.url_port) as client:
            for number in range(1, 21):
                assert client.put_plain(f"urn:plain:{number}").status == 202
            seen = within(10, page.seen, lambda calls: len(calls) == 20)
        assert [call["wsrm.message_number"] for call in seen] == list(range(1, 21))
        assert {call["wsrm.connection"] for call in seen} == {f"127.0.0.1:{client.local_port}"}
        assert {call["REMOTE_ADDR"] for call in seen} == {"127.0.0.1"}


@pytest.mark.scenario("Q-036")
@pytest.mark.parametrize("name", ["gunicorn-gthread", pytest.param("uwsgi", marks=pytest.mark.long)])
def test_what_was_sent_without_wsrm_is_delivered_in_its_order_after_a_crash(name: str, tmp_path: Path) -> None:
    page = Page(f"deploy-{name}", tmp_path, {"service,\n": "broken,\n", "import service\n": "import broken\n"})
    orders = tmp_path / "orders.py"
    whole = orders.read_text()
    orders.write_text(f"{whole}\n\ndef broken(environ, start_response):\n    raise OSError('not yet')\n")
    with page, Client(page.url_port) as client:
        for number in range(1, 6):
            assert client.put_plain(f"urn:plain:{number}").status == 202
        page.kill()
        orders.write_text(f"{whole}\n\nbroken = service\n")
        page.start()
        seen = within(60, page.seen, lambda calls: len(calls) == 5)
    assert [call["wsrm.message_number"] for call in seen] == [1, 2, 3, 4, 5]
    assert len({call["wsrm.sequence_id"] for call in seen}) == 1


@pytest.mark.parametrize("name", ["gunicorn-gthread", "gunicorn-gevent"])
def test_a_worker_that_cannot_load_the_application_says_why_and_no_more(name: str, tmp_path: Path) -> None:
    page = Page(f"deploy-{name}", tmp_path)
    page.may_end = True
    (tmp_path / "orders.py").write_text("raise OSError('the database is away')\n")
    with page:
        log = within(20, (tmp_path / "log").read_text, lambda text: "Worker failed to boot" in text)
    assert "OSError: the database is away" in log
    assert "AttributeError" not in log
