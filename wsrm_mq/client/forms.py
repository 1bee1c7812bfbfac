"""The requests of the queue server's HTTP API and what its answers say, as values: nothing here sends anything.

The form is that of ``docs/reference/http-api.md``. A message is a body and one header ``Message``, a JSON object;
several are the parts of a ``multipart/mixed``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from wsrm_mq import errors, parts
from wsrm_mq.errors import (
    LaneGap,
    NoQueueServer,
    NotAnswered,
    QuotaExceeded,
    StoreError,
    TooLarge,
    TooManyLogins,
    WSRMError,
)
from wsrm_mq.events.inert import as_text
from wsrm_mq.node.checks import check_durability
from wsrm_mq.node.message import Message, Settling
from wsrm_mq.node.neighbours import Offer
from wsrm_mq.node.payload import stored
from wsrm_mq.queue.clearing import Cleared
from wsrm_mq.queue.declaring import Declared
from wsrm_mq.queue.journaling import Recorded
from wsrm_mq.queue.leasing import Leased, Seen
from wsrm_mq.queue.settling import Settlement

MESSAGE: Final = "Message"
SETTLEMENT: Final = "Settlement"
LARGEST: Final = 2**40
"""An answer is as large as the server makes it."""

_PROBLEM: Final = "application/problem+json"
_ANSWERS: Final = ("application/json", "multipart/mixed")
_SOON: Final = (408, 425, 429)
"""Answers of proxies that are others soon, as are those of 500 and more."""
_TAG: Final = re.compile(r"<(style|script)\b.*?</\1>|<!--.*?-->|<[^>]*>", re.DOTALL | re.IGNORECASE)
_PAGE: Final = 4_096
_WORDS: Final = 120
"""A page of something else is quoted so far."""

MOST: Final = 1_000
"""The most messages of one request."""

Query = tuple[tuple[str, str], ...]
S = TypeVar("S")


class Request(NamedTuple):
    """``path`` is below the address of the server. ``in_session``: what it leases or settles is its session's.
    ``may_repeat``: it does no more when it arrives twice. ``leases``: its answer has messages that are leased.
    ``told``: it is called with what became of what it settles, before the messages of its answer are read."""

    method: str
    path: str
    query: Query = ()
    content_type: str | None = None
    message: str | None = None
    """The header ``Message``."""
    body: bytes = b""
    in_session: bool = False
    may_repeat: bool = False
    leases: bool = False
    told: Callable[[Sequence[str]], None] | None = None


class Answer(NamedTuple):
    status: int
    content_type: str
    message: str | None
    body: bytes


class Payload(NamedTuple):
    """A message to be put: its bytes, their kind, and its options as the header ``Message`` has them."""

    body: bytes
    content_type: str | None
    options: dict[str, Any]


class Problem(msgspec.Struct):
    """An answer of ``application/problem+json``."""

    code: str = ""
    detail: str = ""
    next_step: str = ""
    lasts: bool = False
    blocks: bool = False
    expected: int = 0
    retry_after: float | None = None


class Told(parts.Facts):
    """The header ``Message`` of what the server sends. ``leased_for``: seconds."""

    properties: msgspec.Raw
    lease: int | None
    leased_for: float | None
    of: dict[str, Any] | None = None


class Arrived(NamedTuple):
    """A message that the server sent, with what it tells of it."""

    message: Message
    told: Told

    @property
    def recorded(self) -> Recorded:
        """The entry that it records in a journal."""
        return Recorded(**(self.told.of or {}))


# requests


def path(*segments: object) -> str:
    return "/".join(quote(str(one), safe="") for one in segments)


def query(**options: object) -> Query:
    """Options that are not ``None``, as a query."""
    said = ((name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in options.items())
    return tuple(pair for pair in said if options[pair[0]] is not None)


def asking(method: str, *segments: object, json: object = None, **options: object) -> Request:
    """A request without messages. ``json``: its body."""
    body = b"" if json is None else msgspec.json.encode(json)
    kind = None if json is None else "application/json"
    return Request(method, path(*segments), query(**options), kind, body=body, may_repeat=method in ("GET", "PUT"))


def payload(body: object, options: Mapping[str, Any]) -> Payload:
    """The message to be put. Raises ``ConfigurationError``."""
    named = dict(options)
    durability = named.pop("durability", None)
    if durability is not None:
        check_durability(durability)
    one = stored(body, named, now=0, client=None)
    said = {name: value for name, value in named.items() if value is not None and name != "content_type"}
    if durability is not None:
        said["durability"] = durability
    if "type" in said:
        said["type"] = one.type
    if "properties" in said:
        said["properties"] = dict(said["properties"])
    if "report" in said:
        report = said["report"]
        said["report"] = report.replace(",", " ").split() if isinstance(report, str) else [*report]
    kind = one.header.content_type
    if kind is not None and not (kind.isascii() and kind.isprintable()):
        said["content_type"], kind = kind, None  # the header of that name cannot say it
    return Payload(one.body, kind, said)


def part(one: Payload, **where: object) -> tuple[dict[str, str], bytes]:
    """A message as a part of a multipart body: its headers and its bytes. ``where``: more of its options, by name."""
    headers = {} if one.content_type is None else {"Content-Type": one.content_type}
    if where or one.options:
        headers[MESSAGE] = json.dumps({**one.options, **where})
    return headers, one.body


def several(asked: Request, those: Iterable[tuple[Mapping[str, str], bytes]]) -> Request:
    """The request with several messages."""
    boundary = parts.new_boundary()
    return asked._replace(content_type=parts.content_type(boundary), body=b"".join(parts.written(boundary, those)))


def settlement(message: Message, action: str, **options: object) -> dict[str, object]:
    """The act that settles a message, as the API takes it."""
    said = {name: value for name, value in options.items() if value is not None}
    return {"position": message.position, "lease": message.lease.fence, "action": action, **said}


def settling(wanted: Sequence[dict[str, object]]) -> Request:
    """A request that settles messages. Sent again it finds them settled, or their leases gone."""
    return asking("POST", "settlements", json={"settlements": wanted})._replace(in_session=True, may_repeat=True)


# answers


def read(answer: Answer, kind: type[S]) -> S:
    """The JSON of an answer. Raises ``NoQueueServer`` for what is something else."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise NoQueueServer(f"The server answers what is no answer of a queue server: {error}.") from None


