"""kill -9 while a store is pruned; and a service that gets a backup instead of its store."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.witness import Witness, settled
from tests.support.orders import OrderSender
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.testing import Refused

_PRUNE_AND_DIE = """
import os, signal, sys, time
from pathlib import Path
from wsrm_mq.queue import retention
from wsrm_mq.queue.retention import Kept, batches
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

point, path, passing = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
retention.BATCH = 7
ledger = Transaction.ledger

def die(*_):
    global passing
    passing -= 1
    if not passing:
        os.kill(os.getpid(), signal.SIGKILL)

def deleted(tx, event, *rest, **more):
    ledger(tx, event, *rest, **more)
    if event == "pruned" and point == "before_commit":
        die()

Transaction.ledger = deleted
store = Store(path)
store.open()
for batch in batches(store.reader, lambda partner: Kept(0, 0), store.clock() + 3_600_000):
    store.call(batch)
    if point == "after_commit":
        die()
print("nothing left")
"""


def prune_and_die(path: Path, point: str, passing: int) -> str:
    command = [sys.executable, "-c", _PRUNE_AND_DIE, point, str(path), str(passing)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (-9 if not done.stdout else 0), done.stderr
    return done.stdout


@pytest.mark.timeout(180)
@pytest.mark.spec("D-DUR-001", "D-DUR-004", versions="all")
def test_a_kill_while_it_is_pruned_leaves_a_good_store_that_answers_as_before(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    witness.start()
    source = OrderSender(witness)
    for number in (*range(1, 31), 33):
        source.send_until_acknowledged(number)
    assert settled(witness, source.identifier, 30) == list(range(1, 31))
    witness.stop()
    for passing, point in ((1, "before_commit"), (1, "after_commit"), (2, "before_commit"), (2, "after_commit")):
        assert prune_and_die(witness.store, point, passing) == ""
        with closing(sqlite3.connect(witness.store)) as db:
            assert list(all_findings(db)) == []
    assert prune_and_die(witness.store, "never", 0)
    with closing(sqlite3.connect(witness.store)) as db:
        assert list(all_findings(db)) == []
        assert db.execute("SELECT number FROM entry").fetchall() == [(33,)]
        assert db.execute("SELECT count(*) FROM ledger WHERE event = 'pruned'").fetchone() == (5,)
    witness.start()
    source.disconnect()
    for number in (1, 17, 30, 33):
        source.acknowledged.clear()
        source.send_until_acknowledged(number)
        assert source.acknowledged == {*range(1, 31), 33}
    for number in (31, 32):
        source.send_until_acknowledged(number)
    assert settled(witness, source.identifier, 33) == list(range(1, 34))
    witness.stop()
    assert witness.calls(source.identifier) == [(n, False) for n in range(1, 34)]


@pytest.mark.timeout(180)
def test_a_backup_in_place_of_the_store_is_not_served_and_once_adopted_loses_and_repeats_nothing_unseen(
    tmp_path: Path,
) -> None:
    witness = Witness(tmp_path)
    witness.start()
    source = OrderSender(witness)
    for number in (1, 2, 4):
        source.send_until_acknowledged(number)
    assert settled(witness, source.identifier, 2) == [1, 2]
    backup(witness.store, tmp_path / "backup.db")
    source.send_until_acknowledged(3)  # this copy never learns that 3 and 4 were delivered
    assert settled(witness, source.identifier, 4) == [1, 2, 3, 4]
    witness.kill()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{witness.store}{suffix}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup.db", witness.store)

    with pytest.raises(AssertionError, match="is a copy of"):
        witness.start()
    command = [sys.executable, "-m", "wsrm_mq", "store", "adopt", "--store", str(witness.store), "--yes"]
    told = subprocess.run([*command, "--reason", "disk"], capture_output=True, text=True, timeout=60, check=True)
    assert "Open sequences that end: 1." in told.stderr
    assert "Messages that it has not delivered: 1. They go to the dead letters" in told.stderr

    witness._process = None
    witness.start()
    source.disconnect()
    with pytest.raises(Refused, match="SequenceTerminated"):
        source.send(5)
    witness.stop()
    assert witness.effects(source.identifier) == [1, 2, 3, 4]
    with closing(sqlite3.connect(witness.store)) as db:
        assert list(all_findings(db)) == []
        assert db.execute("SELECT number, reason FROM entry WHERE outcome = 'dead'").fetchall() == [
            (4, "store_adopted")
        ]


def backup(store: Path, target: Path) -> None:
    command = [sys.executable, "-m", "wsrm_mq", "store", "backup", str(target), "--store", str(store)]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
