"""Messages on their way over nodes: into the transmission queue of the next one, and once into the queue that they are
for.

A transmission queue has a message as it was put; what goes with it is written when it leaves, for the time that is left
is that of then.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from wsrm_mq.errors import ConfigurationError, UnknownQueue
from wsrm_mq.queue import requests
from wsrm_mq.queue.adding import NOTHING_SAID, Put, check_group
from wsrm_mq.queue.requests import Destination
from wsrm_mq.queue.routing import Route, choose, node_name, routes
from wsrm_mq.queue.sending import OutgoingMessage
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.store import routing
from wsrm_mq.store.port import Database
from wsrm_mq.store.transaction import Transaction, as_json
from wsrm_mq.versions import ADDRESSING_OF_LABEL, RM_OF_LABEL, SOAP_OF_LABEL

_VERSIONS: Final = RM_OF_LABEL["1.1"], SOAP_OF_LABEL["1.2"], ADDRESSING_OF_LABEL["1.0"]
NODE_HEADER: Final = "wsrm-mq-node"
"""A node has its name, percent-encoded, in this header on each answer to another one."""
UNKNOWN: Final = "unknown_destination"
"""Reason of dead letters: there is no such queue, and no route is for it."""
_NOT_OF_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class Origin(NamedTuple):
    """The node that a message was put at, that one's incarnation, and its position there: by that it is known again,
    on whatever ways it comes. ``via``: the nodes that have had it."""

    node: str
    incarnation: str
    position: int
    via: tuple[str, ...] = ()

    @property
    def key(self) -> dict[str, object]:
        return {"node": self.node, "incarnation": self.incarnation, "position": self.position}


def message_id_of(origin: Origin) -> str:
    """The MessageID of the envelopes of a message, the same on each way and each time."""
    return f"urn:wsrm-mq:message:{origin.incarnation}:{origin.position}"


def destination(next_hop: str, run: str | None = None) -> Destination:
    """The next node, as it is spoken to; express messages are of a ``run`` of the store."""
    return Destination(next_hop, *_VERSIONS, is_node=True, run=run)


def elsewhere(tx: Transaction, name: str) -> Route | None:
    """The route of what is put into the queue ``name``; ``None``: a queue of this node has it, or is made for it.
    Raises ``UnknownQueue`` where this node has routes, and neither a queue nor a route of that name: it may be spelled
    wrongly, so none is made."""
    return None if tx.queue_row(name) is not None else way(tx, name)


def way(db: Database, name: str) -> Route | None:
    """The same for a queue that is not here."""
    among = routes(db)
    found = choose(among, name)
    if found is None and among:
        raise UnknownQueue(
            f"There is no queue {name} here, and no route is for it. Declare it: `node.declare({name!r})`; or add a "
            f"route: `node.route({name!r}, next_hop=…)`."
        )
    return found


def forward(
    tx: Transaction, route: Route, target: str, one: Put, origin: Origin | None = None, *, is_express: bool = False
) -> int:
    """Put a message for the queue ``target`` into the transmission queue of the next node on ``route``; answers its
    position. ``origin``: it has come from another node; else it is put here. ``is_express``: it is lost with this run
    of the store, unless the next node has it by then. Raises ``ConfigurationError`` for what no other node takes."""
    _check(target, one)
    here = node_name(tx)
    via = (*(() if origin is None else origin.via), here.name)
    # nothing passes what waits for the same queue: it goes where the last of that is, until all of it has moved
    followed = tx.execute(routing.FOLLOWED, {"via": as_json(via), "target": target}).fetchone()
    next_hop, sent_as = followed or (route.next_hop, route.sent_as(target))
    to, names = (
        destination(next_hop, here.incarnation if is_express else None),
        (one.message_id or "", one.type or "", one.header.content_type or ""),
    )
    message = OutgoingMessage(EndpointReference(next_hop), *names, one.body)
    ends = (one.header.receive_by, None if one.ttl is None else tx.now + one.ttl)
    expires_at = min((end for end in ends if end is not None), default=None)
    dead_at = min((end for end in (expires_at, one.reach_by) if end is not None), default=None)
    position = requests.store(tx, to, message, expires_at=dead_at).sent.position
    assert position is not None
    if one.header is not NOTHING_SAID:
        tx.add_header({"message": position, **one.header._asdict()})
    origin = (origin or Origin(*here, position))._replace(via=via)
    keep_origin(tx, position, target, one, origin, sent_as, expires_at)
    return position


def _check(target: str, one: Put) -> None:
    check_group(one)
    said = (target, one.type, one.message_id, one.group, *one.header)
    if (text := next((text for text in said if isinstance(text, str) and _NOT_OF_XML.search(text)), None)) is not None:
        raise ConfigurationError(f"{text!r} has a character that XML 1.0 cannot carry to another node: leave it out.")


def keep_origin(
    tx: Transaction,
    message: int,
    target: str,
    one: Put,
    origin: Origin,
    sent_as: str | None = None,
    expires_at: int | None = None,
) -> None:
    """Keep where a message has come from that is here, in a queue or on its way. ``sent_as``: its queue, as the next
    node is told it."""
    row = {
        **origin.key,
        "message": message,
        "target": target,
        "sent_as": sent_as,
        "via": as_json(origin.via),
        "max_hops": one.max_hops,
        "priority": one.priority,
        "lane_group": one.group,
        "asks": one.asks,
        "deliver_at": one.deliver_at,
        "expires_at": expires_at,
        "reach_by": one.reach_by,
    }
    tx.execute(routing.ADD_ROUTED, row)


def has_arrived(tx: Transaction, origin: Origin, queue: str) -> bool:
    """Whether the message has come into the queue of this name before, or into one that was deleted since: what was
    deleted does not come back. Only there it is asked: of two copies that cross on their ways each would be taken for
    the repeat of the other elsewhere; and a node that may put into one queue has no word on what comes for another."""
    return tx.execute(routing.HAS_ARRIVED, {**origin.key, "name": queue}).fetchone() is not None


def arrived(tx: Transaction, origin: Origin, queue: int) -> None:
    """The message is in a queue of this node."""
    tx.execute(routing.ARRIVED, {**origin.key, "queue": queue, "at": tx.now})


def via_of(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))
