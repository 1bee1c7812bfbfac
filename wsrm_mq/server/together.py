"""The queues over HTTP and over STOMP, as one: with one node, and the same sessions and bounds."""

from __future__ import annotations

import os
from collections.abc import Callable
from ssl import Purpose, SSLContext, create_default_context
from typing import Any, NamedTuple

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.server.http.application import QueueApplication


class Listening(NamedTuple):
    """Where STOMP is spoken: the ports of sockets and of WebSockets, where there are any; ``certificate`` and ``key``
    are files, as PEM."""

    host: str
    port: int | None
    websocket_port: int | None
    certificate: str | None = None
    key: str | None = None

    @property
    def tls(self) -> SSLContext | None:
        if self.certificate is None:
            return None
        context = create_default_context(Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context


class WithStomp(QueueApplication):
    """An application of ASGI that speaks STOMP beside HTTP from its start to its end. ``announce`` is told where."""

    def __init__(
        self, where: str | os.PathLike[str], listening: Listening, announce: Callable[[str], None], **options: Any
    ) -> None:
        """``options``: those of ``QueueApplication``."""
        from wsrm_mq.server.stomp.server import StompServer  # it needs a library for WebSockets

        super().__init__(where, **options)
        self._listening = listening
        self._announce = announce
        self._made = StompServer
        self._stomp: StompServer | None = None

    async def start(self) -> None:
        """Raises ``ConfigurationError`` where a port cannot be had."""
        await super().start()
        if self._stomp is not None:
            return
        self._stomp = stomp = self._made(self.server.sessions, self.server.access)
        host, tls = self._listening.host, self._listening.tls
        for scheme, port, listen in (
            ("stomp" if tls is None else "stomp+ssl", self._listening.port, stomp.listen),
            ("ws" if tls is None else "wss", self._listening.websocket_port, stomp.listen_websocket),
        ):
            if port is not None:
                try:
                    had = await listen(host, port, tls)
                except OSError as error:
                    raise ConfigurationError(f"cannot listen on {host}, port {port}: {error.strerror}.") from error
                self._announce(f"{scheme}://{f'[{host}]' if ':' in host else host}:{had}")

    async def stop(self) -> None:
        if self._stomp is not None:
            await self._stomp.close()
            self._stomp = None
        await super().stop()
