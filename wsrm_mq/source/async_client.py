"""zeep's client for asyncio over an RM Source: nothing that it awaits holds up the loop."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import zeep

from wsrm_mq.source.zeep_client import ACCEPTED, Later, ReliableClient, ReliableTransport, Request, answered


class AsyncReliableTransport(ReliableTransport):
    """``ReliableTransport`` for a client that awaits its answers."""

    async def _exchange(self, request: Request) -> Any:
        sent = await asyncio.to_thread(request.give, self._source)
        return answered(await self._source.reply_async(sent, self._timeout) if request.wants_reply else ACCEPTED)


class AsyncLater:
    """The result of an operation that is not waited for."""

    def __init__(self, client: AsyncReliableClient, later: Later) -> None:
        self._client = client
        self._later = later
        self.message_id = later.message_id

    async def done(self) -> bool:
        """Whether ``result`` would answer at once."""
        return await asyncio.to_thread(self._later.done)

    async def result(self, timeout: float | None = None) -> Any:
        """See ``Later.result``."""
        await self._client.source.wait_async(self._later.sent, timeout)
        return await asyncio.to_thread(self._later.result)


class AsyncReliableClient(ReliableClient, zeep.AsyncClient):
    """``ReliableClient`` whose operations, and those of ``later``, are awaited. Making it reads the WSDL and opens the
    store::

        async with await asyncio.to_thread(AsyncReliableClient, f"{url}?wsdl", store="outbox.db") as client:
            await client.service.put_order(n=1, text="two seats")

    What was awaited is stored; what was cancelled may be sent all the same. ``enqueue`` is the same as there: it writes
    by the program's own connection.
    """

    _transport = AsyncReliableTransport

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: Any) -> None:
        await asyncio.to_thread(self.source.close)

    async def replies(self, message_id: str) -> Any:
        """See ``ReliableClient.replies``."""
        return await asyncio.to_thread(super().replies, message_id)

    async def _later(self, *request: Any) -> AsyncLater:
        return AsyncLater(self, await asyncio.to_thread(super()._later, *request))
