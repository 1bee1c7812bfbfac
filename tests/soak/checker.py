"""What clients were told against what the service saw: a pure function, which knows nothing of the store.

``plant`` puts one mistake into its input, to show that it would be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.crash.checker import problems

ORPHANED_SECONDS: Final = 20.0
"""An operation of the service takes 0.3 s at most; a death is noticed, and a claim that no hand has is taken up, within
a few seconds, on a machine that has much else to do too."""


@dataclass(frozen=True)
class Evidence:
    """Of one sequence."""

    identifier: str
    acknowledged: frozenset[int]
    effects: Sequence[int]
    """Its numbers in the order of commit."""
    calls: Sequence[tuple[int, bool]]
    """Number, and whether it was marked as a redelivery, in the order of the calls."""
    given_up: frozenset[int] = frozenset()
    """Numbers that an operator was told are dead letters now."""
    idle: float = 0.0
    """So many seconds, at the longest, an instance that lives owned it with something to deliver, and nothing of it
    changed."""


@dataclass(frozen=True)
class Verdict:
    acknowledged: int
    lost: int
    repeated: int
    """Effects, and calls of what was called before without a mark."""
    disordered: int
    orphaned: int
    """Sequences that were owned and that nothing ran."""
    found: tuple[str, ...]
    """Each problem in words."""

    @property
    def is_clean(self) -> bool:
        return not self.found

    def line(self, kills: int) -> str:
        return (
            f"soak: {self.acknowledged} acknowledged, {kills} kills, "
            f"{self.lost} lost, {self.repeated} repeated, {self.disordered} disordered, {self.orphaned} orphaned"
        )


def judge(evidence: Iterable[Evidence]) -> Verdict:
    count: Counter[str] = Counter()
    found: list[str] = []
    acknowledged = 0
    for one in evidence:
        acknowledged += len(one.acknowledged)
        for problem in problems(one.acknowledged - one.given_up, one.effects, one.calls):
            count[problem.partition(":")[0]] += 1
            found.append(f"{one.identifier}: {problem}")
        if one.idle > ORPHANED_SECONDS:
            count["orphaned"] += 1
            found.append(f"{one.identifier}: orphaned: it was owned for {one.idle:.0f} s, and nothing ran it")
    return Verdict(
        acknowledged,
        count["lost"],
        count["repeated"] + count["unmarked"],
        count["disordered"],
        count["orphaned"],
        tuple(found),
    )


def _lose(one: Evidence) -> Evidence:
    lost = next(n for n in one.effects if n in one.acknowledged)
    return replace(one, effects=[n for n in one.effects if n != lost], calls=[c for c in one.calls if c[0] != lost])


def _repeat(one: Evidence) -> Evidence:
    return replace(one, effects=[*one.effects, one.effects[-1]])


def _disorder(one: Evidence) -> Evidence:
    first, second, *rest = one.effects
    return replace(one, effects=[second, first, *rest])


def _orphan(one: Evidence) -> Evidence:
    return replace(one, idle=2 * ORPHANED_SECONDS)


PLANTS: Final[dict[str, Callable[[Evidence], Evidence]]] = {
    "loss": _lose,
    "repeat": _repeat,
    "disorder": _disorder,
    "orphan": _orphan,
}


def plant(mistake: str, evidence: Sequence[Evidence]) -> list[Evidence]:
    """The evidence with one mistake in it. ``ValueError`` where nothing is there to plant it in."""
    for at, one in enumerate(evidence):
        if len(set(one.effects) & one.acknowledged) > 1:
            return [*evidence[:at], PLANTS[mistake](one), *evidence[at + 1 :]]
    raise ValueError("no sequence has two effects")
