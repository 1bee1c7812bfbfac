"""Our RM Source beside a loop that writes the same rows and posts the same bytes, over a bad network, after an outage,
and beside a hop between two nodes.

    python -m bench.source [--quick] [--rounds 5] [--only PART …] [--directory DIR]

Prints a table and what had to be reached; a full run also writes it to bench/results-source.md and .json. Exit status
1: a bound was missed; 2: the run is void, others had too much of the machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from bench.figures import Bound, Figure, as_json, as_markdown, status
from bench.measure import Spent, fsync_us, resident_bytes
from bench.process import THIS_TREE
from bench.report import machine
from bench.source_hop import hop, source
from wsrm_mq.source import RMSource
from wsrm_mq.store.sqlite import schema

__all__ = ["FULL", "QUICK", "Size", "run"]

_HERE: Final = Path(__file__).parent
ACTION: Final = "urn:orders/put"
ENVELOPE: Final = (
    b'<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><put xmlns="urn:orders"><text>'
    + b"x" * 1_024
    + b"</text></put></s:Body></s:Envelope>"
)
WINDOWS: Final = (1, 8, 64)
LOSSES: Final = (0.01, 0.05, 0.2)
RTT_MS: Final = 20.0
SLOW_MS: Final = 4_000.0
FIXED_SECONDS: Final = 3.0
"""The interval of a sender that has no other: the first wait of ours."""


class Size(NamedTuple):
    rounds: int
    seconds: float
    """The length of one measurement without loss of messages."""
    lossy: int
    """Messages over a bad network."""
    slow: int
    """Messages to a host that is slow to answer."""
    outage: float
    """Seconds."""
    backlog: int
    waiting: int
    handed_over: int
    """Messages of a hop."""


FULL: Final = Size(5, 1.0, 300, 10, 60.0, 10_000, 1_000_000, 2_000)
QUICK: Final = Size(1, 0.2, 40, 2, 1.0, 300, 20_000, 100)
OUTAGES: Final = 3
"""Rounds at most: each is over a minute long."""


class Peer:
    """A destination in a process of its own; see ``bench.source_peer``."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process = process
        self.pid = process.pid
        self.port = port
        self.url = f"http://127.0.0.1:{port}/orders"

    def asked(self, method: str, path: str, body: str = "") -> bytes:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.request(method, path, body)
            return connection.getresponse().read()

    @property
    def needless(self) -> float:
        """The messages that came again, to those that came."""
        counted = json.loads(self.asked("GET", "/"))
        return float(counted["came"] / counted["numbers"] - 1)


@contextmanager
def peer(*arguments: object) -> Iterator[Peer]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.source_peer", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=THIS_TREE,
    )
    try:
        assert process.stdout is not None
        yield Peer(process, json.loads(process.stdout.readline())["port"])
    finally:
        process.kill()
        process.communicate()


# one after the other, in windows of so many


def ours(there: Peer, place: Path, window: int, seconds: float) -> float:
    """Requests a second that ``window`` threads send, each once the one before is acknowledged."""
    done = [0] * window
    with RMSource(place) as source:

        def send(which: int) -> None:
            while time.perf_counter() < until:
                source.send(ENVELOPE, to=there.url, action=ACTION, acknowledged_within=60)
                done[which] += 1

        source.send(ENVELOPE, to=there.url, action=ACTION, acknowledged_within=60)
        threads = [threading.Thread(target=send, args=(which,)) for which in range(window)]
        begun = time.perf_counter()
        until = begun + seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(done) / (time.perf_counter() - begun)


