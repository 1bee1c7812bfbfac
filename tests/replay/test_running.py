"""What a run does, whatever happens to it."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.queue.build import Instance, Node
from tests.replay.build import House, counted, read
from tests.support.disk import Disk
from tests.support.in_process import FACTORY, taken, until
from wsrm_mq.cli.place import line_of
from wsrm_mq.delivery.delivery import Delivery, Outcome
from wsrm_mq.errors import NotAllowed, NotFound, StoreError
from wsrm_mq.inbox import once
from wsrm_mq.queue import plans
from wsrm_mq.queue.plans import Planned
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.replay import (
    PlanFile,
    Progress,
    Wishes,
    cancel_plan,
    check_plan,
    hold,
    make_plan,
    skip,
    to_application,
)
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.sqlite.connection import connect_reader
from wsrm_mq.views.reading import sequence
from wsrm_mq.views.rows import find_plan
from wsrm_mq.views.rows import plans as plans_of
from wsrm_mq.views.sentences import explanation
from wsrm_mq.views.verdict import judge


def test_messages_come_again_under_their_keys_in_the_order_of_the_plan(house: House) -> None:
    identifier = house.sequence(1, 3, 2)
    file = house.plan("queue:/orders")
    progress = house.run(file)
    assert house.other.calls == [(identifier, number, True, "") for number in (1, 2, 3)]
    assert (progress.line, progress.settled, progress.waiting) == (3, 3, 0)
    assert house.state_of(file) == "done"
    assert counted(house, file) == {"delivered": 3}
    assert list(all_findings(connect_reader(house.path))) == []


@pytest.mark.scenario("Q-036")
def test_what_a_connection_sent_without_rm_runs_in_the_order_of_receipt(tmp_path: Path) -> None:
    house = House(tmp_path, queue_one_way=True, connection_key=lambda _environ: "one")
    try:
        for _ in range(5):
            plain = FACTORY.envelope("urn:example:orders/put", reply_to=FACTORY.none)
            assert house.rm.post(plain)[0].startswith("202")
        house.settled()
        first = house.service.calls
        house.run(house.plan("connection:one"))
        assert [call.number for call in house.other.calls] == [1, 2, 3, 4, 5]
        assert [call[:2] for call in house.other.calls] == [call[:2] for call in first]
    finally:
        house.close()


def test_the_service_that_runs_delivers_them(house: House) -> None:
    identifier = house.sequence(1, 2)
    file = house.plan("queue:/orders", target="app")
    house.service.calls.clear()
    house.run_to_service(file)
    assert house.service.calls == [(identifier, 1, True, ""), (identifier, 2, True, "")]
    assert house.state_of(file) == "done"


def test_the_service_never_gets_what_is_replayed_elsewhere(house: House) -> None:
    house.sequence(1, 2)
    house.service.calls.clear()
    house.run(house.plan("queue:/orders"))
    house.sequence(1)
    assert house.service.numbers == [1]


def test_as_new_they_have_the_id_of_the_plan_and_are_no_redeliveries(house: House) -> None:
    identifier = house.sequence(1)
    file = house.plan("queue:/orders", as_new=True)
    house.run(file)
    assert house.other.calls == [(identifier, 1, False, read(file)[0].id)]


def test_what_the_inbox_knows_is_counted(house: House) -> None:
    marks = sqlite3.connect(":memory:", check_same_thread=False)
    works: list[int] = []

    def service(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        with marks:
            if once(marks, environ):
                works.append(environ["wsrm.message_number"])
        return taken(start_response)

    call = to_application(service, lambda _partner: QueuePolicy())
    house.sequence(1, 2, 3)
    house.run(house.plan("msg:2"), call=call)
    again = house.plan("queue:/orders")
    house.run(again, call=call)
    assert (works, counted(house, again)) == ([2, 1, 3], {"delivered": 2, "known": 1})
    new = house.plan("queue:/orders", as_new=True)
    house.run(new, call=call)
    assert (works, counted(house, new)) == ([2, 1, 3, 1, 2, 3], {"delivered": 3})


def test_undelivered_messages_are_taken_out_of_their_sequence(house: House) -> None:
    house.service.refused = {2}
    house.sequence(1, 2, 3)
    house.run(house.plan("msg:2"))
    assert house.other.numbers == [2]
    assert until(lambda: house.service.numbers == [1, 2, 3])


def is_held(house: House) -> bool:
    """Whether the first sequence is."""
    [(since,)] = house.rm.rows("SELECT on_hold_since FROM lane WHERE id = 1")
    return since is not None


def test_what_comes_for_a_sequence_waits_while_what_it_had_not_delivered_is_replayed(house: House) -> None:
    house.service.refused = {1}
    identifier = house.sequence(1, 2)
    seen: list[tuple[int, list[int]]] = []

    def call(delivery: Delivery) -> Outcome:
        if delivery.number == 1:
            house.rm.put(identifier, 3)
        seen.append((delivery.number, house.service.numbers))
        return Outcome()

    file = house.plan("queue:/orders")
    house.run(file, call=call)
    assert seen == [(1, [1]), (2, [1])], "number 3 was not given to the service before number 2 was delivered"
    assert until(lambda: house.service.numbers == [1, 3])
    by = f"plan {read(file)[0].id}"
    assert house.rm.rows("SELECT event, actor FROM ledger WHERE event IN ('held', 'resumed') ORDER BY id") == [
        ("held", by),
        ("resumed", by),
    ]
    assert list(all_findings(connect_reader(house.path))) == []


def test_a_sequence_is_held_until_its_plan_has_ended_and_explain_leads_there(house: House) -> None:
    house.service.refused = house.other.refused = {1}
    identifier = house.sequence(1, 2)
    file = house.plan("queue:/orders")
    house.run(file)
    house.rm.put(identifier, 3)
    with closing(connect_reader(house.path)) as db:
        found = judge(db, sequence(db, identifier), time.time_ns() // 1_000_000)
    plan = read(file)[0].id
    why = explanation(found)
    assert (found.word, line_of(why.steps[0])) == ("held", f"wsrm-mq replay status {plan}")
    assert why.sentence.startswith(f"plan {plan} holds it since ")
    assert (
        ": the plan delivers what it had not delivered. 1 message waits until the plan has ended, or the sequence is "
        "resumed." in why.sentence
    )
    house.other.refused = set()
    house.run(file)
    assert house.other.numbers == [1, 1, 2]
    assert until(lambda: house.service.numbers == [1, 3])


def test_a_sequence_goes_on_when_the_plan_that_holds_it_is_cancelled(house: House) -> None:
    house.service.refused = house.other.refused = {1}
    identifier = house.sequence(1, 2)
    file = house.plan("queue:/orders")
    house.run(file)
    assert is_held(house)
    house.rm.put(identifier, 3)
    cancel_plan(house.path, read(file)[0].id, actor="ann", reason="wrong day")
    assert until(lambda: house.service.numbers == [1, 3])


def test_what_an_operator_holds_is_not_let_go_on_by_a_plan(house: House) -> None:
    house.service.refused = {1}
    identifier = house.sequence(1, 2)
    hold(house.path, identifier, actor="ann", reason="ticket 17")
    file = house.plan("queue:/orders")
    house.run(file)
    assert house.other.numbers == [1, 2]
    assert house.state_of(file) == "done"
    assert is_held(house)


def test_an_operator_holds_what_a_plan_holds_for_longer_than_the_plan(house: House) -> None:
    house.service.refused = house.other.refused = {1}
    identifier = house.sequence(1, 2)
    file = house.plan("queue:/orders")
    house.run(file)
    hold(house.path, identifier, actor="ann", reason="ticket 17")
    with pytest.raises(NotAllowed, match="held already"):
        hold(house.path, identifier, actor="bob", reason="ticket 18")
    with closing(connect_reader(house.path)) as db:
        why = explanation(judge(db, sequence(db, identifier), time.time_ns() // 1_000_000))
    assert why.sentence.startswith("ann holds it since ")
    assert line_of(why.steps[0]) == f"wsrm-mq sequence resume {identifier} --reason TEXT"
    house.other.refused = set()
    house.run(file)
    assert (house.state_of(file), is_held(house)) == ("done", True)


@pytest.mark.parametrize("query", ["msg:1", "outcome:dead"])
def test_a_sequence_of_which_nothing_undelivered_is_replayed_goes_on(house: House, query: str) -> None:
    house.service.refused = {2}
    identifier = house.sequence(1, 2)
    skip(house.path, identifier, 2, actor="ann", reason="spoiled")
    house.run(house.plan(query), call=lambda _delivery: Outcome(error="no") if is_held(house) else Outcome())
    assert house.rm.rows("SELECT id FROM ledger WHERE event = 'held'") == []


def test_what_was_delivered_since_is_skipped_and_told(house: House) -> None:
    identifier = house.sequence(1, 3)
    file = house.plan("msg:3")
    house.rm.put(identifier, 2)
    house.settled()
    house.run(file)
    assert house.other.calls == []
    with connect_reader(house.path) as db:
        assert find_plan(db, read(file)[0].id)[13:16] == (1, 1, 0)
    assert "delivered since" in house.rm.rows("SELECT reason FROM ledger WHERE event = 'replay_skipped'")[0][0]


def test_what_lost_its_body_since_is_told(house: House) -> None:
    house.sequence(1, 2)
    file = house.plan("queue:/orders")
    house.rm.rows("UPDATE message SET body = NULL WHERE id = 1")
    house.run(file)
    assert house.other.numbers == [2]
    assert house.rm.rows("SELECT line, skipped, missing FROM plan") == [(2, 0, 1)]


def test_a_failure_stops_its_group_and_a_second_run_tries_it_again(house: House) -> None:
    house.other.refused = {2}
    house.sequence(1, 2, 3)
    house.sequence(1, 3)
    file = house.plan("queue:/orders outcome:delivered")
    progress = house.run(file)
    assert len(progress.blocked) == 1
    assert "number 2 is refused" in (progress.error or "")
    assert sorted(house.other.numbers) == [1, 1, 2]
    assert (progress.settled, house.state_of(file)) == (2, "running")
    house.other.refused = set()
    house.other.calls.clear()
    house.run(file)
    assert house.other.numbers == [2, 3]
    assert house.state_of(file) == "done"


def test_a_sequence_that_a_run_to_a_target_left_behind_leads_to_its_plan(house: House) -> None:
    """No service delivers it: resumed, it waits for the next run."""
    house.other.refused = {1}
    house.sequence(1, 2)
    file = house.plan("queue:/orders")
    (left,) = house.run(file).blocked
    with closing(connect_reader(house.path)) as db:
        blocked = explanation(judge(db, sequence(db, left), time.time_ns() // 1_000_000))
        (plan,) = plans_of(db)
    assert line_of(blocked.steps[0]) == f"wsrm-mq replay status {plan.id}"


def test_on_request_a_failure_stops_the_run(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wsrm_mq.replay.run.PIECE", 1)
    monkeypatch.setattr("wsrm_mq.replay.run.AHEAD", 1)
    house.other.refused = {2}
    for _ in range(3):
        house.sequence(1, 2, 3)
    file = house.plan("queue:/orders")
    progress = house.run(file, stop_on_error=True)
    assert house.other.numbers == [1, 2]
    assert progress.line < progress.messages


def test_a_rate_is_kept(house: House) -> None:
    house.sequence(*range(1, 11))
    told: list[Progress] = []
    begun = time.monotonic()
    house.run(house.plan("queue:/orders"), rate=20, on_progress=told.append)
    assert any(progress.line < 5 for progress in told[1:])
    assert time.monotonic() - begun >= 9 / 20


def test_what_was_not_entered_while_the_service_stood_still_is_not_made_up_for_at_once(house: House) -> None:
    """It finds a second's messages, and the others come at their rate."""
    house.sequence(*range(1, 251))
    file = house.plan("queue:/orders", target="app")
    house.service.calls.clear()
    house.service.goes_on.clear()
    run = threading.Thread(target=house.run_to_service, args=(file,), kwargs={"rate": 100})
    run.start()
    try:
        assert until(lambda: house.service.calls)
        time.sleep(2)
    finally:
        house.service.goes_on.set()
        begun = time.monotonic()
        run.join()
    assert time.monotonic() - begun >= 1.3, "150 messages less what a tenth of a second makes up for"
    assert len(house.service.calls) == 250


