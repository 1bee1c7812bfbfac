"""The orders service (``tests/servers/orders.py``) as a process that tests start, kill and look into."""

from __future__ import annotations

import copy
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.support.programs import ended, started
from wsrm_mq.store.sqlite.files import beside
from wsrm_mq.store.sqlite.presence import InstanceFiles

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
TICK: Final = os.sysconf("SC_CLK_TCK")
front = "waitress"
"""Behind which server the orders service runs; ``pytest --front`` chooses another."""
SETTLED: Final = 0.3
"""What must not come, though nothing keeps it, has not come after as many seconds."""
T = TypeVar("T")


def within(seconds: float, look: Callable[[], T], wanted: Callable[[T], bool]) -> T:
    """Look until what is seen is ``wanted``, at most for ``seconds``; the last sight either way."""
    end = time.monotonic() + seconds
    while not wanted(seen := look()) and time.monotonic() < end:
        time.sleep(0.01)
    return seen


class OrdersServer:
    """One server with its store and the service's own database, both kept over restarts."""

    def __init__(self, directory: Path, behind: str | None = None, **options: Any) -> None:
        self.store = directory / "store.db"
        self.service_db = directory / "service.db"
        self.log = directory / "server.log"
        self.clock = directory / "clock"
        self.front = behind or front
        self.options: Mapping[str, Any] = options
        self.port = 0
        self.path = "/orders"
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def at(self, path: str) -> OrdersServer:
        """The same running server as seen at one path: what others send elsewhere is not in its ``mark``."""
        here = copy.copy(self)
        here.path = path
        return here

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, on the port it had before if it had one."""
        line = self._launch()
        assert line, f"the server did not start:\n{self.log.read_text()[-4000:]}"
        self.port = json.loads(line)["port"]

    def refusal(self) -> str:
        """Start it where it cannot: what it says as it ends."""
        before = self.log.stat().st_size if self.log.exists() else 0
        line = self._launch()
        if line:
            self.kill()
        assert not line, "the server started"
        assert self._process is not None
        self.died()
        return self.log.read_text()[before:]

    def _launch(self) -> str:
        threads = self.options.get("threads", 8)
        options = {name: value for name, value in self.options.items() if name != "threads"}
        self._process = started(
            "tests.servers.orders",
            [
                *("--store", str(self.store), "--service-db", str(self.service_db), "--port", str(self.port)),
                *("--front", self.front, "--threads", str(threads), "--clock", str(self.clock)),
                *("--options", json.dumps(options)),
            ],
            self.log,
        )
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def stop(self) -> None:
        """End it as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would: no code of it runs any more. It has to be alive, or this would be no kill."""
        if self._process is None:
            return
        before = self._process.poll()
        self._end(signal.SIGKILL)
        assert before is None, f"it had ended already, with {before}:\n{self.log.read_text()[-4000:]}"

    def died(self) -> None:
        """Wait for it to end by itself."""
        assert self._process is not None
        ended(self._process, 15)
        self._process = None

    def open_gate(self, name: str) -> None:
        """Let the operations go on whose text is ``gate=name``."""
        (self.service_db.parent / name).touch()

    def look(self) -> None:
        """What must not come has not come after this: each process has looked at what the store has for it to do."""
        self._wake()
        time.sleep(SETTLED)

    def set_clock(self, seconds: float) -> None:
        """From now on its clock is wrong by that."""
        fresh = self.clock.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.rename(self.clock)
        self._wake()

    def let_pass(self, seconds: float) -> None:
        """So much time has passed for it."""
        self.set_clock(seconds + (float(self.clock.read_text()) if self.clock.exists() else 0))

    def _wake(self) -> None:
        InstanceFiles(self.store).wake([socket.stem for socket in beside(self.store).glob("*.sock")])

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                ended(self._process, 15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                ended(self._process, 15)
                raise
            finally:
                self._process = None

    # ---- what the service saw

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.service_db, timeout=10) as connection:
            return connection.execute(query, values).fetchall()

    def mark(self) -> Seen:
        """What the service sees from now on, of the path chosen by ``at`` if one was."""
        return Seen(self)

    # ---- what the process costs

    def memory(self) -> int:
        """Bytes resident."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE

    def cpu(self) -> float:
        """Seconds of processor time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def sockets(self) -> int:
        """File descriptors that are sockets."""
        count = 0
        for link in Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                count += os.readlink(link).startswith("socket:")
            except OSError:
                pass
        return count


class Seen:
    """The service's effects since a moment."""

    def __init__(self, server: OrdersServer) -> None:
        self._server = server
        self._path = server.path if server.path != "/orders" else None
        self._since = {table: self._last(table) for table in ("effects", "calls")}

    def _last(self, table: str) -> int:
        [(last,)] = self._server.rows(f"select ifnull(max(rowid), 0) from {table}")
        return int(last)

    def _column(self, table: str, column: str) -> list[Any]:
        query = f"select {column} from {table} where rowid > ? and ifnull(path = ?, true) order by rowid"
        return [value for (value,) in self._server.rows(query, self._since[table], self._path)]

    def numbers(self) -> list[int]:
        """The orders' numbers in the order in which their operations ended."""
        return self._column("effects", "n")

    def texts(self) -> list[str]:
        return self._column("effects", "text")

    def calls(self) -> list[int]:
        """The orders' numbers in the order in which operations began."""
        return self._column("calls", "n")

    def times(self) -> list[float]:
        return self._column("effects", "at")

    def soon(self, numbers: list[int], seconds: float = 20) -> list[int]:
        """The numbers, as soon as they are as many as ``numbers``, or at the latest after ``seconds``."""
        return within(seconds, self.numbers, lambda seen: len(seen) >= len(numbers))

    def later(self) -> list[int]:
        """The numbers after a look: for what must not come."""
        self._server.look()
        return self.numbers()
