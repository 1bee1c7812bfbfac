"""The Python client of a queue server: the interface of ``wsrm_mq.node``, over HTTP; and ``connect``, which opens a
store or the line to a server, as its address says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from wsrm_mq import node as local
from wsrm_mq.errors import ConfigurationError

if TYPE_CHECKING:
    from wsrm_mq.client.node import RemoteNode
    from wsrm_mq.client.storing import StoringNode
    from wsrm_mq.node import Node
    from wsrm_mq.node.async_node import AsyncNode

Where = str | os.PathLike[str]
Nodes = Where | Mapping[str, Any]


@overload
def connect(
    where: str, name: str | None = None, *, token: str, store: Where, nodes: Nodes | None = None
) -> StoringNode: ...
@overload
def connect(where: str, name: str | None = None, *, token: str, nodes: Nodes | None = None) -> RemoteNode: ...
@overload
def connect(
    where: Where,
    name: str | None = None,
    *,
    auto_create: bool = True,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    nodes: Nodes | None = None,
) -> Node: ...
def connect(
    where: Where,
    name: str | None = None,
    *,
    token: str | None = None,
    store: Where | None = None,
    nodes: Nodes | None = None,
    **options: Any,
) -> Node | RemoteNode:
    """Open a store for a program that puts and consumes, or the line to a queue server. ``where``: ``sqlite:///path``,
    a path, or a directory; or ``https://host/path``. ``name``: what its consumers are known by. ``nodes``: the other
    nodes, whose queues are seen and mirrored here: the file of configuration that has them, or its options.

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
        opened = local.connect(where, name, **options)
        if nodes is not None:
            _join(opened, nodes, opened.store.path.with_name(f"{opened.store.path.name}.mirrors"))
        return opened
    if options:
        raise ConfigurationError(f"`{next(iter(options))}` is for a store that is opened here: its server has its own.")
    try:
        from wsrm_mq.client.node import RemoteNode
        from wsrm_mq.client.storing import StoringNode
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    if store is None:
        far = RemoteNode(str(where), name, token=token)
    else:
        far = StoringNode(str(where), name, token=token, store=store)
    if nodes is not None:
        _join(far, nodes)
    return far


def _join(node: Node | RemoteNode, nodes: Nodes, shelf: Path | None = None) -> None:
    try:
        from wsrm_mq.client.neighbours import neighbours_of

        node.neighbours = neighbours_of(nodes, node.name, shelf)
    except ModuleNotFoundError as error:
        node.close()
        raise _missing(error) from None
    except BaseException:
        node.close()
        raise


def _missing(error: ModuleNotFoundError) -> ConfigurationError:
    return ConfigurationError(f"{error.name} is not installed: pip install 'wsrm-mq[client]'.")


async def connect_async(where: Where, name: str | None = None, **options: Any) -> AsyncNode:
    """``connect`` for a program of asyncio."""
    from wsrm_mq.node.async_node import AsyncNode, owned

    opened = await owned(lambda: connect(where, name, **options), lambda opened: opened.close())
    if isinstance(opened, local.Node):
        return AsyncNode(opened)
    from wsrm_mq.client.async_node import AsyncRemoteNode

    return AsyncRemoteNode(opened)
