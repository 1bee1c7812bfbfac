"""What clients were told against what the service saw: a pure function, which knows nothing of the store.

``plant`` puts one mistake into its input, to show that it would be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.crash.checker import problems

__all__ = ["PLANTS", "Evidence", "Verdict", "judge", "plant"]


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


@dataclass(frozen=True)
class Verdict:
    acknowledged: int
    lost: int
    repeated: int
    """Effects, and calls of what was called before without a mark."""
    disordered: int
    found: tuple[str, ...]
    """Each problem in words."""

    @property
    def is_clean(self) -> bool:
        return not self.found

    def line(self, kills: int) -> str:
        return (
            f"soak: {self.acknowledged} acknowledged, {kills} kills, "
            f"{self.lost} lost, {self.repeated} repeated, {self.disordered} disordered"
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
    return Verdict(
        acknowledged, count["lost"], count["repeated"] + count["unmarked"], count["disordered"], tuple(found)
    )


def _lose(one: Evidence) -> Evidence:
    lost = next(n for n in one.effects if n in one.acknowledged)
    return replace(one, effects=[n for n in one.effects if n != lost], calls=[c for c in one.calls if c[0] != lost])


def _repeat(one: Evidence) -> Evidence:
    return replace(one, effects=[*one.effects, one.effects[-1]])


def _disorder(one: Evidence) -> Evidence:
    first, second, *rest = one.effects
    return replace(one, effects=[second, first, *rest])


PLANTS: Final[dict[str, Callable[[Evidence], Evidence]]] = {"loss": _lose, "repeat": _repeat, "disorder": _disorder}


def plant(mistake: str, evidence: Sequence[Evidence]) -> list[Evidence]:
    """The evidence with one mistake in it. ``ValueError`` where nothing is there to plant it in."""
    for at, one in enumerate(evidence):
        if len(set(one.effects) & one.acknowledged) > 1:
            return [*evidence[:at], PLANTS[mistake](one), *evidence[at + 1 :]]
    raise ValueError("no sequence has two effects")
