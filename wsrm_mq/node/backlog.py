"""The messages that one subscription has leased: never more than were granted."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Generic, Protocol, TypeVar


class Leased(Protocol):
    """``leased_until``: ms of the clock of leases; ``None``: the lease lasts until its holder goes. ``lane``: key of
    its ordered group. ``is_renewed``: it is no longer as long as at first."""

    leased_until: int | None
    is_acknowledged: bool
    is_renewed: bool

    @property
    def position(self) -> int: ...
    @property
    def lane(self) -> int | None: ...
    @property
    def fence(self) -> int | None: ...


T = TypeVar("T", bound=Leased)


class Backlog(Generic[T]):
    """Messages that wait for their turn at the consumer, in order, and those that it has. ``lease``: ms that a lease
    lasts, ``None``: until its holder goes."""

    def __init__(self, granted: int, lease: int | None) -> None:
        self.granted = granted
        self._lease = lease
        self._waiting: deque[T] = deque()
        self._handed: dict[int, T] = {}

    @property
    def unsettled(self) -> int:
        return len(self._waiting) + len(self._handed)

    @property
    def room(self) -> int:
        return self.granted - self.unsettled

    @property
    def has_next(self) -> bool:
        return bool(self._waiting)

    @property
    def waiting(self) -> list[T]:
        """The messages that wait to be handed over."""
        return list(self._waiting)

    @property
    def next(self) -> T | None:
        """The first of those that wait."""
        return self._waiting[0] if self._waiting else None

    def arrive(self, messages: Iterable[T]) -> None:
        self._waiting.extend(messages)

    def hand_over(self, now: int, busy: Collection[int | None] = ()) -> T | None:
        """The next message whose lease lasts and whose group is not ``busy``. Those whose lease is over are dropped:
        others may have them."""
        if any(one.leased_until is not None and one.leased_until <= now for one in self._waiting):
            self._waiting = deque(one for one in self._waiting if one.leased_until is None or one.leased_until > now)
        for message in self._waiting:
            if message.lane is None or message.lane not in busy:
                self._handed[message.position] = message  # first: another thread may count what is unsettled
                self._waiting.remove(message)
                return message
        return None

    def hand_over_all(self) -> list[T]:
        waiting = list(self._waiting)
        self._handed.update((message.position, message) for message in waiting)
        self._waiting.clear()
        return waiting

    def handed(self, position: int) -> T | None:
        """The message at ``position``, if the consumer has it."""
        return self._handed.get(position)

    @property
    def handed_over(self) -> list[int]:
        """The positions of the messages that the consumer has."""
        return list(self._handed)

    @property
    def at_consumer(self) -> list[T]:
        """The messages that the consumer has."""
        return list(self._handed.values())

    def has_before(self, message: T) -> bool:
        """Whether the consumer has one of the same run of an ordered group before it, and has not acknowledged that."""
        run = message.lane, message.fence
        return message.lane is not None and any(
            (one.lane, one.fence) == run and one.position < message.position and not one.is_acknowledged
            for one in self._handed.values()
        )

    def drop(self, positions: Collection[int]) -> None:
        """The leases of these, which wait, are gone."""
        if positions:
            self._waiting = deque(one for one in self._waiting if one.position not in positions)

    def settled(self, position: int) -> None:
        """The consumer has this one no longer; also of one that it never had."""
        self._handed.pop(position, None)

    def group_returned(self, lane: int | None, fence: int | None) -> None:
        """The waiting part of an ordered group was given back with a message before it, which had the same ``fence``.
        What was leased of it since then has another."""
        if lane is not None:
            given_back = lane, fence
            self._waiting = deque(one for one in self._waiting if (one.lane, one.fence) != given_back)

    def forget_ended(self, now: int) -> list[T]:
        """The consumer has no longer what it did not settle within its lease: answers that."""
        over = [at for at, one in self._handed.items() if one.leased_until is not None and one.leased_until <= now]
        return [self._handed.pop(position) for position in over]

    def renewed_at(self, but: Collection[int | None] = ()) -> int | None:
        """When leases of what waits are to be renewed: half of the first is over then. ``None``: none is to be.
        ``but``: of no message of these groups."""
        first = min((until for until, _message in self._ends(but)), default=None)
        return None if first is None or self._lease is None else first - self._lease // 2

    def to_renew(self, now: int, but: Collection[int | None] = ()) -> list[T]:
        """The messages that wait and whose lease is half over."""
        half = (self._lease or 0) // 2
        return [message for until, message in self._ends(but) if until - half <= now]

    def _ends(self, but: Collection[int | None]) -> list[tuple[int, T]]:
        if self._lease is None:
            return []
        waiting = (one for one in self._waiting if one.lane not in but)
        return [(one.leased_until, one) for one in waiting if one.leased_until is not None]

    def renewed(self, message: T, until: int | None) -> None:
        """The lease of a message lasts until then; so does that of what was leased with it of its ordered group."""
        message.leased_until, message.is_renewed = until, True
        if message.lane is not None:
            for one in (*self._waiting, *self._handed.values()):
                if (one.lane, one.fence) == (message.lane, message.fence):
                    one.leased_until, one.is_renewed = until, True

    def leave(self) -> tuple[list[T], list[T]]:
        """Empty the backlog; answers the messages that waited, and those that the consumer has."""
        waiting, handed = list(self._waiting), list(self._handed.values())
        self._waiting.clear()
        self._handed.clear()
        return waiting, handed
