"""The wishes from which a plan is made, and the summary of its lines: counts, messages that are left out, and
warnings."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.replay.plan import BREAKS_ORDER, COPIED, DUPLICATE, FORMAT, KEY_HEADER, OLD, LeftOut, Line

_DAY = 86_400_000
_UNSETTLED = ("held", "ready", "leased", "dead")


class Wishes(NamedTuple):
    """The wishes for a plan. ``target`` is ``app``, ``module:attribute`` or a URL. With ``as_new`` the service takes
    its messages for new ones. With ``skip_missing`` messages without a body are left out. ``marks_kept`` is the time in
    ms for which the service keeps its marks of finished messages; ``None``: it is not known."""

    query: str
    target: str = "app"
    as_new: bool = False
    skip_missing: bool = False
    marks_kept: int | None = None
    actor: str = ""
    reason: str = ""

    def flags(
        self, state: str, received_at: int, now: int, *, breaks_order: bool, copied: bool = False
    ) -> Iterator[str]:
        """The flags of a message in its line."""
        if state == "delivered":
            yield DUPLICATE
        if breaks_order:
            yield BREAKS_ORDER
        if copied:
            yield COPIED
        if self.marks_kept is not None and received_at < now - self.marks_kept:
            yield OLD


@dataclass
class Summary:
    """The lines of a plan, or of a part of it, added up. Times in ms since the epoch."""

    messages: int = 0
    bytes: int = 0
    groups: int = 0
    earliest: int | None = None
    latest: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    """The number of messages in each state and with each flag."""
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    """Messages that are left out, by reason."""

    def add(self, line: Line, received_at: int) -> None:
        """Count a line; ``groups`` is not touched."""
        self.messages += 1
        self.bytes += line.size
        self.earliest = min(self.earliest or received_at, received_at)
        self.latest = max(self.latest or 0, received_at)
        self.counts.update((line.state, *line.flags))

    def leave_out(self, why: str, example: str, messages: int = 1) -> None:
        """Count messages that fit the query and are not in the plan."""
        known = self.left_out.get(why, LeftOut(why, 0, example))
        self.left_out[why] = LeftOut(why, known.messages + messages, known.example)

    def refuse_missing(self, wishes: Wishes, missing: Iterable[str], said: str) -> None:
        """Raises ``NotAllowed`` where something is left out for one of the reasons ``missing``, unless the wishes allow
        that."""
        if not wishes.skip_missing and not self.left_out.keys().isdisjoint(missing):
            raise NotAllowed(f"{said}{self._told()} With --skip-missing the plan is made without them.")

    def about(self, wishes: Wishes, now: int, *, is_copied: bool = False) -> dict[str, Any]:
        """Answer the fields of an ``About``. With ``is_copied`` the replayed messages stay in their queues. Raises
        ``NotFound`` where there is no line."""
        if self.earliest is None:
            raise NotFound(f"Nothing that can be replayed fits {wishes.query!r}.{self._told()}")
        wished = wishes._asdict()
        age, marks_kept = now - self.earliest, wished.pop("marks_kept")
        return {
            "wsrm_mq_plan": FORMAT,
            "id": secrets.token_hex(6),
            "made_at": now,
            **wished,
            "messages": self.messages,
            "groups": self.groups,
            "bytes": self.bytes,
            "counts": dict(self.counts),
            "left_out": tuple(self.left_out.values()),
            "warnings": _warnings(wishes.target, wishes.as_new, self.counts, age, marks_kept, is_copied=is_copied),
        }

    def _told(self) -> str:
        listed = (f"{one.messages} {one.why} (such as {one.example})" for one in self.left_out.values())
        return "".join(f" Left out: {text}." for text in listed)


def _warnings(
    target: str, as_new: bool, counts: Counter[str], age: int, marks_kept: int | None, *, is_copied: bool
) -> tuple[str, ...]:
    """``age``: of the oldest message, in ms."""
    unsettled = sum(counts[state] for state in _UNSETTLED)
    known = counts[DUPLICATE]
    texts = []
    if as_new:
        texts.append(
            "Effects repeat: every message has this plan's id as replay id, so the inbox (`once`) takes it for new."
            f" Delivered before, and to be done again: {known}."
        )
    elif known:
        texts.append(
            f"Delivered before: {known}. A service that marks what it has done (`once`) knows them again; any other"
            " does its work again."
        )
        texts += _of_forgotten_marks(counts, age, marks_kept)
    if counts[BREAKS_ORDER]:
        texts.append(
            f"Out of the order of their sequences: {counts[BREAKS_ORDER]}. Messages that this plan leaves out should"
            " come before them, or were delivered after them."
        )
    if counts[COPIED]:
        texts.append(
            f"In more than one store: {counts[COPIED]}. One of them was put back from a copy (`wsrm-mq store adopt`);"
            " the plan has each of these messages once."
        )
    if unsettled and is_copied:
        texts.append(
            f"Dead letters: {unsettled}. They stay in the queues of their nodes, and a redrive there would deliver them"
            " once more."
        )
    elif unsettled:
        texts.append(
            f"Undelivered, or dead letters: {unsettled}. The run takes them out of their queues; they are delivered by"
            " it alone. It holds the sequences of undelivered ones until it has ended: what else they have waits."
        )
    if "://" in target:
        texts.append(
            "At least once there: a message whose answer is lost is sent again. Its key goes along in the header"
            f" {KEY_HEADER}, so that the target can know it again."
        )
    return tuple(texts)


def _of_forgotten_marks(counts: Counter[str], age: int, marks_kept: int | None) -> list[str]:
    if marks_kept is None and age < _DAY:
        return []
    if marks_kept is None:
        return [
            f"The oldest message is {age / _DAY:.1f} days old. A service that forgets its marks (`forget`) sooner takes"
            " it for new; --marks-kept says how long it keeps them, and which messages are older."
        ]
    if not counts[OLD]:
        return []
    return [
        f"Older than the {marks_kept / _DAY:g} days for which the service keeps its marks: {counts[OLD]}. It takes them"
        " for new."
    ]
