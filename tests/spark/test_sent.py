"""What an RM Source's store says that it sent, against what its destination's says that it got."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests.source.partner import envelope
from wsrm_mq import WSRMMiddleware
from wsrm_mq.cli import program
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.source import RMSource
from wsrm_mq.testing import WSRM_1_1, EnvelopeFactory, WSGIWire

pytestmark = pytest.mark.timeout(300)
THERE, PUT = "http://partner.example/orders", "urn:example:orders/put"
SPEAK = EnvelopeFactory(WSRM_1_1)
AWAY = "http://127.0.0.1:9/orders"
ORDERS = 5


class Pair(NamedTuple):
    sender: Path
    receiver: Path


def service(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("202 Accepted", [("Content-Length", "0")])
    return []


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """``ORDERS`` were sent and delivered, and one waits for a host that is away."""
    found = Pair(tmp_path / "outbox.db", tmp_path / "orders.db")
    with WSRMMiddleware(service, found.receiver, one_way=(PUT,)) as there:

        def post(url: str, headers: Mapping[str, str], body: bytes, _who: str | None = None) -> Answer:
            if url != THERE:
                return Answer(503, "", [], b"")
            said = WSGIWire(there, "/orders").post(body, {"Content-Type": headers["Content-Type"]})
            return Answer(said.status, said.reason, list(said.fields.items()), said.body)

        with RMSource(found.sender, post=post) as source:
            for number in range(ORDERS):
                source.send(envelope(SPEAK, str(number)), to=THERE, action=PUT, acknowledged_within=20)
            assert source.end(THERE, 20)
            source.send(envelope(SPEAK, "late"), to=AWAY, action=PUT)
    return found


def reconciled(pair: Pair, out: Path) -> tuple[int, dict[str, Any]]:
    words = ["pipeline", "reconcile", pair.receiver, "--sent", pair.sender, "--out", out, "--json"]
    done = CliRunner().invoke(program, list(map(str, words)), prog_name="wsrm-mq")
    assert done.exit_code in (0, 1), done.stderr
    return done.exit_code, json.loads(done.stdout.splitlines()[-1])


def fates(found: dict[str, Any]) -> dict[str, int]:
    return {name: count for name, count in found.items() if name.startswith("sent") and count}


def test_what_a_source_has_sent_is_found_with_its_destination(pair: Pair, tmp_path: Path) -> None:
    code, found = reconciled(pair, tmp_path / "out")
    assert fates(found) == {"sent": ORDERS + 1, "sent_delivered": ORDERS, "sent_waiting": 1}
    assert (code, found["findings"], found["messages"]) == (0, [], ORDERS)


def test_what_was_acknowledged_and_is_nowhere_is_told_and_so_is_what_was_given_up_and_delivered(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(pair.sender)) as db:
        ids = [
            row[0] for row in db.execute("SELECT message_id FROM messages WHERE action = ? ORDER BY position", [PUT])
        ]
    with closing(sqlite3.connect(pair.receiver)) as db, db:
        db.execute("UPDATE message SET message_id = 'urn:of:nobody' WHERE message_id = ?", [ids[0]])
    with closing(sqlite3.connect(pair.sender)) as db, db:
        in_doubt = "UPDATE entry SET outcome = 'dead', reason = 'not_acknowledged' WHERE message = "
        db.execute(in_doubt + "(SELECT id FROM message WHERE message_id = ?)", [ids[1]])
    code, found = reconciled(pair, tmp_path / "out")
    assert code == 1
    assert found["findings"] == ["sent_lost", "sent_given_up"]
    counts = {"sent_delivered": ORDERS - 2, "sent_waiting": 1, "sent_lost": 1, "sent_given_up": 1}
    assert fates(found) == {"sent": ORDERS + 1, **counts}
    astray = spark.read.parquet(str(tmp_path / "out" / "astray")).collect()
    assert {(row.message_id, row.fate, row.receipts) for row in astray} == {
        (ids[0], "lost", 0),
        (ids[1], "given_up", 1),
    }
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Sent, and not as their sender says" in report
    assert ids[0] in report


def test_the_store_of_a_source_among_the_others_has_received_nothing(pair: Pair, tmp_path: Path) -> None:
    words = ["pipeline", "reconcile", pair.receiver, pair.sender, "--out", tmp_path / "out", "--json"]
    done = CliRunner().invoke(program, list(map(str, words)), prog_name="wsrm-mq")
    assert json.loads(done.stdout.splitlines()[-1])["twice"] == 0
