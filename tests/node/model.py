"""A queue server of a few dictionaries: what a store must say after any history of calls.

Times are in ms. It knows no columns: entries have a state, groups a lease, and a node that goes loses what it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from wsrm_mq.queue.policies import QueuePolicy

MOST_DEATHS: Final = 3
GRACE: Final = 60_000
Wanted = Callable[["Entry"], bool]


@dataclass(eq=False)
class Group:
    """An ordered group. What is leased of it is ``below`` a number."""

    key: int
    limit: int = 1
    holder: int | None = None
    fence: int = 0
    until: int | None = None
    below: int = 0
    blocked: bool = False
    waits_from: int | None = None
    waits_until: int | None = None
    served_at: int = 0

    def free(self) -> None:
        self.holder, self.until, self.below = None, None, 0

    def is_paused(self, now: int) -> bool:
        return (
            self.waits_until is not None and self.waits_from is not None and self.waits_from <= now < self.waits_until
        )

    def goes_on(self) -> None:
        self.blocked, self.waits_from, self.waits_until = False, None, None


@dataclass(eq=False)
class Entry:
    """``place``: the queue that it came to. ``kind``: what filters ask for."""

    position: int
    place: str
    message: int
    kind: str
    size: int
    priority: int
    expires_at: int | None = None
    waits_from: int | None = None
    waits_until: int | None = None
    group: Group | None = None
    number: int | None = None
    outcome: str | None = None
    reason: str | None = None
    own_holder: int | None = None
    own_fence: int = 0
    own_until: int | None = None
    deliveries: int = 0
    failures: int = 0
    cancels: int = 0
    deaths: int = 0
    settled_at: int | None = None

    @property
    def in_group(self) -> bool:
        """A dead letter of a group is one by itself."""
        return self.group is not None and self.outcome != "dead"

    @property
    def is_leased(self) -> bool:
        return self.holder is not None

    @property
    def holder(self) -> int | None:
        if self.in_group:
            assert self.group is not None
            assert self.number is not None
            return self.group.holder if self.number < self.group.below else None
        return self.own_holder

    @property
    def fence(self) -> int:
        return self.group.fence if self.in_group and self.group is not None else self.own_fence

    def free(self) -> None:
        self.own_holder = self.own_until = None


def by_turn(one: Entry) -> tuple[int, int]:
    return -one.priority, one.position


@dataclass
class Model:
    policies: dict[str, QueuePolicy]
    wall: int
    """The time of day, which is set."""
    steady: int
    """The clock of leases, which never is."""
    entries: dict[int, Entry] = field(default_factory=dict)
    groups: dict[tuple[str, str], Group] = field(default_factory=dict)
    known: dict[tuple[str, str], tuple[Entry, int]] = field(default_factory=dict)
    """Queue and id of a message → the entry that was put under it, and until when it is known."""
    highest: int = 0

    def policy(self, one: Entry) -> QueuePolicy:
        return self.policies[one.place]

    def live(self, queue: str) -> list[Entry]:
        return [one for one in self.entries.values() if one.place == queue and one.outcome is None]

    def letters(self, queue: str) -> list[Entry]:
        return [one for one in self.entries.values() if one.place == queue and one.outcome == "dead"]

    def unsettled_of(self, group: Group) -> list[Entry]:
        found = [one for one in self.entries.values() if one.group is group and one.outcome is None]
        return sorted(found, key=lambda one: one.number or 0)

    def head(self, group: Group) -> Entry | None:
        return next(iter(self.unsettled_of(group)), None)

    def state(self, one: Entry) -> tuple[str, str | None]:
        """The state that a look shows, and its reason."""
        if one.outcome == "dead":
            return "dead", one.reason
        if one.in_group:
            assert one.group is not None
            if one.group.blocked:
                return "held", "sequence"
            if one.group.is_paused(self.wall):
                return "held", "backoff"
        elif one.waits_until is not None:
            return "held", "scheduled" if one.waits_from is None else "backoff"
        return ("leased", None) if one.is_leased else ("ready", None)

    # putting

    def put(self, one: Entry, group: str | None, ttl: int | None) -> None:
        policy = self.policies[one.place]
        lasts = ttl if ttl is not None else None if policy.ttl is None else round(policy.ttl * 1000)
        one.expires_at = None if lasts is None else self.wall + lasts
        if group is not None:
            one.group = self.groups.setdefault((one.place, group), Group(len(self.groups)))
            one.number, one.group.limit = one.group.limit, one.group.limit + 1
        self.entries[one.position] = one
        self.highest = max(self.highest, one.position)

    # leasing

    def lease(self, queue: str, holder: int, most: int, max_bytes: int | None, wanted: Wanted | None) -> list[Entry]:
        policy = self.policies[queue]
        fits = wanted or (lambda _one: True)
        loose = [one for one in self.live(queue) if not one.in_group and self.state(one)[0] == "ready" and fits(one)]
        runs = [[one] for one in sorted(loose, key=by_turn)[:most]]
        runs += self._runs(queue, most, fits)[: most if wanted is None else None]
        runs.sort(key=lambda run: by_turn(run[0]))
        until = None if policy.lease is None else self.steady + round(policy.lease * 1000)
        found: list[Entry] = []
        for run in runs:
            taken = _fitting(run[: most - len(found)], sum(one.size for one in found), max_bytes)
            self._take(taken, holder, until, policy)
            found += taken
            if len(taken) < len(run) or len(found) >= most:
                break
        return found

    def _runs(self, queue: str, most: int, fits: Wanted) -> list[list[Entry]]:
        """What free groups begin with that fits."""
        free = [
            group
            for (name, _), group in self.groups.items()
            if name == queue and group.holder is None and not group.blocked and not group.is_paused(self.wall)
        ]
        runs = {group: run for group in free if (run := list(takewhile(fits, self.unsettled_of(group)))[:most])}
        return [runs[group] for group in sorted(runs, key=lambda group: (group.served_at, group.key))]

    def lease_letters(self, queue: str, holder: int, most: int) -> list[Entry]:
        found = [one for one in self.letters(queue) if not one.is_leased][:most]
        self._take(found, holder, self.steady + 30_000, QueuePolicy())
        return found

    def _take(self, run: list[Entry], holder: int, until: int | None, policy: QueuePolicy) -> None:
        for one in run:
            group = one.group if one.in_group else None
            if group is None:
                one.own_holder, one.own_until, one.own_fence = holder, until, one.own_fence + 1
                one.deliveries += 1
                if policy.delivery == "at_most_once" and one.outcome is None:
                    one.outcome, one.own_until = "delivered", None
            elif group.holder is None:
                group.holder, group.until, group.served_at = holder, until, self.wall
                group.fence += 1
                group.waits_from = group.waits_until = None
            if group is not None:
                group.below = (one.number or 0) + 1

    # settling: what a lease, or nobody's, may do

    def judge(self, one: Entry, fence: int | None, *, only_leased: bool = False) -> str:
        is_over = one.outcome is not None and one.outcome != "dead"
        if fence is not None and one.is_leased and one.fence == fence:
            return "settled" if not is_over or one.group is None else "already_settled"
        if is_over and fence in (None, one.fence):
            return "already_settled"
        if fence is not None:
            return "lost"
        if not one.is_leased:
            return "not_yours" if only_leased else "settled"
        return "settled" if self.policy(one).leasing == "sublet" else "not_yours"

    def _is_head(self, one: Entry) -> bool:
        assert one.group is not None
        return self.head(one.group) is one

    def ack(self, one: Entry) -> str:
        if one.outcome == "dead":
            self._discard_letter(one, "taken")
        elif one.in_group:
            if not self._is_head(one):
                return "out_of_order"
            one.deliveries += 1
            self._gone(one, "delivered", None)
        else:
            one.free()
            one.outcome = "delivered"
        return "settled"

    def release(self, one: Entry) -> str:
        if one.in_group:
            one.cancels += 1
            self._return_from(one)
        else:
            one.free()
            one.cancels += 1
        most = self.policy(one).max_cancels
        if one.outcome is None and most is not None and one.cancels >= most:
            self.put_aside(one, "max_cancels")
        elif not one.in_group:
            self._over_limits(one)
        return "settled"

    def nack(self, one: Entry) -> str:
        if one.in_group:
            if not self._is_head(one):
                return "out_of_order"
            self._head_failed(one)
            return "settled"
        one.free()
        if one.outcome == "delivered":  # at most once
            return "settled"
        one.failures, one.deaths = one.failures + 1, 0
        if one.outcome is None and not self._over_limits(one):
            self._ladder(one)
        return "settled"

    def reject(self, one: Entry, reason: str) -> str:
        one.free()
        if one.outcome != "delivered":
            self.put_aside(one, reason)
        return "settled"

    def renew(self, one: Entry) -> str:
        policy = self.policy(one) if one.outcome != "dead" else QueuePolicy()
        at_most_once = policy.delivery == "at_most_once"
        until = None if policy.lease is None or at_most_once else self.steady + round(policy.lease * 1000)
        if one.in_group and one.group is not None:
            one.group.until = until
        else:
            one.own_until = until
        return "settled"

    def purge(self, queue: str, lower: int, upper: int) -> tuple[int, int]:
        within = [one for one in self.live(queue) if lower <= one.position <= upper]
        leased = [one for one in within if one.is_leased]
        for one in within:
            if one not in leased:
                self._gone(one, "purged", "purged")
        return len(within) - len(leased), len(leased)

    def redrive(self, one: Entry, position: int) -> None:
        """``position``: where it is now."""
        if one.group is not None:
            one.outcome, one.reason = "discarded", "replayed"
            again = Entry(position, one.place, one.message, one.kind, one.size, 4)
            again.group, again.number = one.group, one.group.limit
            one.group.limit += 1
            self.entries[position] = again
            self.highest = position
            return
        one.outcome = one.reason = one.expires_at = one.waits_from = one.waits_until = None
        one.failures = one.cancels = one.deaths = 0

    # what goes for good

    def is_busy(self, queue: str) -> bool:
        """A consumer has leased something of it."""
        of_it = [one for one in self.entries.values() if one.place == queue and one.outcome != "dead"]
        return any(one.own_holder is not None for one in of_it) or any(
            group.holder is not None for (name, _), group in self.groups.items() if name == queue
        )

    def delete(self, queue: str) -> int:
        """Its messages are there under another name; answers how many were purged."""
        gone = f"{queue} deleted {len(self.policies)}"
        self.policies[gone] = self.policies[queue]
        live = self.live(queue)
        for one in live:
            one.free()
            self._gone(one, "purged", "queue_deleted")
        for one in self.entries.values():
            one.place = gone if one.place == queue else one.place
        self.groups = {(gone if name == queue else name, key): group for (name, key), group in self.groups.items()}
        self.known = {key: found for key, found in self.known.items() if key[0] != queue}
        return len(live)

    def note_settled(self) -> None:
        for one in self.entries.values():
            is_over = one.outcome not in (None, "dead")
            one.settled_at = (one.settled_at or self.wall) if is_over else None

    def is_due(self, one: Entry) -> bool:
        """It may be forgotten that it was settled."""
        kept = max(GRACE, *(round(1000 * part) for part in (self.policy(one).retain, self.policy(one).dedupe_window)))
        return one.settled_at is not None and one.settled_at + kept <= self.wall

    def pruned(self, gone: Iterable[Entry]) -> None:
        for one in gone:
            del self.entries[one.position]

    def may_keep(self, one: Entry) -> bool:
        """Its message has a body as long as this one is kept: it is not settled, or was given up or handed out, which
        retention has still to follow."""
        return one.outcome not in ("delivered", "purged") or self.policy(one).delivery == "at_most_once"

    def _discard_letter(self, one: Entry, reason: str) -> None:
        one.free()
        one.outcome, one.reason = "discarded", reason

    def put_aside(self, one: Entry, reason: str) -> None:
        if one.outcome == "dead":
            self._discard_letter(one, reason)
        else:
            self._gone(one, "dead" if self.policy(one).dead_letter else "discarded", reason)

    def _gone(self, one: Entry, outcome: str, reason: str | None) -> None:
        group = one.group
        was_head = group is not None and self._is_head(one)
        one.outcome, one.reason, one.own_holder, one.own_until = outcome, reason, None, None
        if group is not None and was_head:
            group.goes_on()
        if group is not None and not any((left.number or 0) < group.below for left in self.unsettled_of(group)):
            group.free()

    def _return_from(self, one: Entry, *, was_delivery: bool = True) -> None:
        """It and what was leased behind it go back."""
        group = one.group
        assert group is not None
        assert one.number is not None
        is_head = self._is_head(one)
        for other in self.unsettled_of(group):
            if one.number <= (other.number or 0) < group.below:
                other.deliveries += was_delivery
        group.below = min(group.below, one.number)
        if is_head:
            group.free()
            self._over_limits(one)

    # what fails

    def _head_failed(self, head: Entry, *, is_death: bool = False) -> None:
        """The holder of a group has failed with its head; all that it had goes back."""
        group = head.group
        assert group is not None
        for other in self.unsettled_of(group):
            other.deliveries += (other.number or 0) < group.below
        group.free()
        if is_death:
            head.deaths += 1
            head.failures += head.deaths >= MOST_DEATHS
        else:
            head.failures, head.deaths = head.failures + 1, 0
        if not self._over_limits(head) and (not is_death or head.deaths >= MOST_DEATHS):
            self._ladder(head)

    def _ladder(self, one: Entry) -> None:
        policy = self.policy(one)
        ladder = policy.dispatch.retry
        group = one.group
        if one.failures <= len(ladder):
            until = self.wall + ladder[one.failures - 1]
            if group is not None:
                group.waits_from, group.waits_until = self.wall, until
            elif until > self.wall:
                one.waits_from, one.waits_until = self.wall, until
        elif group is not None and policy.on_poison == "block":
            group.blocked = True
        else:
            self.put_aside(one, "max_failures")

    def _over_limits(self, one: Entry) -> bool:
        most = self.policy(one).max_deliveries
        if one.outcome is not None or most is None or one.deliveries < most:
            return False
        self.put_aside(one, "max_deliveries")
        return True

    # what comes of time, and of those that go

    def sweep(self) -> None:
        for one in self.entries.values():
            if one.outcome is None and one.waits_until is not None and one.waits_until <= self.wall:
                one.waits_from = one.waits_until = None
        self._end_leases()
        for one in list(self.entries.values()):
            self._expire(one)

    def turned_back(self) -> None:
        """Waits that begin in the future are over."""
        for one in self.entries.values():
            if one.waits_from is not None and one.waits_from > self.wall:
                one.waits_from = one.waits_until = None

    def _end_leases(self) -> None:
        over = [one for one in self.entries.values() if one.own_until is not None and one.own_until <= self.steady]
        for holder in {one.own_holder for one in over}:
            self._end([one for one in over if one.own_holder == holder], is_death=False)
        for group in self.groups.values():
            head = self.head(group)
            if group.until is not None and group.until <= self.steady and head is not None:
                self._head_failed(head)

    def _end(self, found: list[Entry], *, is_death: bool) -> None:
        """The leases of one holder end: only the first that it had in each queue counts as failed."""
        heads: dict[tuple[str, bool], Entry] = {}
        for one in found:
            one.free()
            if one.outcome != "delivered":
                place = one.place, one.outcome == "dead"
                heads[place] = min(heads.get(place, one), one, key=by_turn)
        for head in heads.values():
            if is_death:
                head.deaths += 1
                head.failures += head.deaths >= MOST_DEATHS
            else:
                head.failures, head.deaths = head.failures + 1, 0
            if head.outcome is None and not self._over_limits(head) and (not is_death or head.deaths >= MOST_DEATHS):
                self._ladder(head)
        for one in found:
            self._expire(one)

    def _expire(self, one: Entry) -> None:
        if one.outcome is None and not one.is_leased and one.expires_at is not None and one.expires_at <= self.wall:
            self.put_aside(one, "ttl_expired")

    def died(self, holder: int) -> None:
        self._end([one for one in self.entries.values() if one.own_holder == holder], is_death=True)
        for group in self.groups.values():
            head = self.head(group)
            if group.holder == holder and head is not None:
                self._head_failed(head, is_death=True)

    def hand_back(self, found: Iterable[Entry]) -> None:
        """A subscription is closed whose consumer has not got these: they are as before."""
        for one in found:
            if one.in_group:
                self._return_from(one, was_delivery=False)
            else:
                one.free()
                one.deliveries -= one.outcome != "delivered"

    def left(self, holder: int) -> None:
        """It has closed: all that it had goes back, and is no failure."""
        for one in self.entries.values():
            if one.own_holder == holder:
                one.free()
        for group in self.groups.values():
            if group.holder == holder:
                for other in self.unsettled_of(group):
                    other.deliveries += (other.number or 0) < group.below
                group.free()


def _fitting(run: Iterable[Entry], size: int, max_bytes: int | None) -> list[Entry]:
    found = []
    for one in run:
        size += one.size
        if max_bytes is not None and max_bytes < size and size > one.size:
            break
        found.append(one)
    return found
