"""The remote node for programs of asyncio: the same wrapping as that of a local one. What waits for a message costs no
thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from wsrm_mq.client.node import RemoteNode
from wsrm_mq.node.async_node import AsyncMessage, AsyncNode


class AsyncRemoteNode(AsyncNode):
    """See ``wsrm_mq.connect_async``."""

    def __init__(self, node: RemoteNode) -> None:
        self.inner: Any = node

    async def receive(
        self, queue: str | Sequence[str], max: int = 1, *, wait: float = 0.0, **options: Any
    ) -> list[AsyncMessage]:
        """See ``Node.receive``."""
        found = self.inner.line.run(self.inner.receiving(queue, max, wait=wait, **options))
        return [AsyncMessage(one) for one in await asyncio.wrap_future(found)]
