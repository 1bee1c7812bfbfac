"""The message that a program puts, as it is stored: bytes, and their kind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from wsrm_mq.errors import ConfigurationError, TooLarge
from wsrm_mq.queue.adding import MAX_HOPS, NOTHING_SAID, Header, Put
from wsrm_mq.queue.policies import FOREVER, MAX_PRIORITY, ms
from wsrm_mq.queue.reporting import Asks
from wsrm_mq.store.words import DEFAULT_PRIORITY

LONGEST: Final = 1_000
"""Characters of a type, an id or the name of a group."""
MOST_BYTES: Final = 999_000_000
"""Bytes of a body: a row of SQLite has 1,000,000,000, what describes the message included."""
REPORTS: Final = {"reached": Asks.REACHED, "received": Asks.RECEIVED, "not_delivered": Asks.NOT_DELIVERED}
LATEST: Final = FOREVER / 1000


def stored(body: object, options: Mapping[str, Any], *, now: int, client: str | None) -> Put:
    """The message to be put. ``body``: bytes as they are, a text in UTF-8, else what JSON can say. ``client``: who puts
    it. Raises ``ConfigurationError`` for what is no option or no value of one."""
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise ConfigurationError(f"A message has no option `{unknown[0]}`; it has {', '.join(OPTIONS)}.")
    return _stored(body, now, client, **options)


def _stored(
    body: object,
    now: int,
    client: str | None,
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
    journal: Literal["source"] | None = None,
    report_to: str | None = None,
    report: str | Sequence[str] | None = None,
    reach_by: float | None = None,
    max_hops: int = MAX_HOPS,
) -> Put:
    """Times are in seconds, those of the day since the epoch."""
    if not isinstance(max_hops, int) or max_hops < 1:
        raise ConfigurationError(f"`max_hops` is {max_hops!r}; so many nodes may have the message, at least 1.")
    if not isinstance(priority, int) or not 0 <= priority <= MAX_PRIORITY:
        raise ConfigurationError(f"`priority` is {priority!r}; it is 0 to {MAX_PRIORITY}, the highest first.")
    type_ = str(type) if isinstance(type, int) else type
    for name, text in (
        ("type", type_),
        ("message_id", message_id),
        ("group", group),
        ("content_type", content_type),
        ("report_to", report_to),
    ):
        _check_text(name, text)
    if message_id is not None and (not message_id or message_id.startswith("#")):
        raise ConfigurationError(f"`message_id` is {message_id!r}; it is a text that does not begin with #.")
    data, kind = _data(body)
    said = Header(
        None,
        None if not properties else _object(properties),
        content_type or kind,
        _ms("receive_by", receive_by),
        client,
        report_to,
    )
    if delay is not None and deliver_at is not None:
        raise ConfigurationError("`delay` and `deliver_at` both say when the message is delivered: leave out one.")
    waits, lasts = _ms("delay", delay), _ms("ttl", ttl)
    at = _ms("deliver_at", deliver_at) if waits is None else now + waits
    header = NOTHING_SAID if said == NOTHING_SAID else said
    asks = _asks(journal, report_to, report)
    by = _ms("reach_by", reach_by)
    return Put(data, type_, message_id, priority, lasts, at, group, header, asks, by, max_hops)


OPTIONS: Final = tuple(_stored.__kwdefaults__ or ())
"""The options of a message, by name."""


def _asks(journal: str | None, report_to: str | None, report: str | Sequence[str] | None) -> int:
    """Read the wishes for reports and records of a message. Where ``report_to`` is given and no report is named, all
    are wished for."""
    if journal not in (None, "source"):
        raise ConfigurationError(f"`journal` is {journal!r}; of a message it is 'source': the sender's journal has it.")
    named = report.replace(",", " ").split() if isinstance(report, str) else report
    is_list = named is None or isinstance(named, Sequence | set | frozenset)
    if not is_list or any(one not in REPORTS for one in named or ()) or (named is not None and report_to is None):
        raise ConfigurationError(
            f"`report` is {report!r}; it names some of {', '.join(REPORTS)}, and `report_to` the queue that has them."
        )
    asks = 0 if report_to is None else sum(REPORTS[one] for one in (REPORTS if named is None else {*named}))
    return asks | (Asks.RECORD if journal else 0)


def _data(body: object) -> tuple[bytes, str | None]:
    data, kind = _bytes_of(body)
    if len(data) > MOST_BYTES:
        raise TooLarge(
            f"The body has {len(data):,} bytes; a message has at most {MOST_BYTES:,}. Put it into several messages of "
            "one `group`, or elsewhere, and where it is into the message."
        )
    return data, kind


def _bytes_of(body: object) -> tuple[bytes, str | None]:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), None
    if isinstance(body, str):
        return _utf8("The body", body), "text/plain; charset=utf-8"
    try:
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return _utf8("The body", text), "application/json"
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"The body is neither bytes nor text, and JSON cannot say it: {error}.") from None


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{name} is a text that UTF-8 cannot say: {error}. A body may be bytes.") from None


def _check_text(name: str, text: object) -> None:
    """Raises ``ConfigurationError`` for what is no text, or none that the store can keep."""
    if text is None:
        return
    if not isinstance(text, str):
        raise ConfigurationError(f"`{name}` is {text!r}; it is a text.")
    _utf8(f"`{name}`", text)
    if len(text) > LONGEST:
        raise ConfigurationError(f"`{name}` has {len(text)} characters; it has at most {LONGEST}.")


def _object(properties: Mapping[str, object]) -> str:
    if not isinstance(properties, Mapping):
        raise ConfigurationError(f"`properties` is {properties!r}; it is a mapping of names to values.")
    try:
        text = json.dumps(dict(properties), ensure_ascii=False, allow_nan=False)
        _utf8("One of the `properties`", text)
        return text
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"JSON cannot say these `properties`: {error}.") from None


def _ms(name: str, seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or not 0 <= seconds <= LATEST:
        raise ConfigurationError(f"`{name}` is {seconds!r}; it is seconds, at least 0, and ends before the year 9999.")
    return ms(seconds)
