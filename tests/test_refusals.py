"""What a refused request leaves behind: a number, whatever it asked for and however often."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.in_process import FACTORY, InProcess, taken, until
from tests.support.processes import Python
from tests.support.stored import write_locked
from wsrm_mq.cli import program
from wsrm_mq.store.counting import FILE_BYTES, MOST, OTHER, Refusal, Refusals, in_files, limit_named
from wsrm_mq.views.rows import refusals

WRONG = FACTORY.create_sequence().replace(FACTORY.anonymous.encode(), b"http://192.0.2.9/acks")
TABLES = ("queue", "message", "entry", "sequence", "range", "reply", "ledger")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InProcess]:
    def app(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        return taken(start_response)

    service = InProcess(tmp_path, app, one_way=("urn:example:orders/put_order",), max_sequences=1, max_body=100_000)
    yield service
    service.middleware.close()


def everything(service: InProcess) -> dict[str, int]:
    return {table: service.rows(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def counted(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as db:
        return {row.reason: row.times for row in refusals(db)}


def test_fifty_refused_requests_for_a_sequence_on_fifty_paths_leave_no_row_anywhere(service: InProcess) -> None:
    service.create()
    before = everything(service)
    for number in range(50):
        status, _fault = service.post(FACTORY.create_sequence(), PATH_INFO=f"/somewhere/{number}")
        assert status.startswith("500")
    assert everything(service) == before
    assert counted(service.path) == {"CreateSequenceRefused": 50}


def test_every_kind_of_refusal_is_a_count_and_nothing_else(service: InProcess) -> None:
    identifier = service.create()
    before = everything(service)
    service.post(WRONG)
    service.post(FACTORY.message("urn:unknown", 1))
    service.post(FACTORY.terminate("urn:unknown"))
    service.post(b"<not-soap/>")
    service.post(FACTORY.message(identifier, 1), CONTENT_TYPE="application/json")
    service.post(FACTORY.message(identifier, 1), CONTENT_LENGTH="100001")
    assert everything(service) == before
    assert counted(service.path) == {
        "CreateSequenceRefused": 1,
        "UnknownSequence": 2,
        "MalformedMessage": 1,
        "http_415": 1,
        "http_413": 1,
    }


def test_what_a_locked_store_cannot_count_is_read_beside_it_and_counted_when_it_is_free(service: InProcess) -> None:
    before = {"http_413": 1}
    with write_locked(service.path):
        service.post(b"", CONTENT_LENGTH="100001")
        assert {row.reason: row.times for row in in_files(service.path)} == before
        assert counted(service.path) == before
    assert until(lambda: service.rows("SELECT reason, times FROM refusal") == [("http_413", 1)])
    assert until(lambda: in_files(service.path) == [])
    assert counted(service.path) == before


def test_what_a_killed_process_has_not_counted_is_not_lost(
    tmp_path: Path,
    python: Python,
) -> None:
    path = tmp_path / "store.db"
    process = python(
        """
        import os, signal, sqlite3, sys
        from pathlib import Path
        from wsrm_mq.store.store import Store
        store = Store(Path(sys.argv[1]))
        store.open()
        sqlite3.connect(sys.argv[1], isolation_level=None).execute("BEGIN IMMEDIATE")
        for at in range(7):
            store.refusals.note("max_store", "acme", at)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        path,
    )
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert in_files(path) == [Refusal("max_store", "acme", 7, 6)]
    service = InProcess(tmp_path, lambda _environ, start_response: taken(start_response))
    try:
        assert until(lambda: service.rows("SELECT * FROM refusal") == [("max_store", "acme", 7, 6, "")])
        assert until(lambda: in_files(path) == [])
    finally:
        service.middleware.close()


def test_an_orderly_end_leaves_the_counts_in_the_store_and_no_file(service: InProcess) -> None:
    service.post(b"", CONTENT_LENGTH="100001")
    service.middleware.close()
    assert service.rows("SELECT reason, times FROM refusal") == [("http_413", 1)]
    assert list(Path(f"{service.path}.d").glob("*.refused")) == []


