"""The message that a program puts, as it is stored: bytes, and their kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.policies import FOREVER, MAX_PRIORITY, ms
from wsrm_mq.queue.put import NOTHING_SAID, Header, Put
from wsrm_mq.store.consuming import DEFAULT_PRIORITY

LONGEST: Final = 1_000
"""Characters of a type, an id or the name of a group."""
LATEST: Final = FOREVER / 1000


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
    if not isinstance(priority, int) or not 0 <= priority <= MAX_PRIORITY:
        raise ConfigurationError(f"`priority` is {priority!r}; it is 0 to {MAX_PRIORITY}, the highest first.")
    if message_id is not None and (not message_id or message_id.startswith("#")):
        raise ConfigurationError(f"`message_id` is {message_id!r}; it is a text that does not begin with #.")
    for name, text in (("type", type), ("message_id", message_id), ("group", group)):
        if text is not None and len(str(text)) > LONGEST:
            raise ConfigurationError(f"`{name}` has {len(str(text))} characters; it has at most {LONGEST}.")
    data, kind = _data(body)
    said = Header(
        topic,
        None if not properties else _object(properties),
        content_type or kind,
        _ms("receive_by", receive_by),
        client,
    )
    waits, lasts = _ms("delay", delay), _ms("ttl", ttl)
    at = _ms("deliver_at", deliver_at) if waits is None else now + waits
    header = NOTHING_SAID if said == NOTHING_SAID else said
    type_ = None if type is None else str(type)
    return Put(data, type_, message_id, priority, lasts, at, group, header)


def _data(body: object) -> tuple[bytes, str | None]:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), None
    if isinstance(body, str):
        return _utf8(body), "text/plain; charset=utf-8"
    try:
        return _utf8(json.dumps(body, separators=(",", ":"), ensure_ascii=False)), "application/json"
    except ConfigurationError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"The body is neither bytes nor text, and JSON cannot say it: {error}.") from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"The body is a text that UTF-8 cannot say: {error}. Put bytes.") from None


def _object(properties: Mapping[str, object]) -> str:
    if not isinstance(properties, Mapping):
        raise ConfigurationError(f"`properties` is {properties!r}; it is a mapping of names to values.")
    try:
        return json.dumps(dict(properties), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"JSON cannot say these `properties`: {error}.") from None


def _ms(name: str, seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or not 0 <= seconds <= LATEST:
        raise ConfigurationError(f"`{name}` is {seconds!r}; it is seconds, at least 0, and ends before the year 9999.")
    return ms(seconds)
