"""The health of this process, for ``/healthz``."""

from __future__ import annotations

import os
import threading
import time
from typing import Final, NamedTuple

from wsrm_mq.engine.engine import Engine
from wsrm_mq.errors import StoreError

WRITE_SECONDS: Final = 2.0
"""The longest time of a transaction on a store that can be written."""
WATCH_SECONDS: Final = 15.0
"""The watch looks once a second; one that has not for so long hangs."""


class Check(NamedTuple):
    """The result of a check. ``detail`` tells the operator the problem, and holds nothing that a stranger may not
    know."""

    is_ok: bool
    detail: str = ""


class _Probe:
    """A transaction that does nothing: it proves that the writer lives and gets the write lock."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.is_done = threading.Event()
        self.error: BaseException | None = None

    def done(self, _result: None, error: BaseException | None) -> None:
        self.error = error
        self.is_done.set()


class Health:
    """Looks at an engine. However often it is asked, one probe at a time waits for the writer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._probe: _Probe | None = None
        self._pid = os.getpid()

    def look(self) -> dict[str, Check]:
        if not self._engine.is_running:
            return {"engine": Check(False, "not started yet, or stopping")}
        if self._pid != os.getpid():  # a fork may have left the lock as it was
            self._lock, self._probe, self._pid = threading.Lock(), None, os.getpid()
        return {
            "engine": Check(True),
            "writer": self._writer(),
            "store": self._store(),
            "watch": self._watch(),
            "disk": self._disk(),
        }

    def _writer(self) -> Check:
        return Check(True) if self._engine.store.writer.is_alive else Check(False, "its thread has ended")

    def _store(self) -> Check:
        with self._lock:
            probe = self._probe
            try:
                if probe is None:
                    probe = self._probe = _Probe()
                    self._engine.store.submit(lambda _tx: None, probe.done)
                is_done = probe.is_done.wait(max(0.0, probe.begun + WRITE_SECONDS - time.monotonic()))
            except StoreError as error:
                self._probe = None
                return _failed(error)
            if not is_done:
                return Check(False, f"a transaction has waited for {time.monotonic() - probe.begun:.0f} s")
            self._probe = None
        return Check(True) if probe.error is None else _failed(probe.error)

    def _watch(self) -> Check:
        idle = time.monotonic() - self._engine.watch.turned_at
        return Check(True) if idle < WATCH_SECONDS else Check(False, f"it has not looked for {idle:.0f} s")

    def _disk(self) -> Check:
        if self._engine.store.is_disk_full:
            return Check(False, "the disk is full: free some space")
        return Check(True)


def _failed(error: BaseException) -> Check:
    """Without the error's text, which has the path of the store."""
    return Check(False, type(error).__name__)
