"""What a connection has is told the same however far its index is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.queue.build import Instance, Node, two_instances
from tests.queue.test_retention import HOUR, claim_of, deliver_next, delivered, prune
from tests.support.examples import examples
from wsrm_mq.errors import NotFound
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.room import Room
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.late_index import BY_CONNECTION
from wsrm_mq.views import reading, rows
from wsrm_mq.views.query import parse

NAMES = ("192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1")


def receive(one: Instance, *names: str | None) -> str:
    """A sequence whose messages came on these connections, in this order."""
    identifier = one.create().terms.identifier
    for number, name in enumerate(names, 1):
        one.clock.advance(1)
        assert one.take(identifier, number, connection=name, environ='{"REMOTE_ADDR":"192.0.2.1"}').position
    return identifier


def indexed(one: Instance) -> list[tuple[str, int]]:
    return [(row["connection"], row["message"]) for row in one.rows("SELECT * FROM connection_message")]


def watermark(one: Instance) -> int:
    (row,) = one.rows("SELECT upto FROM watermark WHERE name = 'connection_message'")
    return int(row["upto"])


def told(one: Instance) -> dict[str, Any]:
    """All that the store says of connections."""
    found = rows.connections(one.db)
    shown = {view.name: list(reading.messages(one.db, parse("", connection=view.name))) for view in found}
    assert [rows.connection(one.db, view.name) for view in found] == found
    assert [rows.find_connection(one.db, view.name) for view in found] == [view.name for view in found]
    return {"list": found, "shown": {name: [view.position for view in views] for name, views in shown.items()}}


def expected(one: Instance) -> dict[str, Any]:
    """The same from the messages alone."""
    stored = one.rows("""
        SELECT m.connection, m.principal, count(DISTINCT m.id) AS messages, sum(e.outcome IS NULL) AS unsettled,
            min(m.received_at) AS first, max(m.received_at) AS last, group_concat(e.id) AS positions
        FROM message m JOIN entry e ON e.message = m.id WHERE m.connection IS NOT NULL
        GROUP BY m.connection ORDER BY max(m.id) DESC""")
    views = [
        rows.ConnectionView(
            row["connection"],
            "192.0.2.1",
            row["principal"],
            row["messages"],
            row["unsettled"],
            row["first"],
            row["last"],
        )
        for row in stored
    ]
    shown = {row["connection"]: sorted(map(int, row["positions"].split(","))) for row in stored}
    return {"list": views, "shown": shown}


def agree(one: Instance) -> None:
    assert told(one) == expected(one)
    assert list(all_findings(one.db)) == []


def test_what_was_received_is_told_before_it_is_indexed(one: Instance) -> None:
    receive(one, "b", None, "a", "b")
    assert (indexed(one), watermark(one)) == ([], 0)
    agree(one)
    assert [view.name for view in told(one)["list"]] == ["b", "a"]
    assert told(one)["shown"] == {"a": [3], "b": [1, 4]}


def test_the_index_comes_forward_in_pieces_and_is_right_after_each(one: Instance) -> None:
    receive(one, "b", None, "a", "b", "a")
    for mark, found, more in (
        (2, [("b", 1)], True),
        (4, [("a", 3), ("b", 1), ("b", 4)], True),
        (5, [("a", 3), ("a", 5), ("b", 1), ("b", 4)], False),
    ):
        assert one.run(lambda tx: BY_CONNECTION.bring_forward(tx, 2)) is more
        assert (indexed(one), watermark(one)) == (found, mark)
        agree(one)


def test_where_nothing_came_nothing_is_written(one: Instance, node: Node) -> None:
    receive(one, "a")
    one.run(BY_CONNECTION.bring_forward)
    log = node.path.with_name("store.db-wal")
    before = log.stat().st_size
    assert not one.run(BY_CONNECTION.bring_forward)
    assert log.stat().st_size == before


def test_several_processes_index_each_message_once(node: Node) -> None:
    first, second = node.start(), node.start()
    for turn in range(4):
        receive(first if turn % 2 else second, "a", "b", "a")
        (second if turn % 3 else first).run(lambda tx: BY_CONNECTION.bring_forward(tx, 4))
        agree(first)
    while first.run(BY_CONNECTION.bring_forward) or second.run(BY_CONNECTION.bring_forward):
        pass
    assert len(indexed(first)) == 12
    agree(second)


def test_a_message_that_is_pruned_leaves_the_index_too(one: Instance) -> None:
    delivered(one, 1, 2, 3, connection="a", environ='{"REMOTE_ADDR":"192.0.2.1"}')
    one.run(lambda tx: BY_CONNECTION.bring_forward(tx, 2))
    one.clock.advance(HOUR)
    receive(one, "b", "a")
    assert prune(one).messages == 3
    assert (indexed(one), watermark(one)) == ([], 2)
    agree(one)
    one.run(BY_CONNECTION.bring_forward)
    assert indexed(one) == [("a", 5), ("b", 4)]
    agree(one)


def test_the_key_of_a_pruned_message_is_not_given_again(node: Node) -> None:
    """Whatever remembers a message by its key would take another for it."""
    first, second = node.start(), node.start()
    receive(first, "a")
    delivered(first, 1, 2, connection="a")
    first.run(BY_CONNECTION.bring_forward)
    first.clock.advance(HOUR)
    prune(first)
    assert (indexed(first), watermark(first)) == ([("a", 1)], 3)
    receive(second, "b")
    assert second.rows("SELECT id, connection FROM message") == [
        {"id": 1, "connection": "a"},
        {"id": 4, "connection": "b"},
    ]
    assert second.rows("SELECT id, message FROM entry WHERE id > 1") == [{"id": 4, "message": 4}]
    agree(second)
    second.run(BY_CONNECTION.bring_forward)
    assert indexed(second) == [("a", 1), ("b", 4)]
    agree(first)


@pytest.mark.parametrize("pieces", [0, 1, 2])
def test_a_name_is_found_by_its_beginning_in_either_part(one: Instance, pieces: int) -> None:
    receive(one, "abc", "abd", "b", "abc")
    for _ in range(pieces):
        one.run(lambda tx: BY_CONNECTION.bring_forward(tx, 2))
    assert rows.find_connection(one.db, "abd") == "abd"
    assert rows.find_connection(one.db, "b") == "b"
    assert rows.find_connection(one.db, "abc") == "abc"
    with pytest.raises(NotFound, match="fits several connections: abc, abd"):
        rows.find_connection(one.db, "ab")
    with pytest.raises(NotFound, match="There is no connection c"):
        rows.find_connection(one.db, "c")
    with pytest.raises(NotFound, match="There is no connection ab"):
        rows.connection(one.db, "ab")


@pytest.mark.parametrize("after", [0, 3])
def test_the_bound_of_a_connection_counts_both_parts(one: Instance, after: int) -> None:
    """Its first messages are indexed, or none is."""
    policy = QueuePolicy(room=Room(max_per_connection=5))
    identifier = receive(one, "a", "a", "b", "a")
    one.run(lambda tx: BY_CONNECTION.bring_forward(tx, after)) if after else None
    for number in (5, 6):
        assert not one.take(identifier, number, connection="a", policy=policy).no_room
    assert one.take(identifier, 7, connection="a", policy=policy).no_room
    one.settle(claim_of(one, identifier), 1)
    one.clock.advance(1)
    assert not one.take(identifier, 7, connection="a", policy=policy).no_room
    one.clock.advance(1)
    assert one.take(identifier, 8, connection="a", policy=policy).no_room
    assert not one.take(identifier, 8, connection="b", policy=policy).no_room


def test_a_bound_goes_through_few_messages_that_are_not_indexed(one: Instance) -> None:
    """Where many are, it has the next of them indexed, and goes on being exact."""
    policy = QueuePolicy(room=Room(max_per_connection=400))
    receive(one, *["a", "b"] * 300)
    identifier = one.create().terms.identifier
    for number in range(1, 101):
        assert not one.take(identifier, number, connection="a", policy=policy).no_room
    for mark in (400, 600, 700, 700):
        one.clock.advance(1)
        assert one.take(identifier, 101, connection="a", policy=policy).no_room
        assert watermark(one) == mark
    assert list(all_findings(one.db)) == []


ACTS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from((None, *NAMES)), st.integers(1, 3)),
    st.tuples(st.just("deliver"), st.integers(1, 4), st.none()),
    st.tuples(st.just("index"), st.integers(1, 5), st.none()),
    st.tuples(st.just("prune"), st.none(), st.none()),
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(acts=st.lists(st.tuples(st.booleans(), ACTS), min_size=5, max_size=40))
def test_whatever_two_processes_do_the_answers_are_those_of_the_messages_and_the_bound_is_kept(
    acts: list[tuple[bool, tuple[str, Any, Any]]],
) -> None:
    policy = QueuePolicy(room=Room(max_per_connection=4))
    with two_instances() as both:
        identifier = both[0].create().terms.identifier
        sent = 0
        for is_second, (act, what, count) in acts:
            one = both[is_second]
            one.clock.advance(1)
            if act == "send":
                for _ in range(count):
                    one.clock.advance(1)
                    live = one.rows(
                        """SELECT count(*) AS n FROM message m JOIN entry e ON e.message = m.id
                        WHERE m.connection = ? AND e.outcome IS NULL""",
                        what,
                    )[0]["n"]
                    environ = '{"REMOTE_ADDR":"192.0.2.1"}'
                    taken = one.take(identifier, sent + 1, connection=what, policy=policy, environ=environ)
                    assert bool(taken.no_room) == (what is not None and live >= 4)
                    sent += not taken.no_room
            elif act == "deliver":
                for _ in range(what):
                    deliver_next(both, identifier)
            elif act == "index":
                one.run(lambda tx, what=what: BY_CONNECTION.bring_forward(tx, what))  # type: ignore[misc]
            else:
                one.clock.advance(HOUR)
                prune(one)
            assert told(one) == expected(one)
        agree(both[0])
