"""Clients of Java's stacks under the tests' control: Apache CXF and Metro, each in a JVM that obeys commands.

``build`` makes the programs in ``java/`` with Maven, once for each state of the sources. ``Loop.java`` there lists the
commands.
"""

from __future__ import annotations

import fcntl
import hashlib
import queue
import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import Final, NamedTuple

SOURCES: Final = Path(__file__).with_name("java")
CLASSES: Final = {"cxf": "peers.CxfClient", "metro": "peers.MetroClient"}
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""For a JVM that lives for seconds."""
SECONDS: Final = 150.0
"""How long a command may take on a busy machine."""


def missing() -> str | None:
    """Why there can be no such client here, or None if there can."""
    absent = [tool for tool in ("mvn", "javac") if shutil.which(tool) is None]
    return f"no {', '.join(absent)}: apt-get install maven openjdk-17-jdk-headless" if absent else None


def build(root: Path) -> Path:
    """The directory of the programs, below ``root``; they are made unless these very sources were before."""
    parts = sorted(part for part in SOURCES.rglob("*") if part.is_file())
    state = hashlib.sha256(b"\0".join(part.read_bytes() for part in parts)).hexdigest()[:16]
    target = root.resolve() / state
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # each of pytest's workers comes here
        if not target.exists():
            scratch = target.with_name(f"{state}.new")
            shutil.rmtree(scratch, ignore_errors=True)
            command = ["mvn", "--quiet", "--batch-mode", "-f", str(SOURCES), f"-Dbuild={scratch}", "package"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            scratch.rename(target)
    return target


class Call(NamedTuple):
    """One call, as the client told it."""

    number: int
    result: str
    milliseconds: int


class Failed(Exception):
    """The client could not do as it was told, and says why."""


class JavaClient:
    """One JVM; ``log`` gets what it says on standard error."""

    def __init__(self, built: Path, name: str, log: Path, *flags: str) -> None:
        home = built / name
        path = f"{home / f'{name}-1.jar'}:{home}/lib/*"
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                ["java", *QUICK, *flags, "-cp", path, CLASSES[name]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=log.parent,
                text=True,
            )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("failed: the process has ended")

    def open(self, **options: str) -> None:
        """Make a port of the orders service; the client's class lists the options."""
        self.ask("open", *_told(options))

    def open_page(self, **options: str) -> None:
        """The same of the service that the pages on deployment have."""
        self.ask("page", *_told(options))

    def put(self, first: int, last: int) -> list[Call]:
        """One-way calls, one after the other."""
        return _calls(self.ask("put", first, last))

    def echo(self, first: int, last: int, threads: int = 1) -> list[Call]:
        """Two-way calls, ``threads`` at a time, by number."""
        return sorted(_calls(self.ask("echo", first, last, threads)))

    def calls(self) -> list[Call]:
        """By number, those that were told to be made, as soon as they are over."""
        return sorted(_calls(self.told()))

    def unacknowledged(self) -> int:
        [count] = self.ask("unacknowledged")
        return int(count)

    def close(self) -> None:
        self.ask("close")

    def ask(self, *words: object) -> list[str]:
        self.tell(*words)
        return self.told()

    def told(self) -> list[str]:
        """What came of the earliest command that was given and not asked about."""
        said: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=SECONDS)
            except queue.Empty:
                raise Failed(f"{self._command} takes longer than {SECONDS} s; it said {said}\n{self.log}") from None
            if line == "done":
                return said
            if line.startswith("failed"):
                raise Failed(f"{line} after {said}\n{self.log}")
            said.append(line)

    def tell(self, *words: object) -> None:
        """Give a command, and do not wait for what comes of it."""
        self._command = words
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """As a power cut does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=20)
        self._reader.join()


def _told(options: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in options.items()]


def _calls(lines: list[str]) -> list[Call]:
    told = (line.split("\t") for line in lines)
    return [Call(int(number), result, int(milliseconds)) for number, result, milliseconds in told]
