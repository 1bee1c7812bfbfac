"""The addresses that may be sent to now: a host that hangs holds one thread at a time, and strangers' hosts hold none
of the threads of others.

Otherwise a partner whose endpoint takes connections and answers nothing would keep every thread that sends, and the
acknowledgements and replies of all others would wait behind its own (SEC-018). So there are two lanes. Hosts that have
answered once, by host and port, have a lane of their own, from which no number of strangers takes anything. Hosts that
have never answered have the other: each host and port has one thread, and all ports of a host, and all that one sender
names, have no more than they leave to the next (``shares``). Messages that have waited long, or were tried in vain,
have a small part of that lane: a message that comes after a thousand that hang does not wait for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from wsrm_mq.delivery.posted import Answered, Post
from wsrm_mq.errors import LeftAlone, NotAnswered
from wsrm_mq.remembered import Recent
from wsrm_mq.shares import Shares

HUNG_SECONDS: Final = 1.0
"""Seconds; a request that fails more quickly keeps no thread from others."""
SOON_SECONDS: Final = 0.05
"""The least for which a host is left alone that is being tried."""
KNOWN: Final = 64
STRANGERS: Final = 128
"""The numbers of posts at a time: to hosts that have answered, and to hosts that have not."""
SENDING: Final = KNOWN + STRANGERS
LATE: Final = 32
"""The number of posts to strangers whose turn comes again, or late."""
LATE_SECONDS: Final = 60.0
"""Twice as long as a host that hangs keeps its thread, as it is usually set."""
ASKS_SECONDS: Final = (1.0, 5.0, 60.0)
"""The waits of a message that finds no room. It asks again after half the time that it has waited: at least the first
of these, at most the second, and the third once it is late."""
LONGEST_SECONDS: Final = 3_600.0
"""The longest time for which a host is left alone that has never answered."""
GIVEN_UP_SECONDS: Final = 86_400.0
"""The time after which a message is given up whose host has never answered."""
_HOSTS: Final = 4_096


@lru_cache(256)
def origin_of(url: str) -> tuple[str, str]:
    """The origin of a URL as it is written, and its host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}", parts.hostname or ""


@dataclass(eq=False, slots=True)
class _Place:
    """A host and port, as it is known here. Until it ``answers`` one thread at a time tries it, and the try began at
    ``tried_at``."""

    has_answered: bool = False
    """It has answered once."""
    answers: bool = False
    tried_at: float | None = None
    hung_for: float = 0.0
    """The seconds that the last attempt took, if it hung."""
    hung: int = 0
    """The number of attempts in a row that hung."""
    until: float = float("-inf")
    """The time until which it is left alone."""
    why: str = "it has not answered yet"


class _Going(NamedTuple):
    """A post on its way."""

    place: _Place
    begun: float
    loans: tuple[tuple[Shares, tuple[object, ...]], ...]
    is_first: bool
    """It is the one that tries whether the host answers."""


