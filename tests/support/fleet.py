"""Servers of several processes, as people deploy them: gunicorn, uWSGI, and nginx in front of one.

Each serves the witness's service (``tests/servers/workers.py``). A port is kept over restarts: a socket that is bound
and does not listen holds it, and gets no connection.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from tests.crash.witness import Testimony
from tests.support.orders_server import within
from tests.support.programs import ROOT
from tests.support.stored import Stored

NGINX: Final = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
APPLICATION: Final = "tests.servers.workers:application"
START_SECONDS: Final = 60.0

Command = Callable[[int], list[str]]


def gunicorn(workers: int = 4, threads: int = 4, *, preload: bool = False) -> Command:
    """gunicorn with threads and keep-alive connections."""
    return lambda port: [
        *(sys.executable, "-m", "gunicorn", f"--bind=127.0.0.1:{port}", "--reuse-port", "--worker-class=gthread"),
        *(f"--workers={workers}", f"--threads={threads}", "--keep-alive=60", "--graceful-timeout=20"),
        *(["--preload"] if preload else []),
        APPLICATION,
    ]


def uwsgi(processes: int = 2, threads: int = 4, *, lazy_apps: bool = False) -> Command:
    """uWSGI with its own fork. SIGTERM has to be made graceful: as it comes, it cuts off what runs."""
    program = str(Path(sys.executable).with_name("uwsgi"))
    return lambda port: [
        *(program, f"--http11-socket=127.0.0.1:{port}", "--reuse-port", "--master", "--need-app"),
        "--hook-master-start=unix_signal:15 gracefully_kill_them_all",
        *(f"--processes={processes}", f"--threads={threads}", "--enable-threads", "--disable-logging"),
        *(["--lazy-apps"] if lazy_apps else []),
        *(f"--virtualenv={sys.prefix}", f"--pythonpath={ROOT}", f"--module={APPLICATION}"),
    ]


def served() -> Command:
    """``wsrm-mq serve``, one process, begun again where it ends."""
    return lambda port: [
        *(sys.executable, "-m", "tests.servers.supervisor"),
        *(sys.executable, "-m", "wsrm_mq", "serve", "tests.servers.served:application"),
        *("--host=127.0.0.1", f"--port={port}"),
    ]


class _Process:
    """A program that listens on a port of its own and has children."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._place = socket.socket()
        for shared in (socket.SO_REUSEPORT, socket.SO_REUSEADDR):  # a server sets the one or the other
            self._place.setsockopt(socket.SOL_SOCKET, shared, 1)
        self._place.bind(("127.0.0.1", 0))
        self.port: int = self._place.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._orphaned: list[int] = []
        """Groups whose first process was killed."""

    def _launch(self, command: list[str], environment: dict[str, str]) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=os.environ | environment, stdout=log, stderr=log, start_new_session=True
            )
        assert within(START_SECONDS, self._listens, bool), f"it did not start:\n{self.log.read_text()[-4000:]}"

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def workers(self) -> list[int]:
        """The processes that the first one has."""
        try:
            return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        except FileNotFoundError:
            return []

    def tell(self, what: signal.Signals, pid: int | None = None) -> None:
        """Send a signal to one of its processes, by default the first."""
        with suppress(ProcessLookupError):
            os.kill(pid or self.pid, what)

    def orphan(self) -> None:
        """Kill the first process alone: the others go on for a moment."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._orphaned.append(self._process.pid)
        self._process = None

    def wait(self, seconds: float = 60) -> None:
        """Wait until all of it has ended."""
        assert self._process is not None
        self._process.wait(seconds)
        assert within(seconds, lambda: group_lives(self.pid), lambda lives: not lives) is False, "workers go on"
        self._process = None

    def stop(self) -> None:
        """End it as an operator would; what does not end in good time is killed."""
        if self._process is None:
            return
        self.tell(signal.SIGTERM)
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """End all of it as a power cut would."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()
        for group in self._orphaned:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()
        self._place.close()


def group_lives(group: int) -> bool:
    """Whether a process of the group goes on. One that has ended may wait for its parent to take notice of that."""
    for process in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has gone meanwhile
            state, _parent, its_group = process.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


class Fleet(_Process, Testimony):
    """The workers of one server on one store, over as many lives as it takes."""

    def __init__(self, directory: Path, command: Command, *, work: float = 0.0, **options: Any) -> None:
        _Process.__init__(self, directory / "server.log")
        Testimony.__init__(self, directory / "service.db")
        self.store = directory / "store.db"
        self.stored = Stored(self.store)
        self.clock = directory / "clock"
        self._command = command
        self._given = {
            "store": str(self.store),
            "service_db": str(self.service_db),
            "clock": str(self.clock),
            "work": work,
            "options": options,
        }

    def start(self, instances: int = 0) -> None:
        """Start it, and wait until it listens and so many instances use the store. What it keeps at home (gunicorn: a
        control socket) is among its own files."""
        self._launch(self._command(self.port), {"WITNESS": json.dumps(self._given), "HOME": str(self.log.parent)})
        self.wait_for_instances(instances)

    def wait_for_instances(self, count: int) -> None:
        assert within(START_SECONDS, lambda: len(self.instances()), lambda seen: seen >= count) >= count

    def instances(self) -> list[int]:
        """The processes that use the store, as far as it knows."""
        try:
            return [pid for (pid,) in self.stored.rows("select pid from instance where ended_at is null")]
        except sqlite3.OperationalError:  # it is not made yet
            return []

    def is_complete(self, workers: int) -> bool:
        """Whether so many workers have begun, no longer counting the dead."""
        alive = self.workers
        return len(alive) == workers and set(alive) <= set(self.instances())

    def kill_worker(self, pid: int) -> bool:
        """Kill a worker. Answers whether it was alive: what had ended already was not killed."""
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        self.tell(signal.SIGKILL, pid)
        return state not in "ZX"

    def set_clock(self, seconds: float) -> None:
        """From now on every worker's clock is wrong by that."""
        fresh = self.clock.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.rename(self.clock)


class Nginx(_Process):
    """A proxy that keeps connections to both sides and mixes the requests of its clients."""

    def __init__(self, directory: Path, upstream: int) -> None:
        super().__init__(directory / "nginx.log")
        self._directory = directory
        self._upstream = upstream

    def start(self) -> None:
        assert NGINX is not None
        here = self._directory
        temporary = "".join(
            f"{name}_temp_path {here}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        configuration = here / "nginx.conf"
        configuration.write_text(
            f"""
            {"user root;" if os.geteuid() == 0 else ""}
            daemon off; worker_processes 1; pid {here}/nginx.pid; error_log {self.log};
            events {{ worker_connections 256; }}
            http {{
                access_log off; {temporary}
                upstream workers {{ server 127.0.0.1:{self._upstream}; keepalive 16; }}
                server {{
                    listen 127.0.0.1:{self.port} reuseport;
                    location / {{
                        proxy_pass http://workers; proxy_http_version 1.1; proxy_set_header Connection "";
                    }}
                }}
            }}
            """
        )
        self._launch([NGINX, "-p", str(here), "-c", str(configuration)], {})


def until_dead(pid: int, seconds: float = 10) -> bool:
    """Whether a process has ended within ``seconds``."""
    end = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
