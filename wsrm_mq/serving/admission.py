"""The admission of connections: a bound on their number, and the choice of one that makes room for the next."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, Protocol

SPARE_FILES: Final = 256
"""Files that a process needs beside its connections: the store's, those of large bodies, the application's own."""
_REFUSED_PART: Final = 10
"""One connection in so many more may be open, to be answered that there is no room, and to have that read."""
_TELL_SECONDS: Final = 60.0
_AT_ONCE: Final = 64
_REST_SECONDS: Final = 0.05
"""The time between two looks for a connection that may go, where none might."""


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Times in seconds."""

    connections: int = 1_000
    """The most connections at a time."""
    keep_alive: float = 120.0
    """The time for which a connection is kept without a request."""
    request_seconds: float = 60.0
    """The longest time for the head of a request, for a pause in its body, and for a pause in the reading of its
    answer."""
    head_seconds: float = 1.0
    """A head that takes longer is no longer safe where connections are scarce."""


class Closable(Protocol):
    def may_go(self, now: float) -> tuple[int, float] | None: ...

    def turn_away(self, *, patiently: bool) -> object: ...


class Admission:
    """Decides which connections may stay open. ``tell`` gets events for the operator."""

    def __init__(self, bounds: ConnectionBounds, tell: Callable[..., None]) -> None:
        self.bounds = bounds
        self.tell = tell
        self.connections: Collection[Closable] = ()
        """A live view of those that are open."""
        self._leaving: set[Closable] = set()
        """Open connections that are turned away, and may still read the answer."""
        self._goes_next: list[tuple[tuple[int, float], Closable]] = []
        """Connections in the order in which they go, the last first."""
        self._looks_again_at = 0.0
        self._closed = self._refused = 0
        self._told_at: float | None = None
        self._lacks_files = False

    def admit(self, newcomer: Closable, now: float) -> bool:
        """Whether ``newcomer``, which is open already, may stay: there is room, or another one makes room."""
        if self._kept() <= self.bounds.connections:
            return True
        goes = self._least(newcomer, now)
        self._closed += goes is not None
        self._refused += goes is None
        self._turn_away(goes or newcomer)
        return goes is not None

    def _kept(self) -> int:
        return len(self.connections) - len(self._leaving)

    def left(self, one: Closable) -> None:
        """Forget ``one``, which is closed."""
        self._leaving.discard(one)

    def _turn_away(self, one: Closable) -> None:
        patiently = len(self._leaving) < max(1, self.bounds.connections // _REFUSED_PART)
        self._leaving.add(one)
        one.turn_away(patiently=patiently)

    def _least(self, newcomer: Closable, now: float) -> Closable | None:
        """The one that is closed most readily. Looked for many at a time: in a flood it costs little for each."""
        while True:
            while self._goes_next:
                rank, one = self._goes_next.pop()
                if one is not newcomer and one.may_go(now) == rank:
                    return one
            if now < self._looks_again_at:
                return None
            ranked = [(found, one) for one in self.connections if one is not newcomer and (found := one.may_go(now))]
            self._goes_next = sorted(ranked, key=itemgetter(0))[_AT_ONCE - 1 :: -1]
            if not self._goes_next:
                self._looks_again_at = now + _REST_SECONDS

    def look(self, now: float) -> None:
        """Tell that connections or files are scarce, at most once a minute."""
        self._look_for_files()
        if not (self._closed or self._refused):
            return
        if self._told_at is None or now - self._told_at >= _TELL_SECONDS:
            self._told_at = now
            self.tell("serve.crowded", connections=self._kept(), closed=self._closed, refused=self._refused)
            self._closed = self._refused = 0

    def _look_for_files(self) -> None:
        """A connection for which no file is left is closed by the event loop, which says nothing of it."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if not self._lacks_files:
                self.tell("serve.no_files", error=error.strerror, limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            self._lacks_files = True
            return
        if self._lacks_files:
            self._lacks_files = False
            self.tell("serve.files_again")


def files_for(connections: int) -> tuple[int, int]:
    """Raise the limit of open files for ``connections``, as far as the system allows. Answers the number of connections
    that it is enough for, and the limit."""
    needed = connections + connections // _REFUSED_PART + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections, soft
    most = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most == needed:
        return connections, most
    room = most - min(SPARE_FILES, most // 2)
    return max(1, room * _REFUSED_PART // (_REFUSED_PART + 1)), most
