"""Next nodes as the configuration knows them: ``[node.NAME]`` has the address of each, and how it knows this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wsrm_mq.errors import NotFound

if TYPE_CHECKING:
    from wsrm_mq.config import Settings
    from wsrm_mq.queue.routing import Route
    from wsrm_mq.routes.sending import Hop
    from wsrm_mq.store.port import Database


def address_of(settings: Settings, said: str) -> str:
    """Where the next node takes messages that is named by that address, or by its section. Raises ``NotFound``."""
    if "/" in said:
        return said
    node = settings.nodes.get(said)
    if node is None or node.url is None:
        raise NotFound(
            f"{said} is neither the address of a node, such as https://{said}/rm, nor a section [node.{said}] of the "
            "configuration with a url."
        )
    return f"{node.url.rstrip('/')}/rm"


def way_of(db: Database, queue: str) -> tuple[bool, Route | None]:
    """Whether this node has the queue, and else the route of what is put there."""
    from wsrm_mq.queue.routing import choose, routes
    from wsrm_mq.store.queues import QUEUE_ROW

    is_here = db.execute(QUEUE_ROW, {"name": queue}).fetchone() is not None
    return is_here, None if is_here else choose(routes(db), queue)


def hops_of(settings: Settings) -> dict[str, Hop]:
    """The next nodes of the configuration, by their addresses. Raises ``ConfigurationError`` where the environment
    lacks a token."""
    from wsrm_mq.routes.sending import Hop

    hops = {}
    for name, one in settings.nodes.items():
        token = one.token(name)
        if one.url is not None:
            hops[address_of(settings, name)] = Hop(token, one.certificate, one.ca)
    return hops
