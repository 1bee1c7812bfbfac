"""A bad line does what its seed says."""

from __future__ import annotations

from wsrm_mq.testing import Fate, Line


def test_a_seed_makes_the_line_do_the_same_again() -> None:
    def fates(seed: int) -> list[tuple[Fate, bool]]:
        line = Line(loss=0.3, duplicates=0.3, seed=seed)
        return [(line.fate(number, 1), line.repeats(number, 1)) for number in range(1, 301)]

    assert fates(1) == fates(1)
    assert fates(1) != fates(2)
    lost = sum(fate is not Fate.ARRIVES for fate, _ in fates(1))
    assert 60 < lost < 120


def test_a_line_without_chances_loses_and_repeats_nothing() -> None:
    line = Line()
    assert all(line.fate(n, 1) is Fate.ARRIVES and not line.repeats(n, 1) for n in range(1, 100))
