"""What goes wrong around a service: deaths, restarts, reloads, a clock that is set, an operator at work."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from tests.support.fleet import Fleet
from tests.support.programs import ROOT

HOUR: Final = 3600.0
QUIET_SECONDS: Final = 150.0

_LIVE: Final = 'from entry e join lane s on s.id = e.lane where e.outcome is null and e.number < s."limit"'
UNSETTLED: Final = f"select count(*) {_LIVE}"
BLOCKED: Final = (
    "select e.failures, (select count(*) from ledger l where l.position = e.id and l.event = 'holder_died') "
    "from entry e join lane s on s.blocked = e.id where s.identifier = ? and e.number = ?"
)
LEFT: Final = f"select s.identifier, e.number, s.owner, s.blocked, s.retry_at, s.ended {_LIVE} limit 5"


class Faults:
    """Acts on a fleet. Its choices depend on ``seed`` alone.

    ``is_made_to_fail`` says of a sequence and a number whether a client has told the service to fail it oftener than
    the ladder has ``steps``: no other may be given up."""

    def __init__(self, fleet: Fleet, seed: str, is_made_to_fail: Callable[[str, int], bool], steps: int) -> None:
        self.fleet = fleet
        self._is_made_to_fail = is_made_to_fail
        self._steps = steps
        self._chance = random.Random(seed)
        self.kills = 0
        """Processes that were ended with SIGKILL."""
        self.done: dict[str, int] = defaultdict(int)
        self.given_up: dict[str, set[int]] = defaultdict(set)
        """Sequence → the numbers that the command line said it skipped."""
        self.trouble: list[str] = []

    def something(self) -> None:
        """One of the faults."""
        faults: list[tuple[Callable[[], None], int]] = [
            (self.kill_a_worker, 10),
            (self.end_a_worker, 3),
            (self.reload, 1),
            (self.restart, 1),
            (self.kill_the_master, 1),
            (self.set_the_clock, 2),
            (self.repair, 8),
            (self.look, 1),
        ]
        [fault] = self._chance.choices([fault for fault, _ in faults], [weight for _, weight in faults])
        self.done[fault.__name__] += 1
        fault()

    def kill_any(self) -> None:
        """SIGKILL for some process of the server's, now and then the first."""
        if self._chance.random() < 0.05:
            self.kill_the_master()
        else:
            self.kill_a_worker()

    def kill_a_worker(self) -> None:
        if workers := self.fleet.workers:
            self.kills += self.fleet.kill_worker(self._chance.choice(workers))

    def end_a_worker(self) -> None:
        """SIGTERM: it drains, and is replaced."""
        if workers := self.fleet.workers:
            self.fleet.tell(signal.SIGTERM, self._chance.choice(workers))

    def reload(self) -> None:
        """A rolling restart: new workers begin, the old ones drain."""
        self.fleet.tell(signal.SIGHUP)

    def restart(self) -> None:
        self.fleet.stop()
        self.fleet.start()

    def kill_the_master(self) -> None:
        """Its workers notice, drain and end, while those of the next one serve already."""
        self.fleet.orphan()
        self.kills += 1
        self.fleet.start()

    def set_the_clock(self) -> None:
        self.fleet.set_clock(self._chance.choice([-HOUR, 0.0, HOUR]))

    def look(self) -> None:
        """An operator reads while everything runs."""
        self._command("store", "verify")

    def repair(self) -> None:
        """An operator gets every blocked sequence going: tries it again, or gives up a message that was to fail."""
        listed = self._command("sequence", "list", "--verdict", "blocked")
        for sequence in (listed or {}).get("sequences", []):
            identifier, number = sequence["identifier"], sequence["cursor"]
            was_to_fail = self._is_made_to_fail(identifier, number)
            self._explain(identifier, number, was_to_fail)
            why = ("--yes", "--actor=soak", "--reason=soak")
            if self._chance.random() < 0.3 or not was_to_fail:
                self._command("sequence", "resume", identifier, *why, refusable=True)
            elif self._command("sequence", "skip", identifier, str(number), *why, refusable=True):
                self.given_up[identifier].add(number)

    def _explain(self, identifier: str, number: int, was_to_fail: bool) -> None:
        """A message blocks its sequence after the last step of the ladder, and because it was to fail, or its holders
        were killed time and again: anything else is trouble."""
        for failures, deaths in self.fleet.stored.rows(BLOCKED, identifier, number):
            if failures <= self._steps:
                self.trouble.append(f"{identifier} {number} is blocked after {failures} of {self._steps + 1} tries")
            if not was_to_fail and deaths < 3:
                self.trouble.append(f"{identifier} {number} is blocked, and nothing made it fail")

    def _command(self, *words: str, refusable: bool = False) -> dict[str, Any] | None:
        """What a command says, as JSON; ``None`` where it was refused."""
        command = [sys.executable, "-m", "wsrm_mq", *words, "--json", "--store", str(self.fleet.store)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode and not refusable:
            self.trouble.append(f"{' '.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr}")
        if done.returncode:
            return None
        self.done["_".join(words[:2])] += 1
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def until_quiet(self, clients_ended: Callable[[], bool]) -> None:
        """Repair what is blocked, until no client sends any more and nothing is left that could be delivered."""
        end = time.monotonic() + QUIET_SECONDS
        while not (clients_ended() and self._unsettled() == 0):
            if time.monotonic() > end:
                self.trouble.append(f"not quiet after {QUIET_SECONDS:.0f} s: {self.fleet.stored.rows(LEFT)}")
                return
            self.repair_blocked()
            time.sleep(0.2)

    def repair_blocked(self) -> None:
        if self.fleet.stored.rows("select 1 from lane where blocked is not null limit 1"):
            self.repair()

    def _unsettled(self) -> int:
        [(count,)] = self.fleet.stored.rows(UNSETTLED)
        return int(count)