def refuses(_delivery: Delivery) -> Outcome:
    return Outcome(error="connection refused")


def gives_up(_partner: str | None) -> QueuePolicy:
    return QueuePolicy(retry=())


def test_what_an_earlier_run_has_left_keeps_the_rate_of_this_one(house: House) -> None:
    for _ in range(3):
        house.sequence(1, 2, 3, 4)
    file = house.plan("queue:/orders")

    stopped = house.run(file, call=refuses, policy_of=gives_up)
    assert len(stopped.blocked) == 3, "all is entered and nothing delivered"
    begun = time.monotonic()
    done = house.run(file, rate=20)
    assert (len(house.other.numbers), done.blocked) == (12, ())
    assert time.monotonic() - begun >= 11 / 20


def test_a_run_at_a_rate_ends_at_once_where_it_is_stopped_and_that_is_no_attempt(house: House) -> None:
    for _ in range(3):
        house.sequence(1, 2)
    file = house.plan("queue:/orders")
    house.run(file, call=refuses, policy_of=gives_up)

    def interrupt(progress: Progress) -> None:
        if progress.settled:
            raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        house.run(file, rate=0.05, on_progress=interrupt)
    assert time.monotonic() - begun < 15, "the next turn was to come after twenty seconds"
    house.run(file)
    assert [call[2:] for call in house.other.calls] == [(True, "")] * 6
    assert house.rm.rows("SELECT max(failures) FROM entry") == [(0,)], "the ladder begins anew with a run"


