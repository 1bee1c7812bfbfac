"""The way of an RM Source with hosts that cannot be reached: it tries again for as long as that lasts.

No answer, and an answer that says that nothing takes the message there (502, 503, 504, …), is no failure of the
message. The host is left alone for a while, longer each time, so what waits for it costs nothing meanwhile. Where a
message cannot be signed, that goes for its address alone.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

from wsrm_mq.delivery.hanging import Patient, origin_of
from wsrm_mq.delivery.posted import Answered, Post, speaks
from wsrm_mq.errors import LeftAlone, NotAnswered, Unread, Unsigned
from wsrm_mq.events import telling as events
from wsrm_mq.remembered import Recent

SOON: Final = 1 / 8
STEADY: Final = 1.25
PART: Final = 1 / 40
LEAST: Final = 0.02
MOST: Final = 60.0
"""The pauses in which a host that is away is left alone, in seconds, or as a part of the time for which it has been so:
``LEAST`` at first, then ``SOON`` up to ``STEADY``, and ``PART`` where that is longer, up to ``MOST``. So a line that
broke for a moment costs a moment, a host that is down is asked no more than once a second, and an outage of any length
holds up what waits by little more than a fortieth of it. One message alone asks, and each pause is taken from 80 to 120
%, so that many sources do not come back together (S-RET-004)."""
TOLD_AFTER: Final = 0.5
"""Seconds: a host that is away for less is told of by no event, or a bad line would fill the log."""
TOLD_AGAIN: Final = 600.0
"""Seconds between two events that tell of a host that is away."""
LONGEST_ASKED: Final = 3_600.0
"""Seconds: the most of a Retry-After that counts."""
_FROM_GATEWAYS: Final = frozenset((408, 425, 429, 502, 503, 504))
"""HTTP statuses that say nothing of the message, unless what came with them does."""
_HOSTS: Final = 4_096


def pause_after(away: float) -> float:
    """The seconds for which a host is left alone that has been away for so many."""
    return min(MOST, max(LEAST, min(STEADY, away * SOON), away * PART))


class _Away(NamedTuple):
    since: float
    until: float
    why: str
    began: str
    """``since``, for people."""
    told_at: float | None


class Persistent(Patient):
    """A ``Patient`` that never gives a host up. ``tell`` tells of one that is away, and of one that is back."""

    longest = MOST

    def __init__(
        self,
        post: Post,
        monotonic: Callable[[], float] = time.monotonic,
        tell: Callable[..., None] = events.tell,
        **options: Any,
    ) -> None:
        super().__init__(post, monotonic, **options)
        self._clock = monotonic
        self.tell = tell
        self._away: Recent[str, _Away | None] = Recent(_HOSTS)
        self._guard = threading.Lock()

    def left_alone(self, url: str, who: str | None, waited: float = 0.0, beside: int = 0) -> LeftAlone | None:
        return self._left_as_away(url) or super().left_alone(url, who, 0.0, beside)

    def _left_as_away(self, url: str) -> LeftAlone | None:
        for place in (self.place(url), url):
            away = self._away.get(place)
            left = 0.0 if away is None else away.until - self._clock()
            if away is not None and left > 0:
                return LeftAlone(f"{url}: is tried again in {left:.3g} s: {away.why}", left)
        return None

    def __call__(
        self, url: str, headers: Mapping[str, str], body: bytes, who: str | None = None, waited: float = 0.0
    ) -> Answered:
        left_alone = self._left_as_away(url)
        if left_alone is not None:
            raise left_alone
        try:
            answered = super().__call__(url, headers, body, who, 0.0)
        except (LeftAlone, Unread):
            raise
        except NotAnswered as error:
            place = url if isinstance(error, Unsigned) else self.place(url)
            raise self._put_off(url, place, str(error).removeprefix(f"{url}: ")) from error
        if (why := self.why_away(answered)) is not None:
            raise self._put_off(url, self.place(url), why, _retry_after(answered.headers))
        self.is_back(url)
        return answered

    def why_away(self, answered: Answered) -> str | None:
        """Why nothing takes the message there, by an answer that says so."""
        is_away = answered.status in _FROM_GATEWAYS and not speaks(answered)
        return f"answered {answered.status}" if is_away else None

    def place(self, url: str) -> str:
        """The host of an address: all of its addresses are away together."""
        return origin_of(url)[0].lower()

    def is_back(self, url: str) -> None:
        """The host answers."""
        for place in {self.place(url), url}:
            before = self._away.get(place)
            if before is not None:
                self._away.keep(place, None)
                if before.told_at is not None:
                    self.tell("source.back", host=place, seconds=round(self._clock() - before.since))

    def hangs(self, url: str, why: str) -> None:
        """Leave an address alone as one that is away: a message for it is not ready to leave, and ``why``."""
        self._put_off(url, url, why)

    def away(self, url: str) -> tuple[float, str] | None:
        """For how many seconds the host is away, and why; ``None``: it answers, or was not asked."""
        away = self._away.get(self.place(url)) or self._away.get(url)
        return None if away is None else (self._clock() - away.since, away.why)

    def try_now(self) -> None:
        """Try every host again with the next message for it."""
        self._away = Recent(_HOSTS)
        self.forget()

    def _put_off(self, url: str, place: str, why: str, asked: float | None = None) -> LeftAlone:
        now = self._clock()
        with self._guard:
            before = self._away.get(place)
            since = now if before is None else before.since
            seconds = pause_after(now - since) * random.uniform(0.8, 1.2)
            seconds = max(seconds, min(asked or 0.0, LONGEST_ASKED))
            began = before.began if before is not None else datetime.now(UTC).isoformat(timespec="seconds")
            told_at = None if before is None else before.told_at
            is_due = now + seconds - since >= TOLD_AFTER if told_at is None else now - told_at >= TOLD_AGAIN
            self._away.keep(place, _Away(since, now + seconds, why, began, now if is_due else told_at))
        if place != url:
            self.doubt(url)
        if is_due:
            self.tell("source.away", host=place, since=began, error=why)
        return LeftAlone(f"{url}: {why}; it is tried again in {seconds:.3g} s", seconds)


def _retry_after(headers: list[tuple[str, str]]) -> float | None:
    """The seconds that an answer asks to wait for."""
    value = next((value for name, value in headers if name.lower() == "retry-after"), "").strip()
    if value.isdigit():
        return float(value[:6])
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
