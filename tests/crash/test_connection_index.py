"""kill -9 while the index of connections is brought forward."""

from __future__ import annotations

import subprocess
import sys

from tests.queue.build import Node
from tests.queue.test_connection_index import agree, indexed, receive, watermark
from wsrm_mq.queue.connection_index import bring_forward

_INDEX_AND_DIE = """
import os, signal, sys
from pathlib import Path
from wsrm_mq.queue import connection_index
from wsrm_mq.store.store import Store

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def half(tx):
    last, _count = tx.execute(connection_index._NEXT, (3,)).fetchone()
    tx.execute(connection_index._ADD, (last,))
    die()

def before_commit(tx):
    connection_index.bring_forward(tx, 3)
    die()

def after_commit(tx):
    connection_index.bring_forward(tx, 3)

store = Store(Path(sys.argv[2]))
store.open()
store.call(globals()[sys.argv[1]], committed=die)
"""


def test_a_kill_between_leaves_an_index_that_is_right(node: Node) -> None:
    one = node.start()
    receive(one, "b", "a", None, "b", "a", "a", "b", "c")
    for point, mark in (("half", 0), ("after_commit", 3), ("before_commit", 3), ("half", 3), ("after_commit", 6)):
        command = [sys.executable, "-c", _INDEX_AND_DIE, point, str(node.path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == -9, done.stderr
        assert watermark(one) == mark
        agree(one)
    one.run(bring_forward)
    assert len(indexed(one)) == 7
    agree(one)
