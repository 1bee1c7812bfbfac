"""The demo, run as a user runs it; what it tells is held against the service's own database."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from wsrm_mq.demo.run import Result, Sight
from wsrm_mq.queue.ownership import RUN_AHEAD


def wsrm_mq(*arguments: object, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run ``wsrm-mq``; ``before`` is Python that comes first."""
    program = f"import sys; {before}\nfrom wsrm_mq.cli import main\nmain()"
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("WSRM_MQ_")}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)


def rows(database: Path, query: str) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "kept"


@pytest.fixture(scope="module")
def told(kept: Path) -> dict[str, object]:
    """What a demo says of itself on the last line."""
    done = wsrm_mq("demo", "--json", "--messages", 80, "--seed", 3, "--keep", kept)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr, "escape sequences, and no terminal"
    told: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_the_demo_survives_its_crash(told: dict[str, object]) -> None:
    assert (told["sent"], told["delivered"], told["acknowledged"]) == (80, 80, 80)
    assert (told["lost"], told["duplicates_delivered"], told["in_order"]) == (0, 0, True)
    assert told["restarts"] == 1
    assert told["problem"] == ""


def test_the_line_of_the_demo_is_bad(told: dict[str, int]) -> None:
    """Each kind of trouble came about: otherwise the demo would show nothing."""
    assert told["requests_lost"] > 0
    assert told["answers_lost"] > 0
    assert told["duplicates_sent"] > 0
    assert told["held_max"] > 1
    assert told["transmissions"] > told["sent"]


def test_what_the_demo_tells_is_what_the_service_did(told: dict[str, object], kept: Path) -> None:
    service = kept / "service.db"
    assert rows(service, "SELECT n FROM effects ORDER BY rowid") == [(n,) for n in range(1, 81)]
    assert rows(service, "SELECT count(*) FROM calls WHERE redelivery = 1") == [(told["redelivered"],)]
    [(calls,)] = rows(service, "SELECT count(*) FROM calls")
    assert calls >= 80 + int(str(told["redelivered"]))
    assert rows(service, "SELECT count(DISTINCT n) FROM calls WHERE redelivery = 0") == [(80,)]


def test_the_crash_comes_between_effect_and_settlement(told: dict[str, object]) -> None:
    assert 1 <= int(str(told["redelivered"])) <= RUN_AHEAD + 1, "the crash had no consequence"


def test_the_store_of_the_demo_is_kept_whole(told: dict[str, object], kept: Path) -> None:
    assert told["sent"] == 80
    listed = wsrm_mq("sequence", "list", "--store", kept / "store.db", "--json")
    assert listed.returncode == 0, listed.stderr
    [sequence] = json.loads(listed.stdout)["sequences"]
    assert sequence["state"] == "ended"
    assert not list(kept.glob("*-wal")), "a database was not closed"


def test_a_directory_that_has_databases_is_refused(told: dict[str, object], kept: Path) -> None:
    assert told["sent"] == 80
    before = (kept / "service.db").read_bytes()
    done = wsrm_mq("demo", "--keep", kept)
    assert done.returncode == 4
    assert "service.db is there already" in done.stderr
    assert (kept / "service.db").read_bytes() == before


def test_a_server_that_cannot_start_ends_the_demo_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "spyne.py").write_text("raise RuntimeError('no soap today')")  # the server runs in this directory
    done = wsrm_mq("demo", "--keep", tmp_path)
    assert done.returncode == 1
    assert "no soap today" in done.stderr


@pytest.mark.parametrize("part", ["spyne", "uvicorn"])
def test_a_missing_part_is_named_with_the_way_to_get_it(part: str) -> None:
    done = wsrm_mq("demo", before=f"sys.modules[{part!r}] = None")
    assert done.returncode == 2
    assert f"needs {part}" in done.stderr
    assert "pip install 'wsrm-mq[demo]'" in done.stderr


GOOD = Result(
    sent=2,
    acknowledged=2,
    delivered=2,
    in_order=True,
    duplicates_delivered=0,
    redelivered=1,
    lost=0,
    restarts=1,
    held_max=1,
    transmissions=3,
    requests_lost=1,
    answers_lost=0,
    duplicates_sent=0,
    seconds=1.0,
    problem="",
)


@pytest.mark.parametrize(
    "trouble", [{"lost": 1}, {"duplicates_delivered": 1}, {"in_order": False}, {"problem": "given up"}]
)
def test_a_result_with_any_trouble_is_not_good(trouble: dict[str, object]) -> None:
    assert GOOD.is_good
    assert not replace(GOOD, **trouble).is_good


def test_held_is_what_is_accepted_from_the_limit_on() -> None:
    assert Sight(accepted=((1, 3), (5, 7), (9, 9)), limit=4).held == 4
    assert Sight(accepted=((1, 9),), limit=10).held == 0
    assert Sight(accepted=((2, 9),), limit=1).held == 8
