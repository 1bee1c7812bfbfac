"""Acts on many messages: chosen, done in short transactions, and done to the end after an interruption."""

from __future__ import annotations

import pytest

from tests.queue.build import Instance, arrival
from wsrm_mq import replay
from wsrm_mq.errors import NotAllowed, QueryError
from wsrm_mq.queue.accept import accept
from wsrm_mq.queue.ending import bury_tails
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior, TerminateSequence
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.sqlite.connection import file_of

LETTERS = 450
LOSES = QueuePolicy(behavior=IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP)
WHY = {"actor": "night job", "reason": "all is well again"}


def dead_tail(one: Instance, first: int, last: int) -> str:
    """A sequence whose messages are dead letters: number 1 never came."""
    identifier = one.create(LOSES).terms.identifier
    one.run(lambda tx: [accept(tx, arrival(identifier, n, policy=LOSES)) for n in range(last, first - 1, -1)])
    one.end(TerminateSequence(identifier))
    one.run(lambda tx: bury_tails(tx, last))
    return identifier


def replayed(one: Instance) -> list[int]:
    """The numbers that replayed messages came under, in the order in which they are delivered."""
    rows = one.rows(
        "SELECT m.number FROM entry e JOIN entry m ON m.id = e.message WHERE e.replay_of IS NOT NULL ORDER BY e.number"
    )
    assert list(all_findings(one.db)) == []
    return [row["number"] for row in rows]


def test_what_was_interrupted_is_done_to_the_end_by_the_same_act(one: Instance) -> None:
    dead_tail(one, 2, LETTERS + 1)
    store = file_of(one.db)

    def interrupt(_done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay.redrive(store, "reason:first_gap", on_progress=interrupt, **WHY)
    assert replayed(one) == list(range(2, 202))
    told: list[int] = []
    assert replay.redrive(store, "reason:first_gap", on_progress=told.append, **WHY) == replay.Acted(LETTERS - 200)
    assert told == [200, 50]
    assert replayed(one) == list(range(2, LETTERS + 2)), "in the order of their numbers, whatever they were received in"
    assert len(one.ledger("redriven")) == LETTERS


def test_a_dry_run_answers_the_same_and_changes_nothing(one: Instance) -> None:
    dead_tail(one, 2, 12)
    store = file_of(one.db)
    before = one.rows("SELECT * FROM entry")
    assert replay.discard(store, "msg:2-5", dry_run=True, **WHY) == replay.Acted(4)
    assert one.rows("SELECT * FROM entry") == before
    assert one.ledger("discarded") == []
    assert replay.discard(store, "msg:2-5", **WHY) == replay.Acted(4)


def test_of_many_those_that_an_act_does_not_fit_are_named(one: Instance) -> None:
    dead_tail(one, 2, 4)
    store = file_of(one.db)
    done = replay.restore(store, [1, 2, 99], **WHY)
    assert (done.done, done.refusals, [refused.position for refused in done.refused]) == (0, 3, [1, 2, 99])
    assert "dead-letter redrive 1" in done.refused[0].why
    with pytest.raises(NotAllowed, match="is dead"):
        replay.restore(store, 1, **WHY)
    with pytest.raises(QueryError):
        replay.which_messages(store, "restore", "colour:red")
