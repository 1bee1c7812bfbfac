"""Holds what clients were told against what the service saw. It knows nothing of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise


def problems(acknowledged: Collection[int], effects: Sequence[int], calls: Iterable[tuple[int, bool]]) -> list[str]:
    """What is wrong with one sequence: ``effects`` are its numbers in the order of commit, ``calls`` are (number, was
    marked as a redelivery) in the order of the calls. An empty list is a clean bill."""
    found = [f"lost: {n} was acknowledged and has no effect" for n in sorted(set(acknowledged) - set(effects))]
    found += [f"repeated: {n} has {count} effects" for n, count in Counter(effects).items() if count > 1]
    found += [f"disordered: {later} came after {earlier}" for earlier, later in pairwise(effects) if later < earlier]
    called: set[int] = set()
    for n, redelivery in calls:
        if n in called and not redelivery:
            found.append(f"unmarked: {n} was called again without a mark of redelivery")
        called.add(n)
    return found
