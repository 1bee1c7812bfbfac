"""The Python client of a queue server: the interface of ``wsrm_mq.node``, over HTTP; and ``connect``, which opens a
store or the line to a server, as its address says."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, overload

from wsrm_mq import node as local
from wsrm_mq.errors import ConfigurationError

if TYPE_CHECKING:
    from wsrm_mq.client.node import RemoteNode
    from wsrm_mq.client.storing import StoringNode
    from wsrm_mq.node import Node
    from wsrm_mq.node.async_node import AsyncNode

Where = str | os.PathLike[str]


@overload
def connect(where: str, name: str | None = None, *, token: str, store: Where) -> StoringNode: ...
@overload
def connect(where: str, name: str | None = None, *, token: str) -> RemoteNode: ...
@overload
def connect(
    where: Where,
    name: str | None = None,
    *,
    auto_create: bool = True,
    max_messages: int | None = None,
    max_bytes: int | None = None,
) -> Node: ...
def connect(
    where: Where, name: str | None = None, *, token: str | None = None, store: Where | None = None, **options: Any
) -> Node | RemoteNode:
    """Open a store for a program that puts and consumes, or the line to a queue server. ``where``: ``sqlite:///path``,
    a path, or a directory; or ``https://host/path``. ``name``: what its consumers are known by.

    Of a store. ``auto_create``: a queue that is not there is declared by the first message that is put there.
    ``max_messages``, ``max_bytes``: what would make more of them unsettled in all queues together is refused to this
    program as ``QuotaExceeded``.

    Of a server. ``token``: the credentials. ``store``: a path; what is put goes into an outbox there first, and from
    there to the server once and in order, however long that is away."""
    if not str(where).startswith(("http://", "https://")):
        if token is not None or store is not None:
            raise ConfigurationError(
                f"`token` and `store` are for a server: {str(where)!r} is no http or https address."
            )
        return local.connect(where, name, **options)
    if options:
        raise ConfigurationError(f"`{next(iter(options))}` is for a store that is opened here: its server has its own.")
    try:
        from wsrm_mq.client.node import RemoteNode
        from wsrm_mq.client.storing import StoringNode
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error.name} is not installed: pip install 'wsrm-mq[client]'.") from None
    if store is None:
        return RemoteNode(str(where), name, token=token)
    return StoringNode(str(where), name, token=token, store=store)


async def connect_async(where: Where, name: str | None = None, **options: Any) -> AsyncNode:
    """``connect`` for a program of asyncio."""
    from wsrm_mq.node.async_node import AsyncNode

    opened = await asyncio.to_thread(lambda: connect(where, name, **options))
    if isinstance(opened, local.Node):
        return AsyncNode(opened)
    from wsrm_mq.client.async_node import AsyncRemoteNode

    return AsyncRemoteNode(opened)
