"""Two ways to show the demo: live on a terminal, line by line anywhere else."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from wsrm_mq.demo.run import Result, Sight
from wsrm_mq.testing import Traffic

_STATES: Final = {
    "done": ("█", "green"),
    "accepted": ("▓", "blue"),
    "held": ("▒", "yellow"),
    "missing": ("·", "dim"),
}
"""A message is one character; the words are the legend."""


class PlainScreen:
    """Prints each message as a line."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, sight: Sight, traffic: Traffic, acknowledged: int) -> None:
        pass


class LiveScreen(PlainScreen):
    """Every message as a character, figures below it, and the last things that were said."""

    def __init__(self, console: Console, messages: int) -> None:
        super().__init__(console)
        self._messages = messages
        self._said: deque[str] = deque(maxlen=10)
        self._sight, self._traffic, self._acknowledged = Sight(), Traffic(), 0
        self._live = Live(console=console, refresh_per_second=10, get_renderable=self._picture)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)

    def say(self, text: str) -> None:
        self._said.append(text)

    def show(self, sight: Sight, traffic: Traffic, acknowledged: int) -> None:
        self._sight, self._traffic, self._acknowledged = sight, traffic, acknowledged

    def _picture(self) -> Group:
        sight, traffic = self._sight, self._traffic
        done = set(sight.effects)
        strip = Text()
        for number in range(1, self._messages + 1):
            strip.append(*_STATES[_state(number, sight, done)])
        legend = Text("  ").join(Text(f"{mark} {word}", style) for word, (mark, style) in _STATES.items())
        figures = Table.grid(padding=(0, 3))
        figures.add_row(
            f"sent {traffic.transmissions}",
            f"lost requests {traffic.requests_lost}",
            f"lost answers {traffic.answers_lost}",
            f"repeated {traffic.duplicates}",
        )
        figures.add_row(
            f"acknowledged {self._acknowledged}",
            f"held {sight.held}",
            f"done {len(done)}",
            f"delivered again {sight.redelivered}",
        )
        return Group(Panel(Group(strip, legend), title="messages"), figures, Text("\n".join(self._said)))


def _state(number: int, sight: Sight, done: set[int]) -> str:
    if number in done:
        return "done"
    if not sight.is_accepted(number):
        return "missing"
    return "accepted" if number < sight.limit else "held"


def summary(result: Result) -> Table:
    """The figures at the end."""
    table = Table.grid(padding=(0, 2))
    for name, value in (
        ("messages sent", f"{result.sent}, in {result.transmissions} transmissions"),
        ("lost on the line", f"{result.requests_lost} requests, {result.answers_lost} answers"),
        ("repeated by the line", result.duplicates_sent),
        ("acknowledged", result.acknowledged),
        ("done by the service", result.delivered),
        ("in order", "yes" if result.in_order else "NO"),
        ("done twice", result.duplicates_delivered),
        ("lost", result.lost),
        ("delivered again after kill -9", f"{result.redelivered}, each recognised by the inbox"),
        ("held at most", result.held_max),
        ("seconds", result.seconds),
    ):
        table.add_row(name, str(value))
    return table
