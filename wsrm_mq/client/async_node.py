"""The remote node for programs of asyncio: the same wrapping as that of a local one. What waits for a message costs no
thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from wsrm_mq.client.forms import settlement, settling
from wsrm_mq.client.node import RemoteNode
from wsrm_mq.errors import WSRMError
from wsrm_mq.node.async_node import AsyncMessage, AsyncNode
from wsrm_mq.node.message import Message


class AsyncRemoteNode(AsyncNode):
    """See ``wsrm_mq.connect_async``."""

    def __init__(self, node: RemoteNode) -> None:
        self.inner: Any = node

    async def receive(
        self, queue: str | Sequence[str], max: int = 1, *, wait: float = 0.0, **options: Any
    ) -> list[AsyncMessage]:
        """See ``Node.receive``."""
        came: list[Message] = []

        async def receiving() -> list[Message]:
            came.extend(await self.inner.receiving(queue, max, wait=wait, **options))
            return came

        line = self.inner.line
        found = line.run(receiving())
        try:
            return [AsyncMessage(one) for one in await asyncio.wrap_future(found)]
        except asyncio.CancelledError:
            line.run(self._given_back(came))  # it runs behind the end of what was cancelled
            raise

    async def _given_back(self, messages: Sequence[Message]) -> None:
        """Messages go back, uncounted, that came when nothing waited for them any more."""
        if messages:
            with suppress(WSRMError):  # their leases end with the session
                await self.inner.line.ask(settling([settlement(one, "hand_back") for one in messages]))
