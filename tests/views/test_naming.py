"""Identifiers by a part of them: as short as they can be, and never those of another."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.queue.build import Instance
from wsrm_mq.errors import NotFound
from wsrm_mq.store.sqlite import schema
from wsrm_mq.testing import ManualClock
from wsrm_mq.views.naming import find_sequence, shortened


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Instance]:
    schema.ensure(tmp_path / "store.db")
    one = Instance(tmp_path / "store.db", ManualClock(), "one")
    yield one
    one.close()


def named(one: Instance, *uuids: str) -> list[str]:
    """Sequences with these identifiers."""
    names = []
    for text in uuids:
        made = one.create().terms.identifier
        names.append(f"urn:uuid:{text}")
        one.run(
            lambda tx, old=made, new=names[-1]: tx.execute(  # type: ignore[misc]
                "UPDATE lane SET identifier = ? WHERE identifier = ?", (new, old)
            )
        )
    return names


ALIKE = ("11111111-aaaa", "11111111-aabb", "22222222-cccc", "33333333-1111")


def test_a_name_is_shown_as_short_as_no_other_begins(one: Instance) -> None:
    names = named(one, *ALIKE)
    short = shortened(one.db, [*names, None])
    assert [short[name] for name in names] == ["11111111-aaa", "11111111-aab", "22222222", "33333333"]
    assert [find_sequence(one.db, short[name]) for name in names] == names


def test_any_number_of_random_names_are_told_apart_by_what_is_shown(one: Instance) -> None:
    names = named(one, *(str(uuid.UUID(int=number << 90)) for number in range(0, 200, 7)))
    short = shortened(one.db, names)
    assert [find_sequence(one.db, short[name]) for name in names] == names


def test_a_beginning_goes_before_an_end_and_what_fits_several_names_none(one: Instance) -> None:
    first, second, third, fourth = named(one, *ALIKE)
    assert find_sequence(one.db, "22222222…") == third
    assert find_sequence(one.db, "uuid:22222222"[5:]) == third
    assert find_sequence(one.db, "333-1111") == fourth
    assert find_sequence(one.db, "…333-1111") == fourth
    assert find_sequence(one.db, second) == second
    for part, what in (("111111", f"fits several sequences: {first}, {second}."), ("2222", "needs 6 characters")):
        with pytest.raises(NotFound, match=what):
            find_sequence(one.db, part)
    with pytest.raises(NotFound, match="There is no sequence 999999"):
        find_sequence(one.db, "999999")


def test_a_part_is_found_by_the_index(one: Instance) -> None:
    seen: list[str] = []
    (identifier,) = named(one, ALIKE[0])
    one.db.set_trace_callback(seen.append)
    find_sequence(one.db, "11111111")
    shortened(one.db, [identifier])
    one.db.set_trace_callback(None)
    for statement in seen:
        steps = [row["detail"] for row in one.rows(f"EXPLAIN QUERY PLAN {statement}")]
        assert not [step for step in steps if step.startswith("SCAN")], (statement, steps)
