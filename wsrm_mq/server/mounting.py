"""The queues behind a server: by themselves, or below ``/queues`` beside another application of ASGI."""

from __future__ import annotations

from typing import Final, Protocol

from wsrm_mq.asgi_calls import ASGIApplication, Message, Receive, Scope, Send
from wsrm_mq.errors import WSRMError

PREFIX: Final = "/queues"


class Offered(Protocol):
    """The application that offers the queues."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def ending(self) -> None:
        """Clients that wait for a message are answered now."""


class Mounted:
    """An application of ASGI. ``queues`` lives as long as the server serves; what is not below ``/queues`` is
    ``beside``'s. Without that all is of the queues."""

    def __init__(self, queues: Offered, beside: ASGIApplication | None = None) -> None:
        self._queues = queues
        self._beside = beside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif self._beside is None:
            await self._queues(scope, receive, send)
        elif f"{scope['path']}/".startswith(f"{PREFIX}/"):
            await self._queues({**scope, "root_path": scope.get("root_path", "") + PREFIX}, receive, send)
        else:
            await self._beside(scope, receive, send)

    def ending(self) -> None:
        """The end is near: what waits is answered."""
        self._queues.ending()

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The queues start once the other application has, and stop before it does."""

        async def heard() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._queues.stop()
            return message

        async def told(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                try:
                    await self._queues.start()
                except WSRMError as error:
                    message = {"type": "lifespan.startup.failed", "message": str(error)}
            await send(message)

        await (self._beside or _nothing)(scope, heard, told)


async def _nothing(_scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})
