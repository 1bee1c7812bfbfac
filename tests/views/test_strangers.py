"""A program that knows only the documentation reads the store while a service writes it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.support.serve_command import APPLICATION, SOURCE, Served

READER = """
import sqlite3, sys

db = sqlite3.connect("file:wsrm.db?mode=ro", uri=True)
names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]
print("open", flush=True)
known, looks = 0, 0
while known < 40:
    db.execute("BEGIN")
    messages = db.execute("SELECT number, state, settled_at FROM messages ORDER BY position").fetchall()
    ((received, expected),) = db.execute("SELECT received, expected FROM sequences").fetchall() or ((0, 1),)
    indexed = db.execute("SELECT count(*) FROM sequence_messages").fetchone()[0]
    for name in names:
        db.execute(f"SELECT * FROM {name}").fetchall()
    db.execute("ROLLBACK")
    assert len(messages) == received == expected - 1 == indexed >= known, (messages, received, expected, indexed)
    assert [number for number, _, _ in messages] == list(range(1, received + 1))
    assert all((state == "delivered") is (settled_at is not None) for _, state, settled_at in messages), messages
    known, looks = received, looks + 1
print(looks, "looks")
"""


def test_a_stranger_reads_whole_states_while_the_service_accepts_and_delivers(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    served = Served(tmp_path, "shop:app", "--port", "0")
    command = [sys.executable, "-c", READER]
    stranger = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "open\n"
        identifier = served.create()
        for number in range(1, 41):
            assert served.post(SOURCE.message(identifier, number)).status == 200
        told, complaint = stranger.communicate(timeout=60)
        assert (complaint, stranger.returncode) == ("", 0)
        assert told.endswith("looks\n")
    finally:
        stranger.kill()
        status, said = served.end(signal.SIGTERM)
    assert status == 0
    assert "ERROR" not in said
