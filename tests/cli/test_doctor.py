"""`doctor`: what is wrong with processes, proxy, clock and store, each with the way to mend it."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import HOUR, Service
from tests.support.commands import Wsrm
from tests.support.stored import write_locked
from wsrm_mq.cli import doctor as examinations
from wsrm_mq.cli.doctor import listening
from wsrm_mq.store.sqlite import vitals
from wsrm_mq.store.store import Store


def examined(wsrm: Wsrm, status: int) -> dict[str, Any]:
    result = wsrm("doctor", "--json")
    assert result.exit_code == status, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["well"] is (status == 0)
    examinations: dict[str, Any] = found["examinations"]
    return examinations


def only_trouble(found: dict[str, Any], name: str) -> dict[str, Any]:
    assert [one for one in found if found[one]["troubles"]] == [name]
    (trouble,) = found[name]["troubles"]
    assert isinstance(trouble, dict)
    return trouble


def came(service: Service, **request: str) -> None:
    sequence = service.sequence(1, environ=json.dumps(request))
    service.deliver(sequence, 1)


def test_a_service_that_is_well_has_no_trouble(wsrm: Wsrm, service: Service) -> None:
    came(service, REMOTE_ADDR="192.0.2.1")
    found = examined(wsrm, 0)
    assert list(found) == list(examinations.EXAMINATIONS)
    assert found["proxy"]["said"] == "the last 1 message came from 192.0.2.1"
    lines = wsrm("doctor").stdout.splitlines()
    assert {line.split()[0] for line in lines} == {"ok", "unknown"}
    assert len(lines) == len(found)


def test_without_a_process_it_says_how_to_start_one(wsrm: Wsrm, path: Path, somewhere: Path) -> None:
    (somewhere / "wsrm-mq.toml").write_text('app = "orders:app"\n')
    trouble = only_trouble(examined(wsrm, 1), "processes")
    assert trouble["fix"] == ["wsrm-mq serve orders:app"]
    shown = wsrm("doctor", "--store", "wsrm.db").stdout
    assert "TROUBLE  processes: No process of the service lives.\n    fix: wsrm-mq serve orders:app" in shown


def test_a_proxy_that_is_taken_for_the_sender_is_told_with_the_lines_to_write(
    wsrm: Wsrm, service: Service, somewhere: Path
) -> None:
    came(service, REMOTE_ADDR="127.0.0.1", HTTP_X_FORWARDED_FOR="192.0.2.7")
    trouble = only_trouble(examined(wsrm, 1), "proxy")
    assert trouble["fix"] == ['trusted_proxies = ["127.0.0.1"]', 'address_header = "X-Forwarded-For"']
    (somewhere / "wsrm-mq.toml").write_text("\n".join(trouble["fix"]))
    assert wsrm("config", "check").exit_code == 0
    came(service, REMOTE_ADDR="192.0.2.7", HTTP_X_FORWARDED_FOR="192.0.2.7")
    again = only_trouble(examined(wsrm, 1), "proxy")
    assert "1 of the last 2 messages came from a trusted proxy that did not name its client" in again["what"]


def test_a_server_that_knows_the_sender_behind_its_proxy_is_fine(wsrm: Wsrm, service: Service) -> None:
    came(service, REMOTE_ADDR="192.0.2.7", HTTP_X_FORWARDED_FOR="192.0.2.7, 127.0.0.1")
    assert examined(wsrm, 0)["proxy"]["troubles"] == []


def test_a_clock_that_was_stepped_back_is_told(wsrm: Wsrm, service: Service) -> None:
    service.clock.advance(3 * HOUR)
    came(service)
    trouble = only_trouble(examined(wsrm, 1), "clock")
    assert "2 h ahead of this clock" in trouble["what"] or "119 min ahead" in trouble["what"]


def test_a_clock_that_has_jumped_ahead_and_is_doubted_is_told(wsrm: Wsrm, service: Service) -> None:
    """The time of a sequence is over by this clock, and the service that lives does not end it."""
    service.clock.advance(-40 * 24 * HOUR)
    service.sequence(1)
    service.clock.advance(40 * 24 * HOUR)
    trouble = only_trouble(examined(wsrm, 1), "clock")
    assert "the time of 1 sequence is over" in trouble["what"]
    assert "it doubts the clock, which has jumped ahead" in trouble["what"]
    assert trouble["fix"] == ["timedatectl"]


def test_a_step_back_among_the_newest_messages_is_told(wsrm: Wsrm, service: Service) -> None:
    came(service)
    service.clock.advance(-60_000)
    came(service)
    assert "went back by 60 s" in only_trouble(examined(wsrm, 1), "clock")["what"]


def test_who_has_locked_the_store_is_named(wsrm: Wsrm, service: Service, path: Path) -> None:
    came(service)
    script = (
        "import sqlite3, sys, time; db = sqlite3.connect('wsrm.db', isolation_level=None); "
        "db.execute('BEGIN IMMEDIATE'); print('locked', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-E", "-c", script]  # begun anew: it is known by its command line
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        trouble = only_trouble(examined(wsrm, 1), "lock")
    finally:
        other.kill()
        other.communicate()
    assert "another program holds the write lock" in trouble["what"]
    assert f"kill {other.pid}" in trouble["fix"]
    assert "sqlite3" in trouble["remark"]


def test_a_lock_of_a_program_that_cannot_be_seen_has_a_way_to_find_it(
    wsrm: Wsrm, service: Service, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vitals, "PROC", tmp_path / "none")
    with write_locked(path):
        assert only_trouble(examined(wsrm, 1), "lock")["fix"] == [f"fuser -v {path}"]


def test_a_large_log_is_told(wsrm: Wsrm, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    came(service)
    monkeypatch.setattr(examinations, "LARGE_LOG", 1)
    assert "a reader keeps it" in only_trouble(examined(wsrm, 1), "log")["what"]


def test_damaged_pages_are_told(wsrm: Wsrm, service: Service, path: Path) -> None:
    for _ in range(50):
        came(service, HTTP_USER_AGENT="x" * 500)
    service.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ledger_by_sequence'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size + 3)
        file.write(b"\xff\xff")
    found = examined(wsrm, 1)
    assert found["pages"]["troubles"][0]["what"].startswith("The file is damaged: ")


def test_a_check_of_the_pages_that_takes_too_long_is_not_waited_for(
    wsrm: Wsrm, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    came(service)
    monkeypatch.setattr(examinations, "SECONDS", 0.0)
    monkeypatch.setattr(vitals, "STEPS", 1)
    assert examined(wsrm, 0)["pages"] == {
        "well": None,
        "said": "not through in 0 s; all of it: wsrm-mq store verify",
        "troubles": [],
    }


def test_others_who_may_read_the_store_are_told(wsrm: Wsrm, service: Service, path: Path) -> None:
    came(service)
    path.chmod(0o644)
    assert only_trouble(examined(wsrm, 1), "permissions")["fix"] == [f"chmod 600 {path}"]


def test_a_copy_is_not_served_before_it_is_adopted(wsrm: Wsrm, service: Service) -> None:
    came(service)
    assert wsrm("store", "backup", "copy.db").exit_code == 0
    result = wsrm("doctor", "--store", "copy.db")
    assert result.exit_code == 1
    assert "TROUBLE  identity: The store is a copy of" in result.stdout
    assert "    fix: wsrm-mq store adopt --dry-run --store copy.db" in result.stdout


@contextmanager
def health(status: int, body: bytes) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_server_that_is_not_well_says_what_it_answers(
    wsrm: Wsrm, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    came(service)
    with health(503, b"watch: it has not looked for 20 s \x1b[2J") as port:
        monkeypatch.setenv("WSRM_MQ_OBSERVE_PORT", str(port))
        trouble = only_trouble(examined(wsrm, 1), "server")
        assert "answers 503: watch: it has not looked" in trouble["what"]
        assert "\x1b" not in wsrm("doctor").stdout
    began = time.monotonic()
    assert "does not answer" in only_trouble(examined(wsrm, 1), "server")["what"]
    assert time.monotonic() - began < 5
    with health(200, b"ok") as port:
        monkeypatch.setenv("WSRM_MQ_OBSERVE_PORT", str(port))
        assert examined(wsrm, 0)["server"]["said"].endswith("/healthz answers 200")


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_server_is_asked_where_its_process_listens(
    wsrm: Wsrm, path: Path, family: socket.AddressFamily, host: str
) -> None:
    store = Store(path)
    store.open()
    with socket.create_server((host, 0), family=family) as listener:
        port = listener.getsockname()[1]
        assert (host, port) in listening(os.getpid())
        said = examined(wsrm, 0)["server"]
        assert (said["well"], said["said"].split()[:2]) == (True, ["process", str(os.getpid())])
    store.close()


def test_a_token_that_ends_soon_is_told_with_what_replaces_it(wsrm: Wsrm, service: Service) -> None:
    came(service, REMOTE_ADDR="192.0.2.1")
    assert examined(wsrm, 0)["tokens"]["said"] == "none: no other machine uses it"
    wsrm("token", "add", "shop", "--put", "*", "--expires", "90d")
    assert examined(wsrm, 0)["tokens"]["said"] == "1 token, 0 used within a day"
    wsrm("token", "add", "ops", "--peek", "*", "--expires", "6d")
    trouble = only_trouble(examined(wsrm, 1), "tokens")
    assert trouble["what"].startswith("The token ops expires: ")
    assert trouble["fix"] == ["wsrm-mq token revoke ops"]
