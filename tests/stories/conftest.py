"""An operator at 3 am, with a shell and a store: a real server got into trouble by a real sender."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.orders import OrderSender
from tests.support.orders_server import OrdersServer, within
from wsrm_mq.cli import program, status

Serve = Callable[..., OrdersServer]


class Operator:
    """Types commands as they are printed. ``typed`` has them all."""

    def __init__(self) -> None:
        self.typed: list[str] = []

    def type(self, line: str) -> str:
        """What a command shows. Questions are answered with yes."""
        self.typed.append(line)
        program_name, *arguments = ["as the story says" if word == "TEXT" else word for word in shlex.split(line)]
        assert program_name == "wsrm-mq"
        of_plan = {
            ("replay", "plan"): False,
            ("replay", "run"): True,
        }  # the reason is the plan's, the question the run's
        if of_plan.get(tuple(arguments[:2]), "--reason" in arguments):
            arguments.append("--yes")
        result = CliRunner().invoke(program, arguments, prog_name="wsrm-mq")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        assert result.exit_code in (0, 1), result.output
        return result.stdout

    def status(self) -> str:
        return self.type("wsrm-mq status")

    def offered(self, shown: str, *words: str) -> str:
        """The first command that was printed and has these words in it."""
        commands = re.findall(r"^ *(?:next|or|fix): +(wsrm-mq .*)$", shown, re.MULTILINE)
        return next(command for command in commands if all(word in command for word in words))

    def follow(self, shown: str, *words: str) -> str:
        """Type that command as it stands."""
        return self.type(self.offered(shown, *words))


NOTHING = "OK        Nothing needs attention."


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Operator:
    for name in [name for name in os.environ if name.startswith("WSRM_MQ_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WSRM_MQ_STORE", str(tmp_path / "store.db"))
    monkeypatch.setattr(status, "SAMPLE_SECONDS", 0.01)
    return Operator()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start the orders service. ``ago``: its clock is behind by so many seconds. Other options are the middleware's."""
    servers: list[OrdersServer] = []

    def begin(*, ago: float = 0, **options: Any) -> OrdersServer:
        server = OrdersServer(tmp_path, **options)
        servers.append(server)
        if ago:
            server.set_clock(-ago)
        server.start()
        return server

    yield begin
    for server in servers:
        if server.is_running:
            server.kill()


def done(server: OrdersServer, *numbers: int) -> bool:
    """Whether the service's own records say that it has done these orders, in this order, and no others."""
    wanted = [(number,) for number in numbers]

    def look() -> list[tuple[Any, ...]]:
        return server.rows("select n from effects order by rowid")

    return within(10, look, lambda rows: len(rows) >= len(wanted)) == wanted


def until_shown(operator: Operator, text: str) -> str:
    """What ``status`` shows when it shows this."""
    shown = within(10, operator.status, lambda seen: text in seen)
    assert text in shown
    operator.typed[:] = ["wsrm-mq status"]
    return shown


def send(server: OrdersServer, *numbers: int, text: str = "") -> OrderSender:
    """A sequence of orders, each acknowledged; ``text`` is that of the last."""
    sender = OrderSender(server)
    for number in numbers:
        sender.send(number, text if number == numbers[-1] else "")
    return sender
