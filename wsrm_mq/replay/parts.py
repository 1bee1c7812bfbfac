"""The run of one part of a divided plan: its messages are sent in the order of its lines, the next when the last is
answered.

So the first arrivals of a sequence's messages are in their order, however often an attempt ends and the part is begun
again; a target that knows messages by their keys has each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from wsrm_mq.delivery.delivery import Call, Delivery, Key, Outcome
from wsrm_mq.queue.arrival import Body
from wsrm_mq.replay.divided import PartLine, Rehearsal
from wsrm_mq.replay.plan import DUPLICATE
from wsrm_mq.replay.targets import Pace

GIVES_UP: Final = 10
"""After so many failures without a success between them nothing more is sent: it is the target that fails."""


class Content(NamedTuple):
    """The content with which a line is sent, as it was read."""

    line: int
    envelope: bytes | None
    replayable: bool
    """Whether the envelope is as it was received."""
    request: str | None
    """Address and headers of its request, as JSON."""


class Tally(NamedTuple):
    """The count of an attempt: messages that were delivered, and groups that met an error."""

    delivered: int = 0
    stopped: int = 0
    gave_up: bool = False
    superseded: bool = False
    """A newer attempt has taken the part."""


def run_part(
    journal: Rehearsal,
    lines: Iterator[tuple[int, PartLine]],
    contents: Iterator[Content],
    call: Call = lambda _delivery: Outcome(),
    *,
    pace: Pace | None = None,
    replay_id: str = "",
) -> Tally:
    """Send the rest of ``lines`` by ``call``; ``contents`` come in their order, a line's best first. ``replay_id``
    is empty, unless the messages pass for new ones."""
    delivered = stopped = failures = 0
    for number, line, content in _matched(lines, contents):
        if journal.is_over(number, line.group):
            continue
        if pace is not None:
            pace.wait()
        if journal.is_superseded():
            return Tally(delivered, stopped, superseded=True)
        why = _why_not(content)
        error = why or call(_delivery(line, content, replay_id)).error
        if error is None:
            journal.delivered(number, line.group)
            delivered, failures = delivered + 1, 0
            continue
        journal.stopped(number, line.group, error)
        stopped, failures = stopped + 1, failures + (not why)
        if failures == GIVES_UP:
            return Tally(delivered, stopped, gave_up=True)
    return Tally(delivered, stopped)


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
