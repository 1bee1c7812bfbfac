"""Producers and consumers are killed at random, and begin anew: each message that was put is taken, in its order."""

from __future__ import annotations

import random
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from tests.node.test_subscription import until
from wsrm_mq.node import Node

PUT = """
import random
log, number = open({log!r}, "a"), 0
while True:
    if random.random() < 0.3:
        bodies, group = [f"{{os.getpid()}} {{number}}"], str(os.getpid())
    else:
        bodies, group = [f"{{os.getpid()}} {{number + at}} loose" for at in range(random.choice([1, 5, 20]))], None
    number += len(bodies)
    node.put_many("orders", bodies, group=group)
    log.write("".join(f"{{body}}\\n" for body in bodies))
    log.flush()
    time.sleep(random.random() / 50)
"""
TAKE = """
log = open({log!r}, "a")
for message in node.subscribe("orders", max_backlog={backlog}):
    log.write(f"{{int(message.redelivered)}} {{message.body.decode()}}\\n")
    log.flush()
"""


def test_whoever_is_killed_each_message_is_taken_and_a_repetition_is_marked(
    node: Node, program: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    node.declare("orders", max_failures=None, retry=[0])
    put, taken = tmp_path / "put", tmp_path / "taken"
    lines = [PUT.format(log=str(put))] * 2 + [TAKE.format(log=str(taken), backlog=one) for one in (1, 10, 30)]
    running = [program(one) for one in lines]
    until(taken.exists, seconds=60)
    chosen = random.Random(7)
    for _ in range(6):
        time.sleep(chosen.uniform(0.8, 1.6))
        which = chosen.randrange(len(lines))
        running[which].kill()
        running[which].wait()
        running[which] = program(lines[which])
    for one in running[:2]:
        one.kill()
        one.wait()
    until(lambda: node.stats("orders").messages == 0, seconds=60)
    for one in running[2:]:
        one.kill()
        one.wait()
    times: dict[str, list[bool]] = defaultdict(list)
    last: dict[str, int] = {}
    for line in taken.read_text().splitlines():
        marked, _, body = line.partition(" ")
        times[body].append(marked == "1")
        who, number, *loose = body.split()
        if not loose and marked == "0":
            assert int(number) > last.get(who, -1), "a group is taken in its order"
            last[who] = int(number)
    assert set(put.read_text().splitlines()) <= set(times), "what was put is taken"
    assert len(times) > 100
    assert not [body for body, marks in times.items() if marks.count(False) > 1], "a repetition is marked"
    assert not node.dead("orders").peek()
