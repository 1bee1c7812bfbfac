"""One server under one load: what it did in a second and what that cost."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from bench import gsoap
from bench.load import GeneratorTooBusy, Load, Plan, in_order, load
from bench.measure import Spent, fsync_us
from bench.messages import UNKNOWN
from bench.process import THIS_TREE, ServerProcess, settled

__all__ = [
    "Amount",
    "Bare",
    "Reliable",
    "Side",
    "bare",
    "gsoap_side",
    "reliable",
    "remove_store",
    "sent",
    "unless_too_busy",
]

R = TypeVar("R")

_WARM_UP: Final = 0.2
"""Of the seconds, before the first measurement of a server."""
_GSOAP_WARM_UP: Final = 10
"""Messages on each connection: it is C."""
_ATTEMPTS: Final = 6
_LESS: Final = 0.8
_FASTEST: Final = 40_000
"""Messages a second that no server answers on this bench: so many are planned."""


class Amount(NamedTuple):
    """How much is sent: for so many seconds, and not more than so many messages."""

    seconds: float
    messages: int = 1_000_000_000

    def planned(self, connections: int) -> int:
        """Messages on each connection."""
        return max(1, min(self.messages, round(_FASTEST * self.seconds)) // connections)


class Side(NamedTuple):
    load: Load
    cpu_us: float
    """Of the server's processes, per message, until the last was settled."""
    most_per_second: int = 0
    """What the rate was held to, where the generator would have needed too much; 0: nothing."""
    fsync_us: float = 0.0
    commits: float = 0.0
    """Per message."""
    seconds: float = 0.0
    """From the first request to the end of the application's last call."""
    others: float = 0.0
    """Meanwhile, of the machine's time: what others had; see ``Spent``."""

    @property
    def delivered_rate(self) -> float:
        return self.load.messages / self.seconds


def unless_too_busy(measure: Callable[[int], R]) -> R:
    """``measure(0)``; where that asks too much of the generator, again, held to a rate at which it should not, and each
    time to a lower one: on a machine that has something else to do its share varies. Raises ``GeneratorTooBusy`` where
    no try was good."""
    most = 0
    for _ in range(_ATTEMPTS - 1):
        try:
            return measure(most)
        except GeneratorTooBusy as busy:
            most = max(1, min(busy.rate, round(_LESS * most)) if most else busy.rate)
    return measure(most)


class Reliable:
    """A server with the middleware."""

    def __init__(self, server: ServerProcess, store: Path) -> None:
        self.server = server
        self.store = store
        self._taken = 0

    def warm_up(self, amount: Amount) -> None:
        self.side(8, amount._replace(seconds=amount.seconds * _WARM_UP))

    def side(self, connections: int, amount: Amount, *, two_way: bool = False) -> Side:
        """In order, a new sequence on each connection."""

        def measure(most: int) -> Side:
            identifiers = [self.server.create_sequence() for _ in range(connections)]
            plan = in_order(identifiers, amount.planned(connections), two_way=two_way)
            return self.sent(plan, amount, most=most, acknowledged=True)

        return unless_too_busy(measure)

    def sent(
        self,
        plan: Plan,
        amount: Amount,
        *,
        most: int = 0,
        acknowledged: bool = False,
        refusals: int = 0,
        duplicates: int = 0,
    ) -> Side:
        """Whatever is planned, ``refusals`` and ``duplicates`` of it; ``RuntimeError`` unless the rest is delivered
        once and in order."""
        settled(self.store)
        before, fsync = self.server.state(), fsync_us(self.store.parent)
        spent = Spent(self.server.pids)
        try:
            done = load(
                self.server.port,
                plan,
                seconds=amount.seconds,
                most_per_second=most,
                acknowledged=acknowledged,
                refusals=refusals,
            )
        except GeneratorTooBusy as busy:
            self._taken += busy.done.messages - refusals - duplicates
            raise
        settled(self.store)
        cpu, others = spent.cpu, spent.others
        after = self.server.state()
        self._taken += done.messages - refusals - duplicates
        if after["out_of_order"] or after["calls"] != self._taken:
            raise RuntimeError(f"not delivered once and in order: {self._taken} acknowledged, {after}")
        return Side(
            done,
            cpu / done.messages * 1e6,
            most,
            fsync_us=(fsync + fsync_us(self.store.parent)) / 2,
            commits=(after["commits"] - before["commits"]) / done.messages,
            seconds=(after["last_call"] - done.begun) / 1e9,
            others=others,
        )


@contextmanager
def reliable(front: str, store: Path, *options: str, answer: bytes = b"", tree: Path = THIS_TREE) -> Iterator[Reliable]:
    """A fresh server of the checkout at ``tree``; ``store`` is deleted afterwards."""
    with _answering(answer) as file:
        try:
            with ServerProcess("--front", front, "--store", str(store), *file, *options, tree=tree) as server:
                yield Reliable(server, store)
        finally:
            remove_store(store)


def remove_store(store: Path) -> None:
    """With all that stands beside it."""
    for path in store.parent.glob(f"{store.name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


class Bare:
    """A server without the middleware."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server

    def warm_up(self, amount: Amount) -> None:
        self.side(8, amount._replace(seconds=amount.seconds * _WARM_UP))

    def side(self, connections: int, amount: Amount, *, two_way: bool = False) -> Side:
        plan = in_order(
            [UNKNOWN.format(index) for index in range(connections)], amount.planned(connections), two_way=two_way
        )
        return unless_too_busy(lambda most: sent(self.server.port, self.server.pids, plan, amount, most))


@contextmanager
def bare(front: str, answer: bytes) -> Iterator[Bare]:
    with _answering(answer) as file, ServerProcess("--front", front, *file) as server:
        yield Bare(server)


def gsoap_side(mode: gsoap.Mode, connections: int, amount: Amount, *, two_way: bool = False) -> Side:
    """A fresh process, in order, a sequence on each connection."""

    def measure(most: int) -> Side:
        with gsoap.running(mode) as server:
            identifiers = [server.create_sequence() for _ in range(connections)]
            load(server.port, in_order(identifiers, _GSOAP_WARM_UP, two_way=two_way), most_per_second=most)
            plan = in_order(identifiers, amount.planned(connections), first=_GSOAP_WARM_UP + 1, two_way=two_way)
            return sent(server.port, server.pids, plan, amount, most)

    return unless_too_busy(measure)


def sent(port: int, pids: list[int], plan: Plan, amount: Amount, most: int, *, acknowledged: bool = False) -> Side:
    spent = Spent(pids)
    done = load(port, plan, seconds=amount.seconds, most_per_second=most, acknowledged=acknowledged)
    cpu, others = spent.cpu, spent.others
    return Side(done, cpu / done.messages * 1e6, most, seconds=done.seconds, others=others)


@contextmanager
def _answering(answer: bytes) -> Iterator[list[str]]:
    """The options of a server whose application answers that."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(answer)
        file.flush()
        yield ["--answer", file.name] if answer else []