class Patient:
    """Posts by ``post`` to addresses that may be posted to now; for any other it raises ``LeftAlone`` and sends
    nothing. ``knows`` says whether an origin, ``http://host:port``, has answered before this process began."""

    longest = LONGEST_SECONDS

    def __init__(
        self,
        post: Post,
        monotonic: Callable[[], float] = time.monotonic,
        knows: Callable[[str], bool] = lambda _origin: False,
        on_room: Callable[[], object] = lambda: None,
    ) -> None:
        """``on_room`` is called when something is over, and something else was left alone before."""
        self._on_room = on_room
        self._has_left = False
        self._post = post
        self._monotonic = monotonic
        self._knows = knows
        self.forget()
        self._of_known, self._of_strangers, self._of_late = Shares(KNOWN), Shares(STRANGERS), Shares(LATE)
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Know no host that hangs any more."""
        self._known: Recent[str, _Place] = Recent(_HOSTS)
        self._strangers: Recent[str, _Place] = Recent(_HOSTS)

    def for_sender(self, who: str | None, waited: float = 0.0) -> Post:
        """A poster for messages that are sent because of ``who`` and have ``waited`` so many seconds."""
        return partial(self, who=who, waited=waited)

    def left_alone(self, url: str, who: str | None, waited: float = 0.0, beside: int = 0) -> LeftAlone | None:
        """The reason why nothing is sent there now, where ``beside`` others are about to be sent; ``None``: it may
        be."""
        place, host = self._place(url)
        with self._lock:
            return self._left_alone(url, place, self._loans(place, url, host, who, waited), waited, beside)

    def __call__(
        self, url: str, headers: Mapping[str, str], body: bytes, who: str | None = None, waited: float = 0.0
    ) -> Answered:
        going = self._enter(url, who, waited)
        why = ""
        try:
            answered = self._post(url, headers, body, who)
        except NotAnswered as error:
            why = str(error).removeprefix(f"{url}: ")
            raise
        else:
            self._answered(url, going.place)
            return answered
        finally:
            self._leave(going, why)

    def doubt(self, url: str) -> None:
        """Have one thread at a time try its host until that has answered again."""
        place, _host = self._place(url)
        with self._lock:
            place.answers = False

    def _place(self, url: str) -> tuple[_Place, str]:
        """The place to which ``url`` leads, and its host."""
        origin, host = origin_of(url)
        name = origin.lower()
        place = self._known.get(name) or self._strangers.get(name)
        if place is None:
            is_known = self._knows(origin)
            with self._lock:  # another thread may have met it meanwhile
                place = self._known.get(name) or self._strangers.get(name)
                if place is None:
                    place = _Place(has_answered=is_known, answers=is_known)
                    (self._known if is_known else self._strangers).keep(name, place)
        return place, host

    def _enter(self, url: str, who: str | None, waited: float) -> _Going:
        place, host = self._place(url)
        with self._lock:
            loans = self._loans(place, url, host, who, waited)
            left_alone = self._left_alone(url, place, loans, waited)
            if left_alone is not None:
                raise left_alone
            for shares, names in loans:
                shares.lend(*names)
            now, is_first = self._monotonic(), not place.answers
            if is_first:
                place.tried_at = now
            return _Going(place, now, loans, is_first)

    def _loans(
        self, place: _Place, url: str, host: str, who: str | None, waited: float
    ) -> tuple[tuple[Shares, tuple[object, ...]], ...]:
        """The shares that a post takes, each with the names that they are lent to."""
        sender = ("sender", who)
        if place.has_answered:
            return ((self._of_known, (place, sender)),)
        of_stranger = (self._of_strangers, (("host", host), sender))
        is_late = waited > LATE_SECONDS or place.hung > 0
        return (of_stranger, (self._of_late, (sender,))) if is_late else (of_stranger,)

    def _left_alone(
        self,
        url: str,
        place: _Place,
        loans: tuple[tuple[Shares, tuple[object, ...]], ...],
        waited: float,
        beside: int = 0,
    ) -> LeftAlone | None:
        now = self._monotonic()
        seconds, why = self._by_itself(place, now), place.why
        if seconds <= 0 and not all(shares.has_one(*names, beside=beside) for shares, names in loans):
            least, soon, late = ASKS_SECONDS
            most = soon if waited <= LATE_SECONDS else late
            seconds = SOON_SECONDS if place.has_answered else min(most, max(least, waited / 2))
            why = "as many as may be are on their way to it, to others that have not answered, or from its sender"
        if seconds <= 0:
            return None
        self._has_left = True
        is_given_up = waited > GIVEN_UP_SECONDS and not place.has_answered
        said = f"{url}: its host is left alone for {seconds:.3g} s: {why}"
        return LeftAlone(said, seconds, is_given_up=is_given_up)

    def _by_itself(self, place: _Place, now: float) -> float:
        """The seconds until one more thread may try the place, by itself; 0: now. A place that is being tried for the
        first time is asked for again after as long as the try has taken, so a long try causes few questions."""
        if place.answers:
            return 0.0
        if place.tried_at is not None:
            return max(SOON_SECONDS, place.hung_for, now - place.tried_at)
        return max(0.0, place.until - now)

    def _answered(self, url: str, place: _Place) -> None:
        if place.answers:
            return
        with self._lock:
            if not place.has_answered:
                self._known.keep(origin_of(url)[0].lower(), place)
            place.has_answered = place.answers = True
            place.hung_for, place.hung, place.tried_at = 0.0, 0, None

    def _leave(self, going: _Going, why: str) -> None:
        """``why`` it has not answered; empty where it has, or was not asked."""
        self._note(going, why)
        if self._has_left:
            self._has_left = False
            self._on_room()

    def _note(self, going: _Going, why: str) -> None:
        place = going.place
        with self._lock:
            for shares, names in going.loans:
                shares.take_back(*names)
            if going.is_first and place.tried_at == going.begun:
                place.tried_at = None
            if not why:
                return
            now = self._monotonic()
            took = now - going.begun
            place.why, place.hung_for = why, took if took >= HUNG_SECONDS else 0.0
            if place.hung_for:
                times = min(1 if place.has_answered else 2**place.hung, self.longest / took)
                place.answers, place.hung, place.until = False, place.hung + 1, now + place.hung_for * times
