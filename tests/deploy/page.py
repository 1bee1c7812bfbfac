"""A page on deployment, followed as it stands: its files are written, its command is run.

Only the ports are others, so that tests do not meet. ``orders.py`` is the Spyne service that the index shows, and
writes down what it was called with.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.fleet import group_lives
from tests.support.orders_server import within
from tests.support.pages import Shell, Typed, session
from tests.support.programs import free_port
from tests.support.stored import Stored
from wsrm_mq.store.sqlite import schema

HOWTO: Final = Path(__file__).parents[2] / "docs" / "howto"
ORDERS: Final = (HOWTO / "orders.py").read_text()
WITNESS: Final = """

import json
import os


class Witness(WsgiApplication):
    def __call__(self, environ, start_response, *more):
        names = ("wsrm.sequence_id", "wsrm.message_number", "wsrm.connection", "REMOTE_ADDR")
        line = json.dumps({**{name: environ.get(name) for name in names}, "pid": os.getpid()})
        file = os.open("seen", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{line}\\n".encode())
        os.close(file)
        return super().__call__(environ, start_response, *more)


service = Witness(service.app)
"""
NGINX: Final = """
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;  # Python can import that: it is not uWSGI
    scgi_temp_path scgi;
    include {directory}/wsrm.conf;
}}
"""


def _words(command: str) -> list[str]:
    """A command line whose program is that of the tests' environment, where that has it."""
    program, *arguments = shlex.split(command)
    own = Path(sys.executable).parent / program
    return [str(own) if own.exists() else program, *arguments]


class Page:
    """``NAME.md``, its files in ``directory``. ``changes`` are made to what the page says."""

    may_end = False
    """Its server may be gone before it has answered."""

    def __init__(self, name: str, directory: Path, changes: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.port, self._front = free_port(), free_port()
        self.has_proxy = False
        self._followed = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        text = (HOWTO / f"{name}.md").read_text()
        for old, new in (changes or {}).items():
            assert old in text, old
            text = text.replace(old, new)
        text = text.replace(":8000", f":{self.port}").replace("port=8000", f"port={self.port}")
        text = text.replace("8000)", f"{self.port})").replace("--port 8000", f"--port {self.port}")
        text = text.replace(":8080", f":{self._front}").replace(":8443", f":{self._front}")
        if "from orders import" in text and "# orders.py" not in text:
            (directory / "orders.py").write_text(ORDERS + WITNESS)
        schema.ensure(directory / "wsrm.db")  # made once: several workers that make it import much for it
        self._preparations: list[str] = []
        self._command = self._said = ""
        self._end_of_it: list[Typed] = []
        for kind, content in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S):
            named = re.match(r"[#;] ([\w./-]+\.\w+)", content)
            if named is not None:
                file = directory / named[1]
                file.parent.mkdir(exist_ok=True)
                file.write_text(content)
                self.has_proxy |= kind == "nginx"
            elif kind == "sh":
                commands = [line for line in content.strip().splitlines() if not line.startswith(("#", "pip "))]
                *self._preparations, self._command = commands or [self._command]
            elif kind == "console":
                self._end_of_it += session(content)
            elif kind == "text":
                self._said = content
        assert self._command
        if self.has_proxy and shutil.which("nginx") is None:
            pytest.skip("needs nginx (Debian: apt-get install nginx-light)")
        self.store = Stored(directory / "wsrm.db")

    @property
    def url_port(self) -> int:
        """Where a client is to knock."""
        return self._front if self.has_proxy else self.port

    def __enter__(self) -> Page:
        try:
            self.start()
        except BaseException:
            self._clear_away()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        while self._preparations:
            subprocess.run(_words(self._preparations.pop(0)), cwd=self.directory, check=True, timeout=60)
        self._run(_words(self._command), self.port)
        if self.has_proxy:
            (self.directory / "nginx.conf").write_text(NGINX.format(directory=self.directory))
            nginx = ["nginx", "-p", str(self.directory), "-c", str(self.directory / "nginx.conf")]
            self._run(nginx, self._front)

    def _run(self, command: list[str], port: int) -> None:
        with (self.directory / "log").open("a") as log:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": str(self.directory),
                    "PYTHONUNBUFFERED": "1",
                    "PYTHONFAULTHANDLER": "1",
                },
                start_new_session=True,
            )
        self._processes.append(process)
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                if self.may_end and process.poll() is not None:
                    return
                assert process.poll() is None and time.monotonic() < end, f"it does not answer:\n{self.log}"  # noqa: PT018
                time.sleep(0.05)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()[-4_000:]

    def stop(self) -> None:
        """As an operator does."""
        try:
            while self._processes:
                self._end(self._processes[-1])
                self._processes.pop()
        finally:
            self._clear_away()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # Python tells where its threads are
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            raise AssertionError(f"it does not end:\n{self.log}") from None

    def _clear_away(self) -> None:
        """What runs still would outlive a test that breaks off."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=20)
        self._processes.clear()

    def kill(self) -> None:
        """As a power cut does."""
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=20)
            assert not within(10, partial(group_lives, process.pid), lambda lives: not lives), (
                "a worker has the port still"
            )
        self._processes.clear()

    def follow(self) -> None:
        """Send the messages with which the page ends, and see what it says; nothing else was sent before."""
        (self.directory / "send.py").write_text((HOWTO / "send.py").read_text())
        shell = Shell(self.directory)
        try:
            assert self._end_of_it
            for typed in self._end_of_it:
                shell.follow(typed)
        finally:
            shell.close()
        for line in self._said.splitlines():
            self.until_said(line)
        self._followed = len(self._calls())

    def until_said(self, text: str) -> None:
        assert text in within(10, lambda: self.log, lambda log: text in log)

    def wait_for(self, instances: int) -> None:
        """Wait until so many processes use the store."""

        def started() -> int:
            try:
                [(count,)] = self.store.rows("SELECT count(*) FROM instance")
            except sqlite3.OperationalError:  # the first one is making it
                return 0
            return int(count)

        assert within(90, started, lambda count: count == instances) == instances, self.log

    def seen(self) -> list[dict[str, Any]]:
        """What the service was called with since the page was followed, in that order."""
        return self._calls()[self._followed :]

    def _calls(self) -> list[dict[str, Any]]:
        """A line that is still being written is not one yet."""
        try:
            lines = (self.directory / "seen").read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def numbers(self, identifier: str) -> list[int]:
        return [call["wsrm.message_number"] for call in self.seen() if call["wsrm.sequence_id"] == identifier]