def test_the_file_has_one_size_whatever_is_refused_and_however_often(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    Path(f"{store}.d").mkdir()
    counts = Refusals()
    counts.open(store, "here")
    for number in range(1_000):
        counts.note(f"reason {number}" * 20, "partner" * 100, number)
    file = Path(f"{store}.d/here.refused")
    assert file.stat().st_size == FILE_BYTES
    found = in_files(store)
    assert len(found) == MOST
    assert sum(row.times for row in found) == 1_000
    assert Refusal(OTHER, "", 1_000 - MOST + 1, 999) in found
    counts.written(counts.waiting())
    assert in_files(store) == []
    assert file.stat().st_size == FILE_BYTES


def test_a_file_that_cannot_be_written_keeps_nothing_from_being_counted(tmp_path: Path) -> None:
    counts = Refusals()
    counts.open(tmp_path / "nowhere" / "store.db", "here")
    counts.note("http_413", None, 1)
    assert counts.waiting() == [Refusal("http_413", "", 1, 1)]
    counts.open(tmp_path / "nowhere" / "store.db", "here")
    assert counts.waiting() == [Refusal("http_413", "", 1, 1)]


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("3 messages are held behind number 1, max_held is 3", "max_held"),
        ("number 9 is beyond the window of 3 from 1", "window"),
        ("number 3 came before number 2, and none is held: window is 1", "window"),
        ("the store has 5 bytes, max_store is 4", "max_store"),
        ("all sequences hold 5 bytes, max_held_bytes_total is 4", "max_held_bytes_total"),
        ("something else", "no_room"),
    ],
)
def test_a_message_that_finds_no_room_is_counted_by_the_option_that_says_so(text: str, option: str) -> None:
    assert limit_named(text) == option


def test_why_a_partner_gets_no_sequence_is_kept_and_shown_with_the_option_that_would_allow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """His CreateSequence is all that there is of him: without the sentence nobody would know what to change."""
    monkeypatch.chdir(tmp_path)
    options = {"partners": {"acme": {"path": "/orders"}}, "max_sequences": 1}
    service = InProcess(tmp_path, lambda _environ, start_response: taken(start_response), **options)
    try:
        for _ in range(2):
            service.post(WRONG)
        assert until(lambda: service.rows("SELECT reason, partner, times FROM refusal") != [])

        def typed(*words: str, status: int = 0) -> str:
            result = CliRunner().invoke(program, [*words, "--store", str(service.path)], prog_name="wsrm-mq")
            assert result.exit_code == status, result.output
            return " ".join(result.stdout.split())

        sentence = (
            'nothing is sent to http://192.0.2.9 from here. An operator can allow it: decoupled = ["http://192.0.2.9"].'
        )
        shown = typed("status")
        assert "WARNING acme gets no sequence, and so sends nothing: refused 2 times" in shown
        assert sentence in shown
        assert "next: wsrm-mq failure show CreateSequenceRefused@acme" in shown
        why = typed("failure", "show", "CreateSequenceRefused@acme")
        assert sentence in why
        assert "option decoupled" in why
        assert "what decoupled is now: another value allows it" in why
        assert "partners that were refused a sequence in 24 h, and have no newer one: 1" in typed("check", status=1)
        service.create()
        assert "gets no sequence" not in typed("status"), "he has one"
    finally:
        service.middleware.close()


def test_what_was_said_is_kept_short_and_of_the_last(tmp_path: Path) -> None:
    counts = Refusals()
    store = tmp_path / "store.db"
    Path(f"{store}.d").mkdir()
    counts.open(store, "here")
    counts.note("CreateSequenceRefused", "acme", 5, said="ä" * 10_000)
    counts.note("CreateSequenceRefused", "acme", 3, said="older")
    (found,) = in_files(store)
    assert found[:4] == ("CreateSequenceRefused", "acme", 2, 5)
    assert set(found.said) == {"ä"}
    counts.note("CreateSequenceRefused", "acme", 6, said="\ud800 newer")
    assert in_files(store)[0].said == "? newer"
