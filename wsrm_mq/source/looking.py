"""The requests of an RM Source, as a program looks for what has become of them: in the store, so whatever process has
sent them. A call that waits is woken by what is settled here, and looks for what is settled elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import Final, NamedTuple

from wsrm_mq.delivery.completion import Signal
from wsrm_mq.engine import Engine
from wsrm_mq.errors import NotFound, Pending
from wsrm_mq.store import calls

LOOK_SECONDS: Final = 0.2
"""Between two looks of a call that waits whether another process has settled its request."""


class Sent(NamedTuple):
    """A request that is stored, and is sent from there."""

    message_id: str
    position: int
    """Its position in the store."""


class Reply(NamedTuple):
    """The reply of a destination: an envelope, or a message with parts; a fault is one too."""

    status: int
    content_type: str
    content: bytes


class DeadRequest(NamedTuple):
    """A request that is given up."""

    message_id: str
    to: str
    position: int
    reason: str
    error: str | None


class Looking:
    """The part of an RM Source that looks."""

    _engine: Engine

    @property
    def waiting(self) -> int:
        """How many requests are not acknowledged yet."""
        with self._engine.store.reader() as db:
            return int(db.execute(calls.WAITING).fetchone()[0])

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all are acknowledged or given up, ``timeout`` seconds at most; answers whether they are."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.waiting:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def wait(self, sent: Sent, timeout: float | None = None) -> None:
        """Wait until a request is acknowledged. Raises ``Pending`` after ``timeout`` seconds, ``NotFound`` where it is
        not known, or given up: ``dead`` says why."""
        deadline = None if timeout is None else time.monotonic() + timeout
        settled = Signal()
        with self._engine.waiters.expecting(sent.position, settled):
            while not self._is_acknowledged(sent, deadline):
                settled.wait(LOOK_SECONDS)

    async def wait_async(self, sent: Sent, timeout: float | None = None) -> None:
        """``wait`` in an event loop, which goes on meanwhile."""
        deadline = None if timeout is None else time.monotonic() + timeout
        settled = _LoopSignal()
        with self._engine.waiters.expecting(sent.position, settled):
            while not await asyncio.to_thread(self._is_acknowledged, sent, deadline):
                await settled.wait(LOOK_SECONDS)

    def _is_acknowledged(self, sent: Sent, deadline: float | None) -> bool:
        """Raises as ``wait``."""
        outcome, reason = self._outcome(sent)
        if outcome not in (None, "delivered"):
            raise NotFound(f"{sent.message_id}: it is not sent any more ({reason or outcome}). Look at `dead`.")
        if outcome is None and deadline is not None and time.monotonic() >= deadline:
            with self._engine.store.reader() as db:
                (why,) = db.execute(calls.WHY, {"message": sent.position}).fetchone()
            raise Pending(sent.message_id, why)
        return outcome is not None

    def is_settled(self, sent: Sent) -> bool:
        """Whether ``wait`` would end at once."""
        return self._outcome(sent)[0] is not None

    def _outcome(self, sent: Sent) -> tuple[str | None, str | None]:
        """The outcome of a request and its reason; no outcome: it waits."""
        with self._engine.store.reader() as db:
            outcome, reason = db.execute(calls.OUTCOME, {"message": sent.position}).fetchone() or ("forgotten", None)
        return outcome, reason

    def reply(self, sent: Sent, timeout: float | None = None) -> Reply:
        """Wait for the reply to a request. Raises as ``wait``."""
        self.wait(sent, timeout)
        found = self._reply_at(sent.position)
        if found is None:
            raise NotFound(f"{sent.message_id}: has no reply; send what is replied to with `ask`.")
        return found

    async def reply_async(self, sent: Sent, timeout: float | None = None) -> Reply:
        """``reply`` in an event loop, which goes on meanwhile."""
        await self.wait_async(sent, timeout)
        return await asyncio.to_thread(self.reply, sent)

    def replies(self, message_id: str) -> Reply | None:
        """The reply to the request of this MessageID, whatever process has sent it; ``None``: there is none yet. It is
        kept for seven days. Raises ``NotFound`` where there is no such request."""
        return self._reply_at(self._request(message_id)[0])

    def action_of(self, message_id: str) -> str:
        """The action of the request of this MessageID. Raises ``NotFound``."""
        return self._request(message_id)[1]

    def _request(self, message_id: str) -> tuple[int, str]:
        with self._engine.store.reader() as db:
            found = db.execute(calls.REQUEST, {"message_id": message_id}).fetchone()
        if found is None:
            raise NotFound(f"{message_id}: no such request is in this store, or it was settled more than 7 days ago.")
        return found[0], found[1]

    def _reply_at(self, position: int) -> Reply | None:
        with self._engine.store.reader() as db:
            found = db.execute(calls.REPLY, {"message": position}).fetchone()
        if found is None:
            return None
        status, headers, body = found
        return Reply(int(status), dict(json.loads(headers))["Content-Type"], bytes(body))

    @property
    def dead(self) -> list[DeadRequest]:
        """The requests that were given up, each with its reason."""
        with self._engine.store.reader() as db:
            return [DeadRequest(*row) for row in db.execute(calls.DEAD)]


class _LoopSignal:
    """An event that other threads set and this loop waits for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()
