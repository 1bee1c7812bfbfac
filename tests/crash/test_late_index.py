"""kill -9 while a late index is brought forward."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from tests.queue import test_connection_index, test_sequence_index
from tests.queue.build import Node
from wsrm_mq.store.late_index import BY_CONNECTION, BY_LANE, LateIndex

_INDEX_AND_DIE = """
import os, signal, sys
from pathlib import Path
from wsrm_mq.store.late_index import BY_CONNECTION, BY_LANE
from wsrm_mq.store.store import Store

index = globals()[sys.argv[2]]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def half(tx):
    last, _count = tx.execute(index._next, (3,)).fetchone()
    tx.execute(index._add, (last,))
    die()

def before_commit(tx):
    index.bring_forward(tx, 3)
    die()

def after_commit(tx):
    index.bring_forward(tx, 3)

store = Store(Path(sys.argv[3]))
store.open()
store.call(globals()[sys.argv[1]], committed=die)
"""


@pytest.mark.parametrize(
    ("name", "index", "its", "indexed"),
    [("BY_CONNECTION", BY_CONNECTION, test_connection_index, 7), ("BY_LANE", BY_LANE, test_sequence_index, 8)],
)
def test_a_kill_between_leaves_an_index_that_is_right(
    node: Node, name: str, index: LateIndex, its: ModuleType, indexed: int
) -> None:
    one = node.start()
    test_connection_index.receive(one, "b", "a", None, "b", "a", "a", "b", "c")
    for point, mark in (("half", 0), ("after_commit", 3), ("before_commit", 3), ("half", 3), ("after_commit", 6)):
        command = [sys.executable, "-c", _INDEX_AND_DIE, point, name, str(node.path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == -9, done.stderr
        assert its.watermark(one) == mark
        its.agree(one)
    one.run(index.bring_forward)
    assert len(its.indexed(one)) == indexed
    its.agree(one)
