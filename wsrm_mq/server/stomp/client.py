"""A client of STOMP: its bytes are read, its frames are done one after the other, and it is told why it has to go."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Final, NamedTuple

from wsrm_mq.errors import WSRMError
from wsrm_mq.server.access import Access
from wsrm_mq.server.sessions import Sessions
from wsrm_mq.server.stomp.protocol import (
    CONNECTS,
    HEART_BEAT,
    Conversation,
    Event,
    Frame,
    HeartBeats,
    Limits,
    ProtocolError,
    error_frame,
)
from wsrm_mq.server.stomp.serving import Served, about
from wsrm_mq.server.stomp.translating import CLIENT
from wsrm_mq.server.stomp.wires import Wire

SERVER: Final = f"wsrm-mq/{version('wsrm-mq')}"
GATHERED: Final = 500
"""Frames that are done together, at most."""
WATCH_SECONDS: Final = 5.0
"""Whether a client's token still is one is looked up so often."""
TOLERANCE: Final = 2
"""A heart-beat may come so many times as late as was agreed on."""
BEATING: Final = 0.45
"""The part of the time that was agreed on after which a heart-beat is sent, where nothing else was."""


class Patience(NamedTuple):
    """Seconds: for a connection until its CONNECT has come; for a frame, from its first byte to its last; for a client
    that takes nothing."""

    connect: float = 10.0
    frame: float = 120.0
    stalled: float = 30.0


class Terms(NamedTuple):
    """How clients are served. ``beats``: the heart-beats that the server can send, and wants to get."""

    limits: Limits = Limits()
    beats: HeartBeats = HeartBeats(1_000, 10_000)
    patience: Patience = Patience()


class Gone(Exception):
    """The client has closed."""


class Silent(ProtocolError):
    """The client has sent nothing for too long."""


DIED: Final = (Gone, Silent, ConnectionError)
"""The ends of a client that has not said DISCONNECT, and has broken nothing."""


