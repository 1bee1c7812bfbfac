"""What is stored of a request, and so what the service sees of it, first time and replay alike."""

from __future__ import annotations

import json
import logging
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.store.conftest import Python, older_store, python  # noqa: F401
from tests.support.in_process import FACTORY, TWO_WAY, InProcess, until
from wsrm_mq.cli import program
from wsrm_mq.config import settings_from
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.kept_headers import KEPT_HEADERS, KeptHeaders
from wsrm_mq.store import schema, scrub

SECRET = "s3cr3t-value"
SENT = {
    "HTTP_X_API_KEY": SECRET,
    "HTTP_X_AUTH_TOKEN": SECRET,
    "HTTP_AUTHORIZATION": SECRET,
    "HTTP_COOKIE": SECRET,
    "HTTP_X_TENANT": "acme",
    "HTTP_USER_AGENT": "Apache-CXF/4.1",
    "HTTP_SOAPACTION": '""',
    "HTTP_TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "HTTP_X_FORWARDED_FOR": "192.0.2.7",
}
USUAL = {"REQUEST_METHOD": "POST", "PATH_INFO": "/orders", "HTTP_USER_AGENT": "CXF", "HTTP_HOST": "a"}


def heard(environ: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith("HTTP_")}


@pytest.mark.parametrize("one_way", [True, False], ids=["one-way", "two-way"])
def test_a_secret_header_is_nowhere_and_the_service_sees_the_same_headers_first_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, one_way: bool
) -> None:
    seen: list[dict[str, str]] = []

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        seen.append(heard(environ))
        if len(seen) == 1:
            raise OSError("the first time it fails")
        start_response("202 Accepted", [])
        return []

    named = ("urn:example:orders/put_order",) if one_way else ()
    service = InProcess(tmp_path, app, one_way=named, keep_headers=["x-tenant"], retry=(0.01,), hold_wait=5)
    with caplog.at_level(logging.WARNING, "wsrm_mq"):
        identifier = service.create()
        for number in (1, 2):
            service.post(FACTORY.message(identifier, number, reply_to=None if one_way else TWO_WAY), **SENT)
        assert until(lambda: len(seen) == 3)
    service.middleware.close()
    kept = {name: value for name, value in SENT.items() if value != SECRET}
    assert seen == [kept] * 3
    assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.glob("store.db*") if file.is_file())
    told = [record.getMessage() for record in caplog.records if "header" in record.getMessage()]
    assert SECRET not in caplog.text
    for name in ("X-Api-Key", "X-Auth-Token", "Authorization", "Cookie"):
        assert sum(name in line for line in told) == 1, "each is named once"


def test_names_that_are_invented_take_no_memory_for_ever() -> None:
    told: list[str] = []
    kept = KeptHeaders(dropped=told.append)
    for number in range(5_000):
        assert kept.select({f"HTTP_X_{number}": "x", "PATH_INFO": "/"}) == (("PATH_INFO", "/"),)
    assert len(told) < 1_000


@pytest.mark.parametrize(
    "name", ["Authorization", "cookie", "Proxy-Authorization", "Transfer-Encoding", "two words", ""]
)
def test_keep_headers_may_not_name_what_is_never_stored(name: str) -> None:
    with pytest.raises(ConfigurationError, match="keep_headers"):
        settings_from({"keep_headers": [name]})


def stored_by_an_older_version(path: Path, count: int, size: int = 10) -> None:
    """Every third message has a secret."""
    with closing(sqlite3.connect(path)) as db:
        db.executemany(
            "INSERT INTO message (environ, received_at, body_size, body) VALUES (?, 0, ?, zeroblob(?))",
            (
                (json.dumps({**USUAL, **({"HTTP_X_API_KEY": SECRET} if number % 3 == 0 else {})}), size, size)
                for number in range(count)
            ),
        )
        db.commit()


def left(path: Path) -> list[dict[str, str]]:
    with closing(sqlite3.connect(path)) as db:
        return [json.loads(environ) for (environ,) in db.execute("SELECT environ FROM message ORDER BY id")]


@pytest.mark.parametrize("size", [10, 100_000])
def test_an_upgrade_takes_secrets_out_of_the_store_and_its_log(
    older_store: Callable[[str], Path],  # noqa: F811
    size: int,
) -> None:
    path = older_store("0007")
    stored_by_an_older_version(path, 20, size)
    told: list[tuple[int, int]] = []
    schema.migrate(path, progress=lambda upto, last: told.append((upto, last)))
    for file in path.parent.glob("store.db*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()
    assert left(path)[0] == {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/orders",
        "HTTP_USER_AGENT": "CXF",
        "HTTP_HOST": "a",
    }
    assert told == [(20, 20)]
    assert schema.migrate(path) == (schema.HEAD, schema.HEAD)


def test_an_upgrade_leaves_what_keep_headers_names(older_store: Callable[[str], Path]) -> None:  # noqa: F811
    path = older_store("0007")
    stored_by_an_older_version(path, 3)
    schema.ensure(path, keep_headers=("X-API-Key",))
    assert left(path)[0]["HTTP_X_API_KEY"] == SECRET


def test_the_command_that_upgrades_leaves_what_the_configuration_names_and_says_what_it_does(
    older_store: Callable[[str], Path],  # noqa: F811
) -> None:
    path = older_store("0007")
    stored_by_an_older_version(path, 3)
    keeping = {"WSRM_MQ_KEEP_HEADERS": "X-API-Key"}
    done = CliRunner().invoke(program, ["store", "migrate", "--store", str(path)], env=keeping)
    assert done.exit_code == 0, done.output
    assert "taken out: up to position 3 of 3." in done.stderr
    assert left(path)[0]["HTTP_X_API_KEY"] == SECRET


def test_an_upgrade_that_is_killed_in_its_middle_is_gone_on_with(
    older_store: Callable[[str], Path],  # noqa: F811
    python: Python,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = older_store("0007")
    stored_by_an_older_version(path, 60)
    process = python(
        """
        import os, signal, sys
        from pathlib import Path
        from wsrm_mq.store import schema, scrub
        scrub.PIECE = 10
        piece, pieces = scrub._piece, []
        def killed(db):
            pieces.append(piece(db))
            if len(pieces) == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return pieces[-1]
        scrub._piece = killed
        schema.ensure(Path(sys.argv[1]))
        """,
        path,
    )
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert sum("HTTP_X_API_KEY" in environ for environ in left(path)) == 10, "of 60 every third, and half are done"
    monkeypatch.setattr(scrub, "PIECE", 10)
    schema.ensure(path)
    assert sum("HTTP_X_API_KEY" in environ for environ in left(path)) == 0
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT * FROM watermark WHERE name = 'scrubbed'").fetchall() == []


def test_the_page_on_configuration_lists_what_is_stored() -> None:
    text = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text()
    section = text.partition("## Request headers")[2].partition("\n## ")[0]
    assert all(f"`{name}`" in section for name in KEPT_HEADERS)
