"""A part of a divided plan is run: its messages are sent in the order of its lines, the next when the last is answered.

So whatever ends an attempt, and however often a part is begun again, the first arrivals of a sequence's messages are in
their order; a target that knows messages by their keys has each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from wsrm_mq.delivery.delivery import Call, Delivery, Key
from wsrm_mq.queue.arrival import Body
from wsrm_mq.replay.divided import PartLine
from wsrm_mq.replay.journal import Journal
from wsrm_mq.replay.pace import Pace
from wsrm_mq.replay.plan import DUPLICATE

GIVES_UP: Final = 10
"""After so many failures without a success between them nothing more is sent: it is the target that fails."""


class Content(NamedTuple):
    """What a line has to be sent with, as it was read."""

    line: int
    envelope: bytes | None
    replayable: bool
    """Whether the envelope is as it was received."""
    request: str | None
    """Address and headers of its request, as JSON."""


class Tally(NamedTuple):
    """What one attempt has done, in messages, and in groups that met an error."""

    delivered: int = 0
    stopped: int = 0
    gave_up: bool = False
    superseded: bool = False
    """A newer attempt has taken the part."""


class PartRun(NamedTuple):
    """How a part is run. ``run``: which run it is of; ``replay_id``: empty, unless the messages pass for new ones."""

    call: Call
    journal: Journal
    pace: Pace
    run: str
    replay_id: str = ""

    def over(self, lines: Iterator[tuple[int, PartLine]], contents: Iterator[Content]) -> Tally:
        """Send what is left of ``lines``; ``contents`` come in their order, a line's best first."""
        delivered = stopped = failures = 0
        state = self.journal.state
        for number, line, content in _matched(lines, contents):
            if state.is_over(number, line.group, self.run):
                continue
            self.pace.wait()
            if self.journal.is_superseded():
                return Tally(delivered, stopped, superseded=True)
            why = _why_not(content)
            error = why or self.call(_delivery(line, content, self.replay_id)).error
            if error is None:
                self.journal.delivered(number, line.group)
                delivered, failures = delivered + 1, 0
                continue
            self.journal.stopped(number, line.group, error)
            stopped, failures = stopped + 1, failures + (not why)
            if failures == GIVES_UP:
                return Tally(delivered, stopped, gave_up=True)
        return Tally(delivered, stopped)


def rehearse(
    lines: Iterator[tuple[int, PartLine]],
    contents: Iterator[Content],
    is_over: Callable[[int, int], bool],
) -> Tally:
    """What a run would do with a target that takes everything. ``is_over``: of a line and its group."""
    sent = 0
    stopped: set[int] = set()
    for number, line, content in _matched(lines, contents):
        if line.group in stopped or is_over(number, line.group):
            continue
        if _why_not(content):
            stopped.add(line.group)
        else:
            sent += 1
    return Tally(sent, len(stopped))


def _matched(
    lines: Iterator[tuple[int, PartLine]], contents: Iterator[Content]
) -> Iterator[tuple[int, PartLine, Content | None]]:
    """Each line with the first content that it has."""
    content = next(contents, None)
    for number, line in lines:
        while content is not None and content.line < number:
            content = next(contents, None)
        yield number, line, content if content is not None and content.line == number else None


def _why_not(content: Content | None) -> str:
    """Why a message cannot be sent; empty: it can."""
    if content is None or content.envelope is None:
        return "its envelope is not there: retention has freed it, or it is in none of the sources"
    return "" if content.replayable else "not replayable: its wsse:Security was taken out (--with-security keeps it)"


def _delivery(line: PartLine, content: Content | None, replay_id: str) -> Delivery:
    assert content is not None
    assert line.sequence is not None
    assert line.number is not None
    return Delivery(
        position=line.position,
        number=line.number,
        identifier=line.sequence,
        partner=None,
        rm="",
        soap="",
        addressing="",
        action=line.action,
        message_id=line.message_id,
        environ=content.request or "{}",
        principal=None,
        connection=None,
        body=Body(content.envelope),
        wants_reply=False,
        redelivery=DUPLICATE in line.flags,
        is_replay=True,
        source=Key(line.sequence, line.number, replay_id),
    )
