"""A message over HTTP: a body, and a header ``Message`` that says in JSON, in ASCII, what else there is to it."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.node.message import Message
from wsrm_mq.parts import Facts, Part
from wsrm_mq.queue.policies import Durability
from wsrm_mq.server.acts import PutOne, Settle

MESSAGE: Final = "message"
SETTLEMENT: Final = "settlement"
Place = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A position, as it is asked for."""


class Said(Struct, forbid_unknown_fields=True, kw_only=True):
    """The options that a client gives with a message that it puts: see ``Node.put``. Times in seconds, those of the day
    since the epoch. ``queue`` or ``topic`` say where it goes, where the path does not; ``mandatory`` is of what is
    published; ``number`` its place in a lane; ``content_type`` is for what the header of that name cannot say."""

    type: str | int | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    properties: dict[str, Any] | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    ttl: float | UnsetType = UNSET
    deliver_at: float | UnsetType = UNSET
    delay: float | UnsetType = UNSET
    group: str | UnsetType = UNSET
    receive_by: float | UnsetType = UNSET
    journal: Literal["source"] | UnsetType = UNSET
    report_to: str | UnsetType = UNSET
    report: list[str] | UnsetType = UNSET
    durability: Durability | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    mandatory: bool | UnsetType = UNSET
    queue: str | None = None
    topic: str | None = None
    number: int | None = None


_OPTIONS: Final = tuple(name for name in Said.__struct_fields__ if name not in ("queue", "topic", "number"))
_SAID: Final = msgspec.json.Decoder(Said)
_SETTLE: Final = msgspec.json.Decoder(Settle)
NOTHING: Final = Said()


class Recorded(Struct):
    """The entry that one of a journal records."""

    queue: str
    position: int
    outcome: str | None
    reason: str | None
    settled_at: int | None


class Told(Facts):
    """The facts that the server tells with a message: see ``Message``. ``lease``: the number that settles it together
    with its position; ``null`` where it is not leased. ``leased_for``: so many seconds the lease lasts from now on.
    ``lane``: the number of its ordered group. ``of``: what one of a journal records."""

    properties: dict[str, Any]
    lease: int | None
    leased_for: float | None
    of: Recorded | UnsetType = UNSET


def said(header: str | None) -> Said:
    """Read the header of a message that is put. Raises ``ConfigurationError``."""
    if header is None:
        return NOTHING
    found: Said = _read(_SAID, "Message", header)
    return found


def settlement(header: str) -> Settle:
    """Read the header of a part that settles a message. Raises ``ConfigurationError``."""
    found: Settle = _read(_SETTLE, "Settlement", header)
    return found


def _read(decoder: msgspec.json.Decoder[Any], name: str, header: str) -> Any:
    try:
        return decoder.decode(header.encode("latin-1"))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"The header {name} is not as it is to be: {error}. It is JSON in ASCII.") from None


def options_of(one: Said, content_type: str | None) -> dict[str, Any]:
    """The options of ``Node.put`` that a client gives."""
    options: dict[str, Any] = {"content_type": content_type}
    if one is not NOTHING:
        options.update((name, value) for name in _OPTIONS if (value := getattr(one, name)) is not UNSET)
    return options


def put_of(part: Part, queue: str | None = None) -> PutOne:
    """The message that a part is, for the queue or the topic that it names, or for ``queue``."""
    one = said(part.headers.get(MESSAGE))
    if queue is not None and (one.queue is not None or one.topic is not None):
        raise ConfigurationError("The path names the queue: leave `queue` and `topic` out of the header Message.")
    if queue is None and (one.queue is None) is (one.topic is None):
        raise ConfigurationError("The header Message of each part names a `queue`, or a `topic`.")
    options = options_of(one, part.headers.get("content-type"))
    return PutOne(queue or one.queue, one.topic, part.body, options)


def told(message: Message, of: Recorded | UnsetType = UNSET) -> dict[str, str]:
    """The headers of a message that a client gets."""
    is_leased = message.home is not None
    one = Told(
        message.queue,
        message.position,
        message.message_id,
        message.type,
        message.topic,
        message.content_type,
        message.priority,
        message.sequence,
        message.number,
        message.received_at,
        message.deliveries,
        message.failures,
        message.state,
        message.reason,
        message.last_error,
        message.leased_until,
        message.is_barrier,
        message.lane,
        message.properties,
        message.lease.fence if is_leased else None,
        max(message.leased_until - time.time(), 0.0) if is_leased and message.leased_until is not None else None,
        of,
    )
    headers = {"Message": ascii_json(one)}
    kind = message.content_type
    if kind and kind.isascii() and kind.isprintable():
        headers["Content-Type"] = kind
    return headers


def ascii_json(value: Any) -> str:
    """JSON that a header may have."""
    text = msgspec.json.encode(value)
    return text.decode() if text.isascii() else json.dumps(msgspec.json.decode(text), separators=(",", ":"))
