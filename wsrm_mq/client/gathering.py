"""Puts that wait for nothing: those that come while a request is under way are sent together by the next one.

Each is confirmed by itself, and what one thread puts is stored in its order: what it puts by another request waits
until these are.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from typing import Any, Final, NamedTuple

import msgspec

from wsrm_mq.client.forms import Payload, Problem, Request, error_of, fitting, may_be_repeated, part, read, several
from wsrm_mq.client.line import Line
from wsrm_mq.errors import NotAnswered, WSRMError
from wsrm_mq.node.confirmation import Confirmation
from wsrm_mq.queue.topics import Published

MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the bodies of one request, unless one alone has more."""


class Put(NamedTuple):
    """A message that is on its way, as a part of a request."""

    payload: Payload
    part: tuple[dict[str, str], bytes]
    done: Confirmation[Any]


class Result(msgspec.Struct):
    """The result of one put: its position, and the queues that a published one is in; or the problem of it."""

    position: int | None = None
    queues: tuple[str, ...] | None = None
    problem: Problem | None = None


class Gathering:
    """The puts of one node that are under way."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._lock = threading.Lock()
        self._waiting: list[Put] = []
        self._is_sending = False
        self._under_way: Future[None] | None = None
        self._last: Future[Any] | None = None
        """The confirmation of what was put last."""

    @property
    def under_way(self) -> list[Future[None]]:
        """Futures that end when nothing is under way any more."""
        return [] if self._under_way is None else [self._under_way]

    def finish(self) -> None:
        """Wait until nothing is under way."""
        for one in self.under_way:
            one.result()

    def pass_by(self) -> None:
        """Wait until what was put before is stored, or refused."""
        if self._last is not None:
            wait([self._last])

    def put(self, payload: Payload, **where: Any) -> Future[Any]:
        """Have a message put; answers its confirmation: a position, or what ``publish`` answers. ``where``: its queue,
        or its topic and whether a queue has to take it."""
        self._line.check_open()
        to = where.get("queue") or where["topic"]
        one = Put(payload, part(payload, **where), Confirmation(to))
        one.done.set_running_or_notify_cancel()
        with self._lock:
            self._waiting.append(one)
            self._last = one.done
            if self._is_sending:
                return one.done
            self._is_sending = True
        try:
            self._under_way = self._line.run(self._send())
        except WSRMError as error:
            self._refuse(error)
        return one.done

    def _refuse(self, error: WSRMError) -> None:
        with self._lock:
            waiting, self._waiting, self._is_sending = self._waiting, [], False
        _refuse(waiting, error)

    async def _send(self) -> None:
        while batch := self._next():
            try:
                answer = await self._line.ask(_request(batch))
                results = read(answer, dict[str, list[Result]])["results"]
                if len(results) != len(batch):
                    raise NotAnswered("The server has answered for more or fewer messages than were put.")
            except WSRMError as error:
                _refuse(batch, error)
            else:
                for one, result in zip(batch, results, strict=True):
                    _confirm(one, result)

    def _next(self) -> list[Put]:
        """The messages of the next request; none: nothing waits any more."""
        with self._lock:
            count = fitting((len(one.payload.body) for one in self._waiting), MOST_BYTES)
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            self._is_sending = bool(batch)
            return batch


def _request(batch: list[Put]) -> Request:
    asked = Request("POST", "messages", may_repeat=may_be_repeated([one.payload for one in batch]))
    return several(asked, [one.part for one in batch])


def _refuse(batch: list[Put], error: WSRMError) -> None:
    for one in batch:
        one.done.set_exception(error)


def _confirm(one: Put, result: Result) -> None:
    if result.problem is not None:
        one.done.set_exception(error_of(result.problem))
    elif result.queues is not None:
        one.done.set_result(Published(result.position, result.queues))
    else:
        one.done.set_result(result.position)
