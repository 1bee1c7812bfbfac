"""What a program puts, as it is stored: bytes, and what they are."""

from __future__ import annotations

import json
from collections.abc import Mapping

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.policies import MAX_PRIORITY, ms
from wsrm_mq.queue.put import NOTHING_SAID, Header, Put
from wsrm_mq.store.consuming import DEFAULT_PRIORITY


def stored(
    body: object,
    *,
    type: str | int | None = None,
    message_id: str | None = None,
    properties: Mapping[str, object] | None = None,
    content_type: str | None = None,
    priority: int = DEFAULT_PRIORITY,
    ttl: float | None = None,
    deliver_at: float | None = None,
    delay: float | None = None,
    group: str | None = None,
    receive_by: float | None = None,
    topic: str | None = None,
    client: str | None = None,
    now: int = 0,
) -> Put:
    """The message to be put. ``body``: bytes as they are, a text in UTF-8, else what JSON can say. Times are in
    seconds, those of the day since the epoch. Raises ``ConfigurationError`` for what cannot be."""
    if not 0 <= priority <= MAX_PRIORITY:
        raise ConfigurationError(f"`priority` is {priority}; it is 0 to {MAX_PRIORITY}, the highest first.")
    if ttl is not None and ttl < 0:
        raise ConfigurationError(f"`ttl` is {ttl}; a time is not negative.")
    if message_id is not None and (not message_id or message_id.startswith("#")):
        raise ConfigurationError(f"`message_id` is {message_id!r}; it is a text that does not begin with #.")
    data, kind = _data(body)
    said = Header(
        topic,
        None if not properties else json.dumps(properties, ensure_ascii=False),
        content_type or kind,
        _ms(receive_by),
        client,
    )
    at = _ms(deliver_at) if delay is None else now + ms(delay)
    header = NOTHING_SAID if said == NOTHING_SAID else said
    type_ = None if type is None else str(type)
    return Put(data, type_, message_id, priority, None if ttl is None else ms(ttl), at, group, header)


def _data(body: object) -> tuple[bytes, str | None]:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), None
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    try:
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(), "application/json"
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"The body is neither bytes nor text, and JSON cannot say it: {error}.") from None


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else ms(seconds)