def test_a_plan_that_was_edited_by_one_byte_is_refused(house: House) -> None:
    house.sequence(1, 2)
    file = house.plan("queue:/orders")
    edited = file.with_name("edited.json")
    edited.write_bytes(file.read_bytes().replace(b'"number":2', b'"number":1'))
    with pytest.raises(NotAllowed, match=f"The file is not the plan .* as it was written to {file}; it was changed"):
        house.run(edited)
    assert house.other.calls == []
    assert house.rm.rows("SELECT state, line FROM plan") == [("planned", 0)]


def test_a_plan_that_is_written_to_while_it_runs_stops(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wsrm_mq.replay.run.PIECE", 1)
    house.sequence(1, 2, 3)
    file = house.plan("queue:/orders")

    def tamper(progress: Progress) -> None:
        if progress.line == 1:
            file.write_bytes(file.read_bytes() + b"{}\n")

    with pytest.raises(NotAllowed, match="changed while it ran"):
        house.run(file, on_progress=tamper)
    assert house.rm.rows("SELECT owner FROM plan") == [(None,)]


def test_a_plan_for_another_store_is_refused(house: House, tmp_path: Path) -> None:
    house.sequence(1)
    file = house.plan("queue:/orders")
    (tmp_path / "other").mkdir()
    other = House(tmp_path / "other")
    try:
        with pytest.raises(NotAllowed, match="another store"):
            other.run(file)
    finally:
        other.close()


@pytest.mark.parametrize("content", [b"", b"{}\n", b"no json\n", b'{"wsrm_mq_plan": 9}\n', b"\xff\xfe\n"])
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(NotAllowed, match="plan"):
        PlanFile(tmp_path / "plan.json")
    with pytest.raises(NotFound):
        PlanFile(tmp_path / "missing.json")


def test_a_plan_is_run_once(house: House) -> None:
    house.sequence(1)
    file = house.plan("queue:/orders")
    house.run(file)
    with pytest.raises(NotAllowed, match="ran to its end"):
        house.run(file)
    with pytest.raises(NotAllowed, match="ran to its end"):
        check_plan(house.path, file)
    assert house.other.numbers == [1]


def test_every_step_of_a_plan_has_its_row_in_the_ledger_with_who_did_it(house: House) -> None:
    house.other.refused = {2}
    house.sequence(1, 2)
    done, given_up = house.plan("queue:/orders", reason="the disk was full"), house.plan("queue:/orders")
    house.run(done)
    house.other.refused = set()
    house.run(done)
    first, second = (read(file)[0].id for file in (done, given_up))
    cancel_plan(house.path, second, actor="ada", reason="wrong day")
    told = "SELECT event, actor, reason FROM ledger WHERE event LIKE 'replay_%' ORDER BY id"
    assert house.rm.rows(told) == [
        ("replay_planned", "ann", f"plan {first} of 2 messages to other: the disk was full"),
        ("replay_planned", "ann", f"plan {second} of 2 messages to other: a test"),
        ("replay_began", "bob", f"plan {first} to other, behind line 0"),
        ("replay_stopped", None, f"plan {first}, line 2"),
        ("replay_began", "bob", f"plan {first} to other, behind line 2"),
        ("replay_ended", None, f"plan {first}, line 2"),
        ("replay_cancelled", "ada", f"plan {second}, line 0: wrong day"),
    ]


def test_only_who_runs_a_plan_enters_its_messages_and_each_once(node: Node, tmp_path: Path) -> None:
    """A run that was given up may still be about to enter what the next one has entered."""
    one, other = node.start(), node.start()
    identifier = one.create().terms.identifier
    for number in (1, 2):
        claim = one.take(identifier, number).claim
        assert claim is not None
        one.settle(claim, number, release=True)
    header = make_plan(node.path, Wishes("queue:/orders", actor="ann", reason="why"), tmp_path / "plan.json")
    with PlanFile(tmp_path / "plan.json") as plan:
        digest, lines = plan.digest(), [Planned(each.group, each.position, each.state) for _, each in plan.lines()]

    def enter(by: Instance, before: int) -> None:
        by.run(lambda tx: plans.enter(tx, header.id, before, lines[before:], to_app=True))

    one.run(lambda tx: plans.begin(tx, header.id, digest, "app", "ann"))
    with pytest.raises(NotAllowed, match="was cancelled"):
        enter(other, 0)
    enter(one, 0)
    with pytest.raises(NotAllowed, match="was cancelled"):
        enter(one, 0)
    assert one.rows("SELECT count(*) AS entries FROM entry") == [{"entries": 4}]


def test_of_two_runs_at_the_same_time_the_second_is_refused(house: House) -> None:
    runs, goes_on = threading.Event(), threading.Event()

    def slow(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        runs.set()
        assert goes_on.wait(10)
        return taken(start_response)

    house.sequence(1)
    file = house.plan("queue:/orders")
    call = to_application(slow, lambda _partner: QueuePolicy())
    first = threading.Thread(target=house.run, args=(file,), kwargs={"call": call})
    first.start()
    try:
        assert runs.wait(10)
        with pytest.raises(NotAllowed, match="is being run by process"):
            house.run(file)
    finally:
        goes_on.set()
        first.join()
    assert (house.other.calls, house.state_of(file)) == ([], "done")


def test_without_a_service_that_runs_it_says_so_and_changes_nothing(house: House) -> None:
    house.sequence(1)
    file = house.plan("queue:/orders", target="app")
    house.close()
    with pytest.raises(NotAllowed, match="No service runs"):
        house.run_to_service(file)
    house.rm.open()
    assert house.rm.rows("SELECT state, line FROM plan") == [("planned", 0)]


def test_a_service_that_ends_meanwhile_is_told_and_the_plan_goes_on_with_the_next(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.replay.run._SERVICE_SECONDS", 0.2)
    monkeypatch.setattr("wsrm_mq.replay.run.LIVES_SECONDS", 0.05)
    monkeypatch.setattr("wsrm_mq.replay.run.PIECE", 1)
    house.sequence(1, 2, 3)
    file = house.plan("queue:/orders", target="app")
    house.service.calls.clear()

    def stop(progress: Progress) -> None:
        if progress.line == 0:
            house.close()

    with pytest.raises(NotAllowed, match="goes on where it was"):
        house.run_to_service(file, on_progress=stop)
    assert house.service.calls == []
    house.rm.open()
    house.run_to_service(file)
    assert house.service.numbers == [1, 2, 3]


def test_a_full_disk_is_told_and_the_plan_goes_on_when_there_is_room(
    mount: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsrm_mq.store.port.MISSING_SECONDS", 0.5)
    disk = Disk(mount("-t", "tmpfs", "-o", "size=8m", "tmpfs"))
    house = House(disk.point)
    try:
        house.sequence(*range(1, 6))
        file = house.plan("queue:/orders")
        house.close()  # it lets go of what it keeps free
        with pytest.raises(StoreError):
            house.run(file, on_progress=lambda _progress: disk.fill())
        disk.make_room()
        house.run(file)
        assert house.state_of(file) == "done"
        assert counted(house, file) == {"delivered": 5}
        assert house.other.numbers == sorted(house.other.numbers)
    finally:
        house.close()


def test_a_disk_that_fills_up_when_all_is_entered_is_told_too(
    mount: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever delivers tries to settle for ever; the run had only to wait. The log cannot be written anew from its
    beginning, where there is room: a reader still needs what is there."""
    monkeypatch.setattr("wsrm_mq.store.port.MISSING_SECONDS", 0.5)
    monkeypatch.setattr("wsrm_mq.replay.run._STANDS_SECONDS", 0.2)
    monkeypatch.setattr("wsrm_mq.replay.run._LAST_WORD_SECONDS", 0.2)
    disk = Disk(mount("-t", "tmpfs", "-o", "size=8m", "tmpfs"))
    house = House(disk.point)
    try:
        house.sequence(1, 2)
        file = house.plan("queue:/orders")
        house.close()
        house.other.goes_on.clear()

        with closing(sqlite3.connect(house.path)) as reader:

            def fill(_progress: Progress) -> None:
                if house.other.calls and not house.other.goes_on.is_set():
                    reader.execute("BEGIN")
                    reader.execute("SELECT * FROM entry").fetchall()
                    disk.fill()
                    house.other.goes_on.set()

            with pytest.raises(StoreError):
                house.run(file, on_progress=fill)
        disk.make_room()
        house.run(file)
        assert counted(house, file) == {"delivered": 2}
        assert list(all_findings(connect_reader(house.path))) == []
    finally:
        house.close()


def test_a_run_goes_on_with_the_target_it_began_with(house: House) -> None:
    house.other.refused = {1}
    house.sequence(1)
    file = house.plan("queue:/orders")
    house.run(file)
    with pytest.raises(NotAllowed, match="has begun with the target other"):
        house.run_to_service(file, target="app")


def test_what_is_skipped_in_a_replay_elsewhere_is_a_dead_letter_of_its_own_queue(house: House) -> None:
    from wsrm_mq.queue.operate import skip
    from wsrm_mq.store.outside import run_once

    house.other.refused = {1}
    house.sequence(1)
    progress = house.run(house.plan("queue:/orders"))
    run_once(house.path, lambda tx: skip(tx, progress.blocked[0], 1, actor="ann", reason="no"))
    assert house.rm.rows(
        "SELECT q.name, o.name FROM entry e JOIN queue q ON q.id = e.queue JOIN queue o ON o.id = e.origin"
    ) == [("/orders#dead", "/orders")]


def test_one_message_of_a_sequence_is_under_way_at_a_time(house: House) -> None:
    lock, inside, most = threading.Lock(), dict[str, int](), [0]

    def watched(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        identifier = environ["wsrm.sequence_id"]
        with lock:
            inside[identifier] = inside.get(identifier, 0) + 1
            most[0] = max(most[0], inside[identifier])
        answer = taken(start_response)
        with lock:
            inside[identifier] -= 1
        return answer

    for _ in range(3):
        house.sequence(*range(1, 20))
    house.run(house.plan("queue:/orders"), call=to_application(watched, lambda _partner: QueuePolicy()))
    assert (most, len(inside)) == ([1], 3)


def test_a_plan_of_many_groups_goes_through(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wsrm_mq.replay.run.PIECE", 7)
    monkeypatch.setattr("wsrm_mq.replay.run.AHEAD", 20)
    for _ in range(10):
        house.sequence(*range(1, 12))
    file = house.plan("queue:/orders")
    house.run(file)
    assert counted(house, file) == {"delivered": 110}


def test_the_lines_of_a_plan_are_json_for_other_tools(house: House) -> None:
    house.sequence(1)
    header, line = map(json.loads, house.plan("queue:/orders").read_text().splitlines())
    assert header["wsrm_mq_plan"] == 1
    assert set(line) == {
        *("group", "position", "queue", "sequence", "number", "message_id", "action", "size", "state", "flags")
    }
