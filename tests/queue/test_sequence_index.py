"""What a sequence has is told the same however far its index is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.queue.build import Instance, two_instances
from tests.queue.test_retention import HOUR, claim_of, deliver_next, delivered, due, prune
from tests.support.examples import examples
from wsrm_mq.sequence.elements import CloseSequence, TerminateSequence
from wsrm_mq.store import entries
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.late_index import BY_LANE
from wsrm_mq.views import reading
from wsrm_mq.views.overview import overview
from wsrm_mq.views.query import parse
from wsrm_mq.views.verdict import judge


def indexed(one: Instance) -> list[tuple[int, int, int]]:
    return [(row["lane"], row["number"], row["entry"]) for row in one.rows("SELECT * FROM lane_entry")]


def watermark(one: Instance) -> int:
    (row,) = one.rows("SELECT upto FROM watermark WHERE name = 'lane_entry'")
    return int(row["upto"])


def received(one: Instance, *numbers: int) -> str:
    identifier = one.create().terms.identifier
    for number in numbers:
        assert one.take(identifier, number).position
    return identifier


def told(one: Instance) -> dict[str, Any]:
    """All that the store says of which entries its sequences have."""
    keys = {row["id"]: row["identifier"] for row in one.rows("SELECT id, identifier FROM lane")}
    return {
        "listed": {
            key: [view.position for view in reading.messages(one.db, parse("", seq=identifier))]
            for key, identifier in keys.items()
        },
        "live": {
            key: [view.position for view in reading.messages(one.db, parse("outcome:live", seq=identifier))]
            for key, identifier in keys.items()
        },
        "found": {
            (key, number): one.db.execute(entries.ENTRY_BY_NUMBER, {"lane": key, "number": number}).fetchall()
            for key in keys
            for number in range(1, 12)
        },
    }


def expected(one: Instance) -> dict[str, Any]:
    """The same from the entries alone."""
    keys = [row["id"] for row in one.rows("SELECT id FROM lane")]
    entries = one.rows("SELECT id, lane, number, outcome, wants_reply, named, settled_at FROM entry ORDER BY id")
    return {
        "listed": {key: [row["id"] for row in entries if row["lane"] == key] for key in keys},
        "live": {key: [r["id"] for r in entries if r["lane"] == key and r["outcome"] is None] for key in keys},
        "found": {
            (key, number): [
                (row["id"], row["outcome"], row["wants_reply"], row["named"], row["settled_at"])
                for row in entries
                if (row["lane"], row["number"]) == (key, number)
            ]
            for key in keys
            for number in range(1, 12)
        },
    }


def agree(one: Instance) -> None:
    assert told(one) == expected(one)
    assert list(all_findings(one.db)) == []


def test_what_was_received_is_found_before_it_is_indexed(one: Instance) -> None:
    received(one, 2, 1, 4)
    assert (indexed(one), watermark(one)) == ([], 0)
    agree(one)


def test_the_index_comes_forward_in_pieces_and_is_right_after_each(one: Instance) -> None:
    received(one, 2, 1)
    identifier = received(one, 1, 3)
    one.settle(claim_of(one, identifier), 1)
    for mark, rows, more in (
        (3, [(1, 1, 2), (1, 2, 1), (2, 1, 3)], True),
        (4, [(1, 1, 2), (1, 2, 1), (2, 1, 3), (2, 3, 4)], False),
    ):
        assert one.run(lambda tx: BY_LANE.bring_forward(tx, 3)) is more
        assert (indexed(one), watermark(one)) == (rows, mark)
        agree(one)


def test_what_is_pruned_leaves_the_index_and_what_came_behind_it_stays(one: Instance) -> None:
    delivered(one, 1, 2, 3)
    one.run(lambda tx: BY_LANE.bring_forward(tx, 2))
    one.clock.advance(HOUR)
    received(one, 1)
    assert prune(one).messages == 3
    assert (indexed(one), watermark(one)) == ([], 2)
    agree(one)
    one.run(BY_LANE.bring_forward)
    assert (indexed(one), watermark(one)) == ([(2, 1, 4)], 4)
    agree(one)


@pytest.mark.parametrize("upto", [0, 1, 2, 3])
def test_a_sequence_is_forgotten_when_nothing_of_it_is_left_in_either_part(one: Instance, upto: int) -> None:
    """A dead letter keeps it, wherever the index is."""
    kept, gone = delivered(one, 1, 2), delivered(one, 1)
    one.db.execute("UPDATE entry SET outcome = 'dead' WHERE id = 2")
    for identifier in (kept, gone):
        one.end(TerminateSequence(identifier))
    received(one, 1)  # the newest sequence stays in any case
    if upto:
        one.run(lambda tx: BY_LANE.bring_forward(tx, upto))
    one.clock.advance(11 * HOUR)
    for batch in due(one):
        one.run(batch)
    assert {row["identifier"] for row in one.rows("SELECT identifier FROM lane")} >= {kept}
    assert gone not in {row["identifier"] for row in one.rows("SELECT identifier FROM lane")}
    assert told(one) == expected(one)


ACTS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 1), st.integers(1, 11)),
    st.tuples(st.just("deliver"), st.integers(0, 1), st.none()),
    st.tuples(st.just("index"), st.none(), st.integers(1, 5)),
    st.tuples(st.just("prune"), st.none(), st.none()),
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(acts=st.lists(st.tuples(st.booleans(), ACTS), min_size=5, max_size=40))
def test_whatever_two_processes_do_each_entry_is_found_and_none_is_taken_twice(
    acts: list[tuple[bool, tuple[str, Any, Any]]],
) -> None:
    with two_instances() as both:
        identifiers = [both[0].create().terms.identifier for _ in range(2)]
        taken: set[tuple[str, int]] = set()
        for is_second, (act, which, count) in acts:
            one = both[is_second]
            one.clock.advance(1)
            if act == "send":
                is_new = (identifiers[which], count) not in taken
                receipt = one.take(identifiers[which], count)
                assert (receipt.position is not None and not receipt.settled) or not is_new
                taken.add((identifiers[which], count))
            elif act == "deliver":
                deliver_next(both, identifiers[which])
            elif act == "index":
                one.run(lambda tx, count=count: BY_LANE.bring_forward(tx, count))  # type: ignore[misc]
            else:
                one.clock.advance(HOUR)
                prune(one)
            assert told(one) == expected(one)
        agree(both[0])


def statements(one: Instance, verb: Callable[[], object]) -> list[str]:
    seen: list[str] = []
    one.db.set_trace_callback(seen.append)
    verb()
    one.db.set_trace_callback(None)
    return seen


def test_a_duplicate_that_waits_for_nothing_is_not_looked_for_below_the_cursor(one: Instance) -> None:
    identifier = delivered(one, 1)
    for wants_reply in (False, True):
        seen = statements(one, lambda wants=wants_reply: one.take(identifier, 1, wants_reply=wants))  # type: ignore[misc]
        assert any("lane_entry" in text for text in seen) is wants_reply


def plan(one: Instance, statement: str, **bounds: object) -> list[str]:
    return [row[3] for row in one.db.execute(f"EXPLAIN QUERY PLAN {statement}", bounds)]


def test_what_is_looked_for_by_its_number_is_found_in_an_index_or_behind_it_from_the_newest_on(one: Instance) -> None:
    steps = plan(one, entries.ENTRY_BY_NUMBER, lane=1, number=1)
    looked = [step for step in steps if step.startswith(("SEARCH", "SCAN"))]
    assert looked == [
        "SEARCH entry USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH entry USING INDEX entry_live (lane=? AND number=?)",
        "SEARCH lane_entry USING PRIMARY KEY (lane=? AND number=?)",
        "SEARCH entry USING INTEGER PRIMARY KEY (rowid>?)",
        "SEARCH watermark USING PRIMARY KEY (name=?)",
    ]
    assert not [step for step in steps if "B-TREE" in step], "nothing is sorted: it stops at the newest"
    assert "ORDER BY entry.id DESC" in entries.ENTRY_BY_NUMBER


def test_a_query_for_what_is_not_settled_uses_its_index(one: Instance) -> None:
    identifier = received(one, 1, 3)
    one.end(CloseSequence(identifier))
    seen = statements(one, lambda: judge(one.db, reading.sequence(one.db, identifier), 0))
    seen += statements(one, lambda: overview(one.db, 0))
    seen += statements(one, lambda: list(reading.messages(one.db, parse("outcome:live", seq=identifier))))
    unsettled = [text for text in seen if re.search(r"outcome IS NULL|oldest_at", text)]
    assert len(unsettled) >= 3
    for text in unsettled:
        uses = r"entry_live \(lane=\?|entry_(ready|consumed) \(queue=\?"
        assert any(re.search(uses, step) for step in plan(one, text)), text


@pytest.mark.parametrize(("commits", "near"), [(1, 5_000), (3, 13_000)])
def test_however_much_comes_between_two_pieces_the_index_stays_near(one: Instance, commits: int, near: int) -> None:
    """With as many requests waiting as may, it has its turn in every third commit of 512 messages."""
    identifier = received(one, 1)
    sequence, behind = one.record(identifier).id, []
    row = {"queue": 1, "message": 1, "wants_reply": 0, "named": 1}
    row |= dict.fromkeys(("waiter", "reason", "priority", "expires_at"))
    number = 1
    for _ in range(40):
        with one.transaction() as tx:
            for _ in range(commits * 512):
                number += 1
                settled = {"outcome": "delivered", "settled_at": 1}
                tx.add_entry({**row, **settled, "lane": sequence, "number": number})
            BY_LANE.bring_forward(tx)
        behind.append(one.rows("SELECT max(id) AS last FROM entry")[0]["last"] - watermark(one))
    assert max(behind) == behind[-1] < near
    assert behind[-1] - behind[-2] < 50, "it levels off"
