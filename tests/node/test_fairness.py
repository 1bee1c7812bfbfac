"""Consumers in several processes share what is ready, as they do in one."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.node.test_settling import said
from tests.node.test_subscription import until
from wsrm_mq.node import Node

pytestmark = pytest.mark.local("says to programs how long what is left to them waits, which is the local node's")

Program = Callable[[str], subprocess.Popen[str]]
TAKE = """
import threading
from wsrm_mq.node import supply
supply.LEFT_SECONDS = {left}
subscription = node.subscribe("orders", max_backlog={backlog})
print("ready")
threading.Thread(target=lambda: [node.put("orders", int(line)) for line in sys.stdin], daemon=True).start()
while True:
    print(subscription.take().json())
"""


def taking(program: Program, backlog: int, left: float) -> subprocess.Popen[str]:
    one = program(TAKE.format(backlog=backlog, left=left))
    assert said(one) == "ready"
    return one


@pytest.mark.scenario("Q-076")
def test_what_comes_next_goes_to_the_smallest_part_of_a_backlog_in_whatever_process(
    node: Node, program: Program
) -> None:
    node.put_many("orders", range(3))
    busy = taking(program, 4, left=20)
    assert [said(busy) for _ in range(3)] == ["0", "1", "2"]
    idle = taking(program, 10, left=20)
    assert busy.stdin is not None
    for number in range(3, 10):  # put by the busy one, which is the first to look for them
        busy.stdin.write(f"{number}\n")
        assert said(idle) == str(number)
    node.put_many("orders", range(10, 14))
    until(lambda: node.stats("orders").leased == 14)
    assert {said(busy), *(said(idle) for _ in range(3))} == {"10", "11", "12", "13"}


def test_what_is_left_to_a_process_that_does_not_take_it_is_taken_by_another(
    node: Node, path: Path, program: Program
) -> None:
    node.put("orders", 0)
    busy = taking(program, 10, left=0.1)
    assert said(busy) == "0"
    stopped = taking(program, 10, left=0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")  # a process that is stopped within its own transaction would lock the store
        stopped.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)  # a signal acts when its process is scheduled
        db.execute("ROLLBACK")
    node.put("orders", 1)
    assert said(busy) == "1"
    stopped.send_signal(signal.SIGCONT)
