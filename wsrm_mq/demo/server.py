"""The demo's server, which can be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from wsrm_mq.errors import WSRMError

HOST: Final = "127.0.0.1"


class DemoFailed(WSRMError):
    """The demo could not be run to its end."""


class Server:
    """Serves ``wsrm_mq.demo.service`` from ``directory``: ``store.db`` there is our store, ``service.db`` the
    service's database, ``server.log`` the output of the server."""

    def __init__(self, directory: Path, threads: int) -> None:
        self.store = directory / "store.db"
        self.service_db = directory / "service.db"
        self.log = directory / "server.log"
        self.port = _free_port()
        self.starts = 0
        # Options come by the environment alone, so that the user's own stay out.
        own = {name: value for name, value in os.environ.items() if not name.startswith("WSRM_MQ_")}
        self._environ = {
            **own,
            "ORDERS_DB": str(self.service_db),
            "WSRM_MQ_APP": "wsrm_mq.demo.service:application",
            "WSRM_MQ_STORE": str(self.store),
            "WSRM_MQ_HOST": HOST,
            "WSRM_MQ_PORT": str(self.port),
            "WSRM_MQ_THREADS": str(threads),
            "WSRM_MQ_ONE_WAY": "auto",
            "WSRM_MQ_LOG_LEVEL": "warning",
        }
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start it, without waiting until it listens."""
        self.starts += 1
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "wsrm_mq", "serve"],
                cwd=self._directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def check(self) -> None:
        """Raises ``DemoFailed`` if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise DemoFailed(f"The server ended with status {self._process.returncode}: {self._last_words()}")

    def is_listening(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def wait(self, seconds: float) -> None:
        """Wait until it listens. Raises ``DemoFailed`` if it does not."""
        end = time.monotonic() + seconds
        while not self.is_listening():
            self.check()
            if time.monotonic() > end:
                raise DemoFailed(f"The server did not listen within {seconds:.0f} s. {self._last_words()}")
            time.sleep(0.02)

    def freeze(self) -> None:
        """Let it stand still; ``thaw`` or ``kill`` it soon."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process: none of its code runs any more."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask the process to end."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "It said nothing.")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])