class Client:
    def __init__(self, sessions: Sessions, access: Access, wire: Wire, terms: Terms) -> None:
        self._sessions = sessions
        self._access = access
        self._wire = wire
        self._patience = terms.patience
        self._conversation = Conversation(terms.limits, terms.beats)
        self._served: Served | None = None
        self._gathered: list[Frame] = []
        self._began_at = time.monotonic()
        self._frame_at: float | None = None
        """When the frame has begun that has no end yet."""
        self._has_written = False
        self._is_connected = asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve it until it goes, or has to go."""
        tasks = [asyncio.create_task(one) for one in (self._read_all(), self._watch())]
        ends = [*tasks, self._failed]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            errors = [error for one in ends if one.done() and not one.cancelled() and (error := one.exception())]
            if self._served is not None:
                has_died = any(isinstance(one, DIED) for one in errors)
                if has_died and (leased := self._served.session.leased):
                    self._sessions.node.telling.tell(
                        "stomp.gone", peer=self._wire.peer, principal=self._served.principal.name, leased=leased
                    )
                await self._served.end(has_died=has_died)
        await self._part(errors[0] if errors else None)

    async def _part(self, error: BaseException | None) -> None:
        """Say what is wrong, and close."""
        if error is not None and not isinstance(error, Gone | ConnectionError):
            frame = error.frame if isinstance(error, ProtocolError) else error_frame(_said(error))
            self._tell(error)
            with suppress(ConnectionError):
                await self._write([frame])
        await self._wire.close()

    def _tell(self, error: BaseException) -> None:
        telling, peer = self._sessions.node.telling, self._wire.peer
        name = None if self._served is None else self._served.principal.name
        if isinstance(error, WSRMError):
            telling.tell("stomp.refused", peer=peer, principal=name, error=error)
        else:
            telling.tell("stomp.failed", peer=peer, principal=name, error=error)

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _write(self, frames: Sequence[Frame]) -> None:
        self._has_written = True
        await self._wire.write([self._conversation.send(one) for one in frames])

    async def _watch(self) -> None:
        """Send a heart-beat where nothing else was sent; end the connection of a token that is none any more."""
        await self._is_connected.wait()
        looked_at = time.monotonic()
        while True:
            beat = self._conversation.beats.sends * BEATING / 1000
            await asyncio.sleep(min(beat, WATCH_SECONDS) if beat else WATCH_SECONDS)
            if beat and not self._has_written:
                await self._wire.write([HEART_BEAT])
            self._has_written = False
            if self._served is not None and time.monotonic() - looked_at >= WATCH_SECONDS:
                looked_at = time.monotonic()
                self._served.principal = self._access.still(self._served.principal)

    # its frames

    async def _read_all(self) -> None:
        conversation = self._conversation
        while not conversation.is_ended:
            try:
                event = conversation.next_event()
            except ProtocolError:
                await self._do_gathered()
                raise
            if event is not None:
                self._frame_at = None
                await self._take(event)
                continue
            await self._do_gathered()
            self._frame_at = (self._frame_at or time.monotonic()) if conversation.is_within_frame else None
            conversation.receive(await self._read())

    async def _read(self) -> bytes:
        left = self._left()
        try:
            async with asyncio.timeout(left):
                data = await self._wire.read()
        except TimeoutError:
            raise Silent(
                "It took too long: a frame, a heart-beat, or what a connection begins with, has not come in time."
            ) from None
        if not data:
            raise Gone
        if self._served is not None:
            self._served.session.hear()
        return data

    def _left(self) -> float | None:
        """Seconds within which something has to come; ``None``: for ever."""
        now = time.monotonic()
        if self._served is None:
            return max(0.0, self._began_at + self._patience.connect - now)
        wants = self._conversation.beats.wants
        found = [wants * TOLERANCE / 1000] if wants else []
        if self._frame_at is not None:
            found.append(max(0.0, self._frame_at + self._patience.frame - now))
        return min(found, default=None)

    async def _take(self, event: Event) -> None:
        frame, served = event.frame, self._served
        is_gathered = frame.command in ("SEND", "ACK", "NACK") and not event.is_buffered
        if self._gathered and not (
            is_gathered
            and (frame.command == "SEND") is (self._gathered[0].command == "SEND")
            and len(self._gathered) < GATHERED
        ):
            await self._do_gathered()
        if is_gathered:
            self._gathered.append(frame)
        elif served is None:
            await self._connect(frame)
        else:
            try:
                await self._do(served, event)
            except WSRMError as error:
                raise about(frame, error) from error
            await served.receipt([frame])

    async def _do_gathered(self) -> None:
        frames, self._gathered = self._gathered, []
        if frames and self._served is not None:
            await (self._served.put if frames[0].command == "SEND" else self._served.settle)(frames)

    async def _do(self, served: Served, event: Event) -> None:
        match event.frame.command:
            case "SUBSCRIBE":
                await served.subscribe(event.frame)
            case "UNSUBSCRIBE":
                await served.unsubscribe(event.frame)
            case "COMMIT":
                await served.commit(event.frames)
            case "DISCONNECT":
                await served.end()

    async def _connect(self, frame: Frame) -> None:
        assert frame.command in CONNECTS, "the conversation has seen to that"
        secret = frame.headers.get("passcode")
        if not secret:
            raise ProtocolError("Credentials are required: a token as `passcode`. `wsrm-mq token add` makes a token.")
        principal = await asyncio.to_thread(self._access.authenticate, secret, self._wire.peer)
        named = frame.headers.get(CLIENT)
        session = self._sessions.begin(principal.name, None if named is None else f"{principal.name}/{named}")
        agreed = self._conversation.version
        assert agreed is not None
        self._served = Served(self._sessions.node, principal, session, agreed, self._write, self._fail)
        self._is_connected.set()
        await self._write([self._conversation.connected(secrets.token_hex(8), SERVER)])


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, WSRMError) else "The server has failed at this: its log says how."