_MESSAGE: Final = (
    "INSERT INTO message (id, message_id, action, environ, received_at, body_size, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_ENTRY: Final = "INSERT INTO entry (id, queue, message, lane, number) VALUES (?1, 1, ?1, NULL, ?1)"
_SETTLE: Final = "UPDATE entry SET outcome = 'delivered', settled_at = ? WHERE id = ?"


def bare(there: Peer, place: Path, window: int, seconds: float) -> float:
    """The same of a loop that writes ``window`` rows in a transaction, posts them, and marks them in another one."""
    schema.ensure(place)
    headers = {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": f'"{ACTION}"'}
    environ = json.dumps({"CONTENT_TYPE": headers["Content-Type"]})
    keys, done = count(1), 0
    with (
        closing(sqlite3.connect(place, isolation_level=None)) as db,
        closing(http.client.HTTPConnection("127.0.0.1", there.port)) as connection,
    ):
        db.execute("PRAGMA synchronous = FULL")
        db.execute("INSERT INTO queue (name, kind, created_at) VALUES ('bench', 'outgoing', 0)")
        begun = time.perf_counter()
        while time.perf_counter() < begun + seconds:
            batch = [next(keys) for _ in range(window)]
            now = time.time_ns() // 1_000_000
            db.execute("BEGIN IMMEDIATE")
            for key in batch:
                named = f"urn:uuid:00000000-0000-4000-8000-{key:012}"
                db.execute(_MESSAGE, (key, named, ACTION, environ, now, len(ENVELOPE), ENVELOPE))
                db.execute(_ENTRY, (key,))
            db.execute("COMMIT")
            for key in batch:
                connection.request("POST", "/orders", _numbered(key), headers)
                connection.getresponse().read()
            db.execute("BEGIN IMMEDIATE")
            db.executemany(_SETTLE, [(now, key) for key in batch])
            db.execute("COMMIT")
            done += window
        return done / (time.perf_counter() - begun)


def _numbered(number: int) -> bytes:
    """The envelope with headers like those that ours leaves with."""
    header = f"""<s:Header xmlns:a="http://www.w3.org/2005/08/addressing" xmlns:r="http://docs.oasis-open.org/ws-rx/wsrm/200702">
<a:Action>{ACTION}</a:Action><a:MessageID>urn:uuid:00000000-0000-4000-8000-{number:012}</a:MessageID>
<a:To>http://127.0.0.1/orders</a:To><r:Sequence s:mustUnderstand="1"><r:Identifier>urn:bench:bare</r:Identifier>
<r:MessageNumber>{number}</r:MessageNumber></r:Sequence><r:AckRequested><r:Identifier>urn:bench:bare</r:Identifier>
</r:AckRequested></s:Header>"""
    return ENVELOPE.replace(b"<s:Body>", header.encode() + b"<s:Body>")


# over a bad network


def sent(there: Peer, place: Path, messages: int) -> float:
    """Requests a second of ``messages`` that are stored at once, until all are acknowledged."""
    with RMSource(place) as source:
        begun = time.perf_counter()
        for _ in range(messages):
            source.send(ENVELOPE, to=there.url, action=ACTION)
        if not source.flush(300):
            raise RuntimeError(f"{source.waiting} of {messages} requests wait after 300 s")
        return messages / (time.perf_counter() - begun)


def fixed(there: Peer, place: Path, messages: int) -> float:
    """The same of a sender that sends again what was not acknowledged ``FIXED_SECONDS`` after it was sent. It keeps
    each message, and that it was acknowledged, as ours does."""
    due, begun = dict.fromkeys(range(1, messages + 1), 0.0), time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", there.port)
    db = sqlite3.connect(place, isolation_level=None)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, body BLOB)")
    for number in due:
        db.execute("INSERT INTO message VALUES (?, ?)", (number, ENVELOPE))
    while due:
        number = min(due, key=due.__getitem__)
        time.sleep(max(0.0, due[number] - time.perf_counter()))
        due[number] = time.perf_counter() + FIXED_SECONDS
        try:
            connection.request("POST", "/orders", _numbered(number), {"Content-Type": "text/xml"})
            if b"AcknowledgementRange" in connection.getresponse().read():
                del due[number]
                db.execute("DELETE FROM message WHERE id = ?", (number,))
        except (http.client.HTTPException, OSError):
            connection.close()
    connection.close()
    db.close()
    return messages / (time.perf_counter() - begun)


def needless(there: Peer, place: Path, messages: int) -> float:
    sent(there, place, messages)
    return there.needless


# after an outage


def outage(there: Peer, place: Path, size: Size) -> float:
    """The rate at which a backlog is gone after an outage, to that of one that nothing disturbs."""
    undisturbed = _drained(there, place.with_suffix(".before"), size.backlog, 0.0)
    return _drained(there, place, size.backlog, size.outage) / undisturbed


def _drained(there: Peer, place: Path, backlog: int, seconds: float) -> float:
    """Requests a second of a backlog that was stored while its destination was away. What counts is the time from the
    end of the outage: the source finds it by itself. Without one it is the time from the first that has left."""
    there.asked("POST", "/down", "3600")
    with RMSource(place) as source:
        begun = time.perf_counter()
        _in_threads(8, lambda: source.send(ENVELOPE, to=there.url, action=ACTION), backlog)
        time.sleep(max(0.0, seconds - (time.perf_counter() - begun)))
        there.asked("POST", "/down", "0")
        begun = time.perf_counter()
        while not seconds and source.waiting == backlog:
            begun = time.perf_counter()
        if not source.flush(600):
            raise RuntimeError(f"{source.waiting} of {backlog} requests wait after 600 s")
        return backlog / (time.perf_counter() - begun)


def _in_threads(threads: int, call: Callable[[], object], times: int) -> None:
    def several() -> None:
        for _ in range(times // threads):
            call()

    running = [threading.Thread(target=several) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


# many that wait

_MORE: Final = """
WITH RECURSIVE k(i) AS (VALUES (:last + 1) UNION ALL SELECT i + 1 FROM k WHERE i < :last + :more)
INSERT INTO {} SELECT {} FROM k JOIN {} AS one ON one.id = :one"""
_HOLDER: Final = """
import sys, time
from bench.source import memory_of
memory_of(sys.argv[1], sys.argv[2])
"""


def memory_of(place: str, url: str) -> None:
    """Hold a source whose messages wait for a host that is away, and send one more; ends with standard input."""
    with RMSource(place) as source:
        source.send(ENVELOPE, to=url, action=ACTION)
        print("ready", flush=True)
        sys.stdin.read()


def memory(place: Path, waiting: int) -> float:
    """MB of a process that has so many waiting calls, two seconds after it has begun."""
    away = "http://127.0.0.1:9/orders"
    with RMSource(place) as source:
        sent = source.send(ENVELOPE, to=away, action=ACTION)
    with closing(sqlite3.connect(place)) as db:
        for table in ("message", "entry"):
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            new = {"id": "k.i", "message": "k.i", "message_id": "'urn:' || k.i", "number": "one.number + k.i - :last"}
            made = ", ".join(new.get(column, f"one.{column}") for column in columns)
            (last,) = db.execute(f"SELECT max(id) FROM {table}").fetchone()
            more = {"one": sent.position, "last": last, "more": waiting}
            db.execute(_MORE.format(f"{table} ({', '.join(columns)})", made, table), more)
        db.execute("UPDATE outbound_sequence SET given = given + ?, unacknowledged = unacknowledged + ?", [waiting] * 2)
        db.execute("UPDATE lane SET held = held + ? WHERE id = (SELECT lane FROM channel WHERE is_numbered)", [waiting])
        db.commit()
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(place), away],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=THIS_TREE,
    )
    try:
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            raise RuntimeError("the process that holds the waiting calls has not started")
        time.sleep(2)
        return resident_bytes(holder.pid) / 1e6
    finally:
        holder.communicate()


# all of it


def _alternating(size: Size, directory: Path) -> Iterator[Figure]:
    for window in WINDOWS:
        rates: dict[str, list[float]] = {"ours": [], "bare": []}
        others = []
        with peer() as there:
            for number in range(size.rounds):
                spent = Spent([there.pid])
                sides = [("ours", ours), ("bare", bare)]
                for name, side in sides if number % 2 else reversed(sides):
                    with _place(directory) as place:
                        rates[name].append(side(there, place, window, size.seconds))
                others.append(spent.others)
        case = f"window {window}"
        yield Figure(case, "ours", rates["ours"], "msg/s")
        yield Figure(case, "the bare loop", rates["bare"], "msg/s")
        ratios = [mine / its for mine, its in zip(rates["ours"], rates["bare"], strict=True)]
        yield Figure(case, "ours to the bare loop", ratios, "×", Bound(">=", 0.6), others)


def _bad_network(size: Size, directory: Path) -> Iterator[Figure]:
    def rate(side: Callable[[Peer, Path, int], float], loss: float) -> float:
        with _place(directory) as place, peer("--rtt", RTT_MS, "--loss", loss) as there:
            return side(there, place, size.lossy)

    whole = rate(sent, 0.0)
    yield Figure(f"{RTT_MS:.0f} ms RTT, no loss", "ours", [whole], "msg/s")
    for loss in LOSSES:
        mine, fixed_rate = rate(sent, loss), rate(fixed, loss)
        case = f"{RTT_MS:.0f} ms RTT, {loss:.0%} loss"
        yield Figure(case, "ours to ours without loss", [mine / whole], "×", Bound(">=", 0.5 * (1 - loss)))
        yield Figure(case, "a fixed interval", [fixed_rate], "msg/s")
        yield Figure(case, "ours to a fixed interval", [mine / fixed_rate], "×", Bound(">=", 1))
    with _place(directory) as place, peer("--rtt", SLOW_MS) as there:
        share = needless(there, place, size.slow)
    yield Figure(f"{SLOW_MS / 1_000:.0f} s RTT", "needless resends", [share], "", Bound("<=", 0.05))


def _outage(size: Size, directory: Path) -> Iterator[Figure]:
    ratios = []
    for _ in range(min(size.rounds, OUTAGES)):
        with _place(directory) as place, peer() as there:
            ratios.append(outage(there, place, size))
    case = f"{size.backlog:,} wait, an outage of {size.outage:.0f} s"
    yield Figure(case, "rate afterwards to undisturbed", ratios, "×", Bound(">=", 0.8))


def _hop(size: Size, directory: Path) -> Iterator[Figure]:
    rates: dict[str, list[float]] = {"source": [], "hop": []}
    for number in range(size.rounds):
        for name in ("source", "hop") if number % 2 else ("hop", "source"):
            with _place(directory) as place:
                where, waiting = place.parent, size.handed_over
                found = hop(ENVELOPE, where, waiting) if name == "hop" else source(ENVELOPE, ACTION, where, waiting)
            rates[name].append(found)
    case = f"{size.handed_over:,} wait for a durable destination"
    yield Figure(case, "our RM Source to a service", rates["source"], "msg/s")
    yield Figure(case, "a hop to a queue of the next node", rates["hop"], "msg/s")
    ratios = [its / mine for its, mine in zip(rates["hop"], rates["source"], strict=True)]
    yield Figure(case, "the hop to our RM Source", ratios, "×", Bound(">=", 0.7))


def _memory(size: Size, directory: Path) -> Iterator[Figure]:
    with _place(directory) as place:
        used = memory(place, size.waiting)
    yield Figure(f"{size.waiting:,} calls wait", "memory", [used], "MB", Bound("<", 200))


PARTS: Final[dict[str, Callable[[Size, Path], Iterator[Figure]]]] = {
    "window": _alternating,
    "network": _bad_network,
    "outage": _outage,
    "memory": _memory,
    "hop": _hop,
}


@contextmanager
def _place(directory: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="source-", dir=directory) as made:
        yield Path(made, "outbox.db")


def run(parts: Sequence[str], size: Size, directory: Path) -> Iterator[Figure]:
    yield Figure("the disk", "fsync of a page", [fsync_us(directory)], "µs")
    for part in parts:
        for figure in PARTS[part](size, directory):
            print(*figure.cells, sep="  ", file=sys.stderr, flush=True)
            yield figure


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="python -m bench.source", description="Our RM Source beside a bare loop.")
    options.add_argument("--quick", action="store_true", help="everything once, small; nothing is written down")
    options.add_argument("--rounds", type=int, help="alternating rounds")
    options.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="parts")
    options.add_argument("--directory", type=Path, default=_HERE, help="where the stores are put: a real disk")
    chosen = options.parse_args(arguments)
    size = QUICK if chosen.quick else FULL
    if chosen.rounds:
        size = size._replace(rounds=chosen.rounds)
    begun, busy = time.monotonic(), os.getloadavg()[0]
    found = list(run(chosen.only, size, chosen.directory))
    took = time.monotonic() - begun
    text = (
        f"# The RM Source\n\n{date.today():%d %B %Y}. {machine()} {size.rounds} alternating rounds of the windows and"
        f" the hop, {OUTAGES} of the outage, the rest once, in {took:.0f} seconds, the load average {busy:.1f} when"
        f" they began. Requests of 1 KB, every commit synced.\n\n{as_markdown(found)}"
    )
    print(text)
    if not chosen.quick and chosen.only == [*PARTS] and not chosen.rounds:
        (_HERE / "results-source.md").write_text(text + "\n")
        (_HERE / "results-source.json").write_text(as_json(found) + "\n")
    return status(found)


if __name__ == "__main__":
    sys.exit(main())