def settlements(answer: Answer) -> list[Settlement]:
    return read(answer, dict[str, list[Settlement]])["settlements"]


def cleared(answer: Answer) -> Cleared:
    return Cleared(**read(answer, dict[str, int]))


def offers_in(answer: Answer, node: str | None = None) -> list[Offer]:
    """The queues that an answer offers. ``node``: what that which answers is called here; ``None``: as it says."""
    now = time.time()
    found = read(answer, dict[str, list[dict[str, Any]]])["offers"]
    return [Offer(**{**one, "node": node or one["node"]}, as_of=now) for one in found]


def messages(answer: Answer, node: Settling | None) -> list[Arrived]:
    """The messages that an answer has. ``node`` settles those that are leased."""
    if answer.status == 204:
        return []
    boundary = parts.boundary_of(answer.content_type)
    if answer.message is not None or boundary is None:
        return [arrived(answer.message or "", answer.body, node)]
    found = parts.Reader(boundary, LARGEST, LARGEST).feed(answer.body)
    return [arrived(one.headers.get("message", ""), one.body, node) for one in found]


def arrived(header: str, body: bytes, node: Settling | None) -> Arrived:
    """The message that the header ``Message`` and a body are."""
    try:
        told = msgspec.json.decode(header, type=Told)
    except msgspec.DecodeError as error:
        raise NoQueueServer(f"The server answers what is no message of a queue server: {error}.") from None
    # A key of the server's store is none here: a message is known by its position.
    queue = Declared(0, told.queue, "", None, None, None)
    seen = Seen(
        position=told.position,
        fence=0 if told.lease is None else told.lease,
        priority=told.priority,
        deliveries=told.deliveries,
        failures=told.failures,
        expires_at=None,
        lane=told.lane,
        number=told.number,
        message=0,
        message_id=told.message_id,
        type=told.type,
        received_at=round(told.received_at * 1000),
        size=len(body),
        body=body,
        request="{}",
        topic=told.topic,
        properties=bytes(told.properties).decode(),
        content_type=told.content_type,
        sequence=told.sequence,
        asks=None,
    )
    is_looked_at = told.lease is None and not told.is_barrier
    message = Message(
        None if is_looked_at else node,
        Leased(queue, seen, 0, told.is_barrier),
        told.leased_until,
        state=told.state,
        reason=told.reason,
        last_error=told.last_error,
    )
    return Arrived(message, told)


# errors


def check(answer: Answer, where: str) -> None:
    """Raises what an answer tells of that is no success. What no queue server answers is ``NoQueueServer``, or
    ``NotAnswered`` where it may be another one soon."""
    kind = answer.content_type.partition(";")[0].strip().lower()
    if kind == _PROBLEM:
        with suppress(msgspec.DecodeError):
            raise error_of(msgspec.json.decode(answer.body, type=Problem))
    elif answer.status == 204 or (answer.status < 300 and (answer.message is not None or kind in _ANSWERS)):
        return
    words = " ".join(_TAG.sub(" ", answer.body[:_PAGE].decode(errors="replace")).split())
    said = f"{where} answers {answer.status}, as no queue server does: {as_text(words[:_WORDS])!r}."
    if answer.status == 413:
        raise TooLarge(said)  # a proxy says so
    if answer.status >= 500 or answer.status in _SOON:
        raise NotAnswered(said)
    raise NoQueueServer(f"{said} See that the address is that of a queue server, and what a proxy before it wants.")


def error_of(problem: Problem) -> WSRMError:
    """The exception that the local node would raise."""
    said = problem.detail
    if problem.code in ("UnknownPath", "UnknownMethod"):
        return NoQueueServer(
            f"{said} See that the address is that of the queues, which ends with /queues where they are beside a "
            "service, and that its server is no older than this client."
        )
    kind = getattr(errors, problem.code, None)
    if kind is QuotaExceeded:
        return QuotaExceeded(said, lasts=problem.lasts, blocks=problem.blocks)
    if kind is LaneGap:
        return LaneGap(said, problem.expected)
    if kind is TooManyLogins:
        return TooManyLogins(said, problem.retry_after or 0.0, "Bearer")
    if isinstance(kind, type) and issubclass(kind, StoreError):
        return kind(said.removesuffix(problem.next_step).strip(), problem.next_step or None)
    if isinstance(kind, type) and issubclass(kind, WSRMError):
        return kind(said)
    return WSRMError(said)


def fitting(sizes: Iterable[int], most_bytes: int) -> int:
    """How many messages of these sizes one request takes, from the first on, which may be of any size."""
    count = size = 0
    for one in islice(sizes, MOST):
        size += one
        if count and size > most_bytes:
            break
        count += 1
    return count


def may_be_repeated(ones: Sequence[Payload]) -> bool:
    """Whether a request that puts these may be sent twice: their queue knows them again by their ids."""
    return all("message_id" in one.options for one in ones)
