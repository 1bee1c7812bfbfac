"""Sends what ``mutations`` makes to the middleware in several configurations, and holds every answer to what must be:

- the middleware raises nothing,
- what is refused leaves no message and no sequence,
- a scanner that remembers alike messages says of each what a fresh scan says,
- in the end what was accepted could be given to the service, and the store verifies clean.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from tests.fuzz.failed import Failed
from tests.fuzz.messages import DIALECTS, Case, good
from tests.fuzz.mutations import mutated
from wsrm_mq import WSRMMiddleware
from wsrm_mq.cli import program
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.scan import Scanner, scan
from wsrm_mq.envelope.stream import Limits
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.testing import HTTPAnswer, WSGIWire

CONFIGURATIONS: Final[list[dict[str, Any]]] = [
    {},
    {"require_rm": True, "verify_body": True},
    {"headers": "strip", "paths": ["/orders"]},
    {"headers": "demote", "queue_one_way": True, "one_way": ["{urn:example:orders}put"]},
    {"strict_addressing": True, "understood": [], "behavior": "DiscardEntireSequence"},
]
PLANTS: Final = ("raise", "store", "scan", "verify")
"""Mistakes that the fuzzer makes itself, in the fiftieth case or at the end: each has to be found."""
PLANTED_IN: Final = 50
SEQUENCES: Final = 6
REFUSED: Final = 400


class Target:
    """The middleware in one configuration, over an application that takes everything."""

    def __init__(self, store: Path, options: dict[str, Any]) -> None:
        self.store = store
        self.options = options
        self.middleware = WSRMMiddleware(self._run, store, hold_wait=0.0, retry=(0.01,), **options)
        self.sequences: dict[int, list[str]] = {}
        self._db = sqlite3.connect(f"file:{store}?mode=ro", uri=True)

    def _run(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["wsgi.input"].read()
        start_response("202 Accepted", [("Content-Length", "0")])
        return []

    def stored(self) -> tuple[int, int]:
        """Messages and sequences."""
        [row] = self._db.execute("SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM lane)")
        return int(row[0]), int(row[1])

    def send(self, case: Case) -> HTTPAnswer:
        fields = {"Content-Type": case.content_type}
        if case.encoding:
            fields["Content-Encoding"] = case.encoding
        return WSGIWire(self.middleware, "/orders", {"REQUEST_METHOD": case.method}).post(case.body, fields)

    def open_sequences(self, dialect: int) -> list[str]:
        """Some of this dialect; a new one now and then, for they come to their end."""
        opened = self.sequences.setdefault(dialect, [])
        speak = DIALECTS[dialect]
        created = self.send(Case(speak.create_sequence(), speak.content_type)).reply.created
        if created is not None:
            opened.append(created.identifier)
        del opened[:-SEQUENCES]
        return opened

    def stop(self) -> bool:
        """Whether the middleware came to its end."""
        self._db.close()
        return self.middleware.close(20)

    def verify(self, *, spoil: bool = False) -> None:
        """Raises ``Failed`` where the store does not verify, or the application was not given what was accepted.
        ``spoil``: take what was received out of the ranges before."""
        with closing(sqlite3.connect(self.store)) as db:
            failures = db.execute("SELECT reason FROM ledger WHERE event = 'failed' LIMIT 1").fetchall()
            if spoil:
                db.execute("DELETE FROM range")
                db.commit()
        if failures:
            raise Failed(f"{self.options}: what was accepted cannot be delivered: {failures[0][0]}")
        verified = CliRunner().invoke(program, ["store", "verify", "--store", str(self.store)])
        if verified.exit_code:
            raise Failed(f"{self.options}: the store does not verify: {verified.output}")


def fuzz(directory: Path, seconds: float, seed: int, plant: str = "") -> int:
    """Run for ``seconds``; answers how many cases there were. Raises ``Failed``. A seed gives the same mutations in the
    same order, however many there is time for."""
    rng = random.Random(seed)
    targets = [Target(directory / f"store{n}.db", options) for n, options in enumerate(CONFIGURATIONS)]
    warm, limits = Scanner(Limits()), Limits()
    end, count = time.monotonic() + seconds, 0
    try:
        while time.monotonic() < end or count <= PLANTED_IN:
            target, dialect = rng.choice(targets), rng.randrange(len(DIALECTS))
            identifiers = target.sequences.get(dialect)
            if not identifiers or rng.random() < 0.02:
                identifiers = target.open_sequences(dialect)
            case = mutated(rng, good(rng, DIALECTS[dialect], identifiers or ["urn:uuid:0"]))
            count += 1
            _check(target, case, plant if count == PLANTED_IN else "")
            _compare(warm, limits, case, plant if count == PLANTED_IN else "")
    finally:
        have_ended = [target.stop() for target in targets]
    if not all(have_ended):
        raise Failed("the middleware does not end")
    for target in targets:
        target.verify(spoil=plant == "verify")
    return count


def _check(target: Target, case: Case, plant: str) -> None:
    before = target.stored()
    try:
        status = target.send(case).status
        if plant == "raise":
            raise RuntimeError("planted")
    except Exception as error:
        raise Failed(f"{target.options}: the middleware raised {error!r}", case) from error
    after = target.stored()
    if plant == "store":
        status, after = REFUSED, (before[0] + 1, before[1])
    if status >= REFUSED and after != before:
        raise Failed(f"{target.options}: answered {status}, and something was stored: {before} -> {after}", case)


def _compare(warm: Scanner, limits: Limits, case: Case, plant: str) -> None:
    def said(of: Callable[[], Headers]) -> object:
        try:
            return of()._replace(alike=None)
        except EnvelopeError as error:
            return error.fault, error.status
        except Exception as error:
            raise Failed(f"the scan raised {error!r}", case) from error

    remembered = said(lambda: warm.scan(case.body, case.content_type))
    fresh = None if plant == "scan" else said(lambda: scan(case.body, case.content_type, None, limits))
    if remembered != fresh:
        raise Failed(f"warm and cold scan differ:\n  {remembered}\n  {fresh}", case)
