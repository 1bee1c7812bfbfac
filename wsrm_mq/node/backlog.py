"""The messages that one subscription has leased: never more than were granted."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from wsrm_mq.node.message import Message


@dataclass(slots=True, eq=False)
class Held:
    """A message that is leased. ``leased_until``: ms of the clock of leases; ``None``: until its holder goes."""

    message: Message
    leased_until: int | None
    lane: int | None
    """The key of its ordered group."""
    is_acknowledged: bool = False
    handed_at: int = 0
    """The time when its consumer got it, by the same clock."""
    is_renewed: bool = False
    """It lasts longer than it did when the message came."""

    @property
    def position(self) -> int:
        return self.message.position

    @property
    def fence(self) -> int | None:
        return self.message.lease.fence


class Backlog:
    """Messages that wait for their turn at the consumer, in order, and those that it has."""

    def __init__(self) -> None:
        self._waiting: deque[Held] = deque()
        self._handed: dict[int, Held] = {}

    @property
    def unsettled(self) -> int:
        return len(self._waiting) + len(self._handed)

    @property
    def waiting(self) -> list[Held]:
        """The messages that wait to be handed over."""
        return list(self._waiting)

    @property
    def next(self) -> Held | None:
        """The first of those that wait."""
        return self._waiting[0] if self._waiting else None

    def arrive(self, messages: Iterable[Held]) -> None:
        self._waiting.extend(messages)

    def hand_over(self, now: int, busy: Collection[int | None] = ()) -> Held | None:
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

    def hand_over_all(self) -> list[Held]:
        waiting = list(self._waiting)
        self._handed.update((message.position, message) for message in waiting)
        self._waiting.clear()
        return waiting

    def handed(self, position: int) -> Held | None:
        """The message at ``position``, if the consumer has it."""
        return self._handed.get(position)

    @property
    def at_consumer(self) -> list[Held]:
        """The messages that the consumer has."""
        return list(self._handed.values())

    def has_before(self, message: Held) -> bool:
        """Whether the consumer has one of the same run of an ordered group before it, and has not acknowledged that."""
        if message.lane is None:
            return False
        for one in self._handed.values():  # those of a run in their order
            if (one.lane, one.fence) == (message.lane, message.fence) and not one.is_acknowledged:
                return one.position < message.position
        return False

    def drop(self, positions: Collection[int]) -> None:
        """The leases of these, which wait, are gone."""
        if positions:
            self._waiting = deque(one for one in self._waiting if one.position not in positions)

    def settled(self, position: int) -> None:
        """The consumer has this one no longer; also of one that it never had."""
        self._handed.pop(position, None)

    def group_returned(self, lane: int | None, fence: int | None) -> None:
        """Drop the messages of this group that wait under ``fence``: they went back with one before them. What was
        leased of the group since then has another fence."""
        if lane is not None:
            given_back = lane, fence
            self._waiting = deque(one for one in self._waiting if (one.lane, one.fence) != given_back)

    def forget_ended(self, now: int) -> list[Held]:
        """The consumer has no longer what it did not settle within its lease: answers that."""
        over = [at for at, one in self._handed.items() if one.leased_until is not None and one.leased_until <= now]
        return [self._handed.pop(position) for position in over]

    def renewed_at(self, lease: int | None, but: Collection[int | None] = ()) -> int | None:
        """When leases of what waits are to be renewed: half of the first is over then. ``None``: none is to be.
        ``lease``: ms that one lasts, ``None``: until its holder goes. ``but``: of no message of these groups."""
        return min((at for at, _message in self._halves(lease, but)), default=None)

    def to_renew(self, now: int, lease: int | None, but: Collection[int | None] = ()) -> list[Held]:
        """The messages that wait and whose lease is half over."""
        return [message for at, message in self._halves(lease, but) if at <= now]

    def _halves(self, lease: int | None, but: Collection[int | None]) -> list[tuple[int, Held]]:
        if lease is None:
            return []
        waiting = (one for one in self._waiting if one.lane not in but)
        return [(one.leased_until - lease // 2, one) for one in waiting if one.leased_until is not None]

    def renewed(self, message: Held, until: int | None) -> None:
        """The lease of a message lasts until then; so does that of what was leased with it of its ordered group."""
        message.leased_until, message.is_renewed = until, True
        if message.lane is not None:
            for one in (*self._waiting, *self._handed.values()):
                if (one.lane, one.fence) == (message.lane, message.fence):
                    one.leased_until, one.is_renewed = until, True

    def leave(self) -> tuple[list[Held], list[Held]]:
        """Empty the backlog; answers the messages that waited, and those that the consumer has."""
        waiting, handed = list(self._waiting), list(self._handed.values())
        self._waiting.clear()
        self._handed.clear()
        return waiting, handed
