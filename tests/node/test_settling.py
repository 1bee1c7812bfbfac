"""A leased message is settled, once; leases end, and what fails goes on to the dead letters."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.node.conftest import Connect, Rows
from tests.node.test_putting import drained, said
from wsrm_mq.errors import ConfigurationError, LeaseLost, NotAllowed, NotFound, OutOfOrder, PeekForbidden, QueueBusy
from wsrm_mq.node import Node
from wsrm_mq.queue.settling import Settlement

Program = Callable[[str], subprocess.Popen[str]]


EVENTS = "SELECT event, reason FROM ledger WHERE event <> 'queue_declared' ORDER BY id"
"""A server writes down that it declares a queue, too."""


def killed(one: subprocess.Popen[str]) -> None:
    one.send_signal(signal.SIGKILL)
    one.wait()


@pytest.mark.scenario("Q-032")
def test_a_message_is_received_by_its_id_and_the_second_time_nothing_happens(node: Node) -> None:
    node.put("orders", b"one", message_id="a")
    node.put("orders", b"two")
    assert node.received("orders", "a") is Settlement.SETTLED
    assert node.received("orders", "a") is Settlement.ALREADY_SETTLED
    (two,) = node.receive("orders")
    assert node.received("orders", two.message_id) is Settlement.SETTLED
    for unknown in ("b", "#", "#²", f"#{2**80}"):
        assert node.received("orders", unknown) is Settlement.UNKNOWN
    assert two.ack() is Settlement.ALREADY_SETTLED


@pytest.mark.scenario("Q-064")
def test_what_is_released_is_ready_at_once_and_counts_as_cancelled(node: Node, connect: Connect, rows: Rows) -> None:
    node.put_many("orders", range(3))
    first, second = node.receive("orders", 2)
    assert first.ack("cancel") is Settlement.SETTLED
    (again,) = connect().receive("orders")
    assert (again.position, again.failures, again.redelivered) == (first.position, 0, True)
    assert rows("SELECT cancels, failures FROM entry WHERE id = ?", first.position) == [(1, 0)]
    assert second.ack() is Settlement.SETTLED


@pytest.mark.scenario("Q-065")
def test_what_is_released_too_often_is_a_dead_letter(node: Node) -> None:
    node.declare("orders", max_cancels=3)
    node.put("orders", b"one")
    for _ in range(3):
        node.receive("orders")[0].release()
    assert node.receive("orders") == []
    assert [one.reason for one in node.dead("orders").peek()] == ["max_cancels"]


@pytest.mark.scenario("Q-066")
def test_what_is_expired_by_its_consumer_is_a_dead_letter_at_once(node: Node) -> None:
    node.put("orders", b"one")
    node.receive("orders")[0].ack("expire")
    assert node.receive("orders") == []
    assert [one.reason for one in node.dead("orders").peek()] == ["forced_expire"]


@pytest.mark.scenario("Q-067")
@pytest.mark.scenario("Q-068")
def test_a_lease_ends_and_who_comes_late_is_refused(node: Node, connect: Connect, rows: Rows) -> None:
    node.declare("orders", lease=0.3)
    node.put("orders", b"one")
    (first,) = node.receive("orders")
    (second,) = connect().receive("orders", wait=5)
    assert (second.position, second.redelivered, second.deliveries) == (first.position, True, 2)
    with pytest.raises(LeaseLost, match="had ended"):
        first.ack()
    assert second.ack() is Settlement.SETTLED
    (why,) = [reason for event, reason in rows(EVENTS) if event == "lease_ended"]
    assert why is not None
    assert why.startswith("its lease ended before it was acknowledged: instance ")


@pytest.mark.scenario("Q-069")
def test_what_another_leased_is_settled_only_where_leasing_is_sublet(node: Node, connect: Connect) -> None:
    node.put("orders", b"one")
    (one,) = node.receive("orders")
    assert connect().ack_at("orders", one.position) is Settlement.NOT_YOURS
    node.declare("orders", leasing="sublet")
    assert connect().ack_at("orders", one.position) is Settlement.SETTLED
    assert node.stats("orders").messages == 0


def test_several_are_settled_by_their_positions_together_and_each_is_answered(node: Node, connect: Connect) -> None:
    node.put("invoices", b"other")
    node.put_many("orders", range(4))
    (leased,) = connect().receive("orders")
    elsewhere, *positions = [one.position for queue in ("invoices", "orders") for one in node.peek(queue)]
    told = ["not_yours", "settled", "settled", "unknown", "settled"]
    assert node.ack_many("orders", [*positions[:3], elsewhere, positions[1]]) == told
    assert node.ack_many("orders", positions[1:3]) == ["already_settled"] * 2
    assert [one.position for one in node.peek("orders")] == [leased.position, positions[3]]
    assert node.ack_many("orders", []) == []


@pytest.mark.scenario("Q-070")
def test_a_lease_that_is_renewed_does_not_end(node: Node, connect: Connect) -> None:
    node.declare("orders", lease=0.4)
    node.put("orders", b"one")
    (one,) = node.receive("orders")
    other = connect()
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        assert one.renew() is Settlement.SETTLED
        assert other.receive("orders", wait=0.1) == []
    assert node.get("orders", one.position).deliveries == 1  # type: ignore[union-attr]
    one.ack()


def test_what_is_delivered_at_most_once_has_a_lease_without_end_also_when_that_is_renewed(
    node: Node, rows: Rows
) -> None:
    node.declare("orders", lease=0.1, delivery="at_most_once")
    node.put("orders", b"one")
    (one,) = node.receive("orders")
    assert one.leased_until is None
    assert one.renew() is Settlement.SETTLED
    time.sleep(0.5)
    assert rows(EVENTS) == []


@pytest.mark.scenario("Q-071")
def test_what_a_killed_process_had_leased_is_ready_for_others_the_oldest_first(node: Node, program: Program) -> None:
    node.put_many("orders", range(4))
    one = program("print(len(node.receive('orders', 3))); time.sleep(60)")
    assert said(one) == "3"
    killed(one)
    began = time.monotonic()
    found: list[int] = []
    while len(found) < 4 and time.monotonic() < began + 20:
        batch = node.receive("orders", 4, wait=2)
        found += [one.json() for one in batch]
        node.ack(batch)
    assert sorted(found) == [0, 1, 2, 3]
    assert [n for n in found if n != 3] == [0, 1, 2]


@pytest.mark.scenario("Q-072")
@pytest.mark.scenario("Q-073")
def test_a_filter_settles_what_fits_in_one_transaction_but_not_what_others_have_leased(
    node: Node, connect: Connect
) -> None:
    for n in range(20):
        node.put("orders", b"", properties={"id": "7", "status": "cancel" if n % 8 == 0 else "new"})
    node.put("orders", b"", properties={"id": "8", "status": "new"})
    connect().receive("orders", 3)  # one of them is to be cancelled
    cleared = node.settle("orders", "/id = '7' and /status != 'cancel'", "expire")
    assert (cleared.settled, cleared.skipped) == (15, 2)
    assert {one.reason for one in node.dead("orders").peek()} == {"forced_expire"}
    assert len(node.peek("orders")) == 6


@pytest.mark.scenario("Q-074")
def test_sql_in_a_filter_is_data(node: Node) -> None:
    text = "x' OR 1=1; DROP TABLE entry --"
    node.put("orders", b"", properties={"id": text})
    node.put("orders", b"", properties={"id": "7"})
    quoted = text.replace("'", "''")
    assert node.settle("orders", f"id = '{quoted}'").settled == 1
    assert len(node.peek("orders")) == 1


@pytest.mark.scenario("Q-075")
def test_what_is_delivered_at_most_once_is_not_delivered_again_and_the_ledger_says_so(
    node: Node, program: Program, rows: Rows
) -> None:
    node.declare("orders", delivery="at_most_once")
    node.put_many("orders", range(2))
    one = program("node.receive('orders')[0].ack(); print(len(node.receive('orders'))); time.sleep(60)")
    assert said(one) == "1"
    killed(one)
    assert node.receive("orders", wait=3) == []
    assert [event for event, _reason in rows(EVENTS)] == ["lost_after_delivery"]


@pytest.mark.scenario("Q-077")
def test_failures_are_counted_over_a_restart(connect: Connect, program: Program) -> None:
    fail = """
for _ in range({}):
    node.receive('orders', wait=5)[0].nack('bad')
node.close()
"""
    first = "node.declare('orders', max_failures=5, retry=(0,)); node.put('orders', b'one')" + fail.format(3)
    assert program(first).wait(30) == 0
    node = connect()
    assert node.peek("orders")[0].failures == 3
    assert program(fail.format(2)).wait(30) == 0
    (letter,) = node.dead("orders").peek()
    assert (letter.reason, letter.failures, letter.last_error) == ("max_failures", 5, "bad")


@pytest.mark.scenario("Q-078")
def test_only_the_message_that_kills_its_consumers_goes_to_the_dead_letters(node: Node, program: Program) -> None:
    node.declare("orders", max_failures=2, retry=(0,))
    node.put_many("orders", range(10))
    dies = """
while True:
    batch = node.receive('orders', 10, wait=10)
    for one in batch:
        if one.json() == 3:
            os.kill(os.getpid(), 9)
        one.ack()
        print(one.json())
"""
    seen: list[str] = []
    for _ in range(4):
        seen += program(dies).communicate(timeout=60)[0].split()
    last = program("for one in node.receive('orders', 10, wait=10): print(one.json()); one.ack()")
    seen += last.communicate(timeout=60)[0].split()
    assert sorted(seen) == [str(n) for n in range(10) if n != 3]
    assert [one.json() for one in node.dead("orders").peek()] == [3]


@pytest.mark.scenario("Q-079")
def test_a_group_whose_next_message_fails_for_good_stops_and_others_go_on(node: Node, rows: Rows) -> None:
    node.declare("orders", max_failures=2, retry=(0,))
    for group in "ab":
        node.put_many("orders", [f"{group}1", f"{group}2"], group=group)
    for _ in range(2):
        poison, other = (one for one in node.receive("orders", 9) if one.number == 1)
        other.release()
        poison.nack("bad")
    assert [one.body for one in node.receive("orders", 9)] == [b"b1", b"b2"]
    assert ("blocked", "bad") in rows(EVENTS)
    assert {one.state for one in node.peek("orders")} == {"held", "leased"}


def test_a_group_goes_on_without_its_poison_where_the_queue_says_so(node: Node) -> None:
    node.declare("orders", max_failures=1, on_poison="skip")
    node.put_many("orders", [1, 2], group="a")
    node.receive("orders")[0].nack("bad")
    assert [one.json() for one in node.receive("orders")] == [2]
    assert [one.json() for one in node.dead("orders").peek()] == [1]


def test_one_consumer_at_a_time_has_a_group_and_settles_it_in_order(node: Node, connect: Connect) -> None:
    node.put_many("orders", range(5), group="a")
    one, two = node.receive("orders", 2)
    assert connect().receive("orders", 5) == []
    with pytest.raises(OutOfOrder, match="before it is not settled"):
        two.ack()
    assert node.ack([one, two]) == [Settlement.SETTLED] * 2
    three, four = node.receive("orders", 2)
    assert three.release() is Settlement.SETTLED
    assert [it.json() for it in connect().receive("orders", 5)] == [2, 3, 4]
    with pytest.raises(LeaseLost):
        four.ack()


@pytest.mark.scenario("Q-082")
def test_an_acknowledgement_within_the_lease_wins_over_the_deadline(node: Node) -> None:
    node.declare("orders", lease=0.5)
    node.put_many("orders", [1, 2], ttl=0.1)
    one, _two = node.receive("orders", 2)
    time.sleep(0.2)
    assert one.ack() is Settlement.SETTLED
    assert node.receive("orders", wait=1.5) == []
    assert [(it.json(), it.reason) for it in node.dead("orders").peek()] == [(2, "ttl_expired")]


@pytest.mark.scenario("Q-084")
def test_looking_goes_on_behind_a_position_whatever_goes_meanwhile(node: Node) -> None:
    positions = node.put_many("orders", range(10))
    seen = node.peek("orders", limit=4)
    node.purge("orders", positions[1], positions[2])
    node.purge("orders", positions[5], positions[6])
    seen += node.peek("orders", after=seen[-1].position)
    assert [one.json() for one in seen] == [0, 1, 2, 3, 4, 7, 8, 9]


@pytest.mark.scenario("Q-085")
def test_one_consumer_alone_reads_an_exclusive_queue_and_others_may_put_there(node: Node, connect: Connect) -> None:
    node.declare("orders", access="exclusive", peek=False)
    other = connect("second")
    other.put_many("orders", range(2))
    assert len(node.receive("orders")) == 1
    with pytest.raises(QueueBusy, match="exclusive"):
        other.receive("orders")
    with pytest.raises(PeekForbidden, match="peek=False"):
        other.peek("orders")
    node.close()
    assert len(other.receive("orders")) == 1


@pytest.mark.scenario("Q-086")
def test_several_queues_are_read_in_one_call_each_its_part(node: Node) -> None:
    node.declare("private", access="exclusive")
    for queue in ("private", "one", "two"):
        node.put_many(queue, [queue] * 10)
    found = [one.queue for one in node.receive(["private", "one", "two"], 9)]
    assert {queue: found.count(queue) for queue in found} == {"private": 3, "one": 3, "two": 3}
    rest = [one.queue for one in node.receive(["private", "one", "two"], 99)]
    assert len(rest) == 21


@pytest.mark.scenario("Q-095")
def test_what_outlives_its_deadline_is_a_dead_letter(node: Node) -> None:
    node.put("orders", b"one", ttl=0.2)
    time.sleep(0.3)
    assert node.receive("orders") == []
    assert [one.reason for one in node.dead("orders").peek()] == ["ttl_expired"]


def test_of_two_deadlines_the_first_one_ends_a_message(node: Node) -> None:
    node.put_many("orders", [b"one"], ttl=60, receive_by=time.time() + 0.2)
    node.put_many("orders", [b"two"], ttl=0.2, receive_by=time.time() + 60)
    time.sleep(0.3)
    assert node.receive("orders") == []
    assert len(node.dead("orders").peek()) == 2


@pytest.mark.scenario("Q-097")
def test_a_dead_letter_shows_all_of_it_and_goes_back_as_if_new(node: Node, rows: Rows) -> None:
    node.declare("orders", max_failures=1)
    node.put("orders", b"the body", type="Order")
    node.receive("orders")[0].nack(ValueError("no such customer"))
    dead = node.dead("orders")
    (letter,) = dead.peek()
    assert (letter.reason, letter.failures, letter.body) == ("max_failures", 1, b"the body")
    assert letter.last_error == "ValueError: no such customer"
    assert dead.redrive() == 1
    (again,) = node.receive("orders")
    assert (again.failures, again.type) == (0, "Order")
    assert [event for event, _reason in rows(EVENTS)] == ["failed", "dead", "redriven"]


def test_dead_letters_are_leased_and_settled_as_any_other(node: Node) -> None:
    node.put_many("orders", range(3))
    node.reject(node.receive("orders", 3), "no good")
    dead = node.dead("orders")
    one, two, three = dead.receive(3)
    assert one.last_error is None
    assert [one.ack(), two.release(), three.nack("again")] == [Settlement.SETTLED] * 3
    assert [it.json() for it in dead.receive(3)] == [1, 2]
    assert node.stats("orders").dead == 2
    node.close()


def test_a_word_that_is_no_answer_acknowledges_nothing(node: Node) -> None:
    node.put("orders", b"one")
    (one,) = node.receive("orders")
    with pytest.raises(ConfigurationError, match="'cancle'; it is one of ack, cancel, expire"):
        one.ack("cancle")  # type: ignore[arg-type]
    assert node.stats("orders").leased == 1


@pytest.mark.parametrize("lease", [0, -5, float("nan"), 1e30])
def test_a_lease_is_renewed_for_a_time_that_there_is(node: Node, lease: float) -> None:
    node.put("orders", b"one")
    (one,) = node.receive("orders")
    with pytest.raises(ConfigurationError, match="`lease` is"):
        one.renew(lease)
    assert one.ack() is Settlement.SETTLED


@pytest.mark.scenario("Q-117")
def test_settling_what_was_only_looked_at_does_nothing(node: Node) -> None:
    node.put("orders", b"one")
    (one,) = node.peek("orders")
    assert (one.ack(), one.release(), one.nack("bad"), one.expire()) == (None, None, None, None)
    assert node.stats("orders").ready == 1


@pytest.mark.scenario("Q-018")
def test_a_part_of_a_queue_is_purged_and_the_ledger_says_so(node: Node, rows: Rows) -> None:
    positions = node.put_many("orders", range(1, 11))
    assert node.purge("orders", positions[2], positions[4]).settled == 3
    assert [*map(int, drained(node, "orders"))] == [1, 2, 6, 7, 8, 9, 10]
    assert [event for event, _reason in rows(EVENTS)] == ["queue_purged", *["purged"] * 3]


def test_a_queue_that_is_used_or_has_something_is_not_deleted_where_that_is_asked_for(node: Node) -> None:
    node.put("orders", 1)
    with pytest.raises(QueueBusy, match="1 messages"):
        node.delete("orders", if_empty=True)
    with node.subscribe("other", client="shop"):
        with pytest.raises(QueueBusy, match="have subscribed to other: shop"):
            node.delete("other", if_unused=True)
        assert node.delete("orders", if_unused=True).settled == 1
    node.delete("other", if_unused=True)
    assert node.keys() == []


@pytest.mark.local("counts the commits of the local node")
@pytest.mark.parametrize("options", [{}, {"if_unused": True}, {"force": True}], ids=str)
def test_a_queue_is_deleted_by_one_commit(node: Node, options: dict[str, bool]) -> None:
    node.put_many("orders", range(3))
    before = node.store.writer.commits
    assert node.delete("orders", **options).settled == 3
    assert node.store.writer.commits == before + 1


@pytest.mark.scenario("Q-019")
def test_a_queue_in_use_is_deleted_only_by_force(node: Node, connect: Connect, rows: Rows) -> None:
    node.put_many("orders", range(4))
    node.receive("orders")[0].reject()
    other = connect()
    other.receive("orders")
    with pytest.raises(QueueBusy, match="process"):
        node.delete("orders")
    assert node.stats("orders").messages == 3
    assert node.delete("orders", force=True).settled == 3
    assert node.keys() == []
    assert [event for event, _reason in rows(EVENTS)] == ["dead", "queue_deleted", *["purged"] * 3]
    assert node.put("orders", b"anew") == 5
    assert node.dead("orders").peek() == []


@pytest.mark.scenario("Q-021")
def test_what_a_queue_tells_of_itself_is_what_it_has(node: Node) -> None:
    node.put_many("orders", [b"x" * 10] * 5)
    last = node.put("orders", b"y", delay=60)
    batch = node.receive("orders", 3)
    batch[0].ack()
    batch[1].reject()
    told = node.stats("orders")
    assert (told.ready, told.held, told.leased, told.dead) == (2, {"scheduled": 1}, 1, 1)
    assert (told.messages, told.bytes, told.last_position) == (4, 31, last)
    now = time.time()
    assert told.oldest_at is not None
    assert told.oldest_age is not None
    assert told.last_put_at is not None
    assert now - 20 < told.oldest_at <= told.last_put_at <= now
    assert 0 <= told.oldest_age <= now - told.oldest_at
    assert 5 / 60 < told.put_rate <= 6 / 60
    assert 1 / 60 < told.gone_rate <= 2 / 60
    states = [one.state for one in node.peek("orders")]
    assert {state: states.count(state) for state in states} == {"ready": 2, "held": 1, "leased": 1}


def test_what_is_scheduled_comes_at_its_time(node: Node) -> None:
    node.put("orders", b"later", delay=0.3)
    node.put("orders", b"now")
    assert [one.body for one in node.receive("orders", 2)] == [b"now"]
    began = time.monotonic()
    assert [one.body for one in node.receive("orders", wait=5)] == [b"later"]
    assert time.monotonic() - began < 2


def test_what_is_more_urgent_comes_first_and_else_what_was_put_first(node: Node) -> None:
    for n, priority in enumerate((4, 9, 0, 4, 9)):
        node.put("orders", n, priority=priority)
    assert [one.json() for one in node.receive("orders", 5)] == [1, 4, 0, 3, 2]


@pytest.mark.scenario("Q-083")
def test_whoever_looks_changes_nothing_and_keeps_no_receiver_waiting(node: Node, program: Program, rows: Rows) -> None:
    node.put_many("orders", range(5))
    look = """
def seen():
    return [one.json() for one in node.peek("orders")]
print(all(seen() == [0, 1, 2, 3, 4] for _ in range(20)))
while seen() != [2, 3, 4]:
    pass
print("left")
"""
    before = rows("SELECT * FROM entry")
    readers = [program(look) for _ in range(5)]
    assert [said(one) for one in readers] == ["True"] * 5
    assert rows("SELECT * FROM entry") == before
    assert node.ack(node.receive("orders", 2)) == ["settled"] * 2
    assert [said(one) for one in readers] == ["left"] * 5
    assert [(one.json(), one.deliveries) for one in node.receive("orders", 5)] == [(2, 1), (3, 1), (4, 1)]


def test_a_body_is_freed_when_it_is_acknowledged_and_kept_where_the_queue_says_so(node: Node, rows: Rows) -> None:
    node.declare("kept", retain=60)
    for queue in ("orders", "kept"):
        node.put(queue, b"one")
        node.receive(queue)[0].ack()
    assert rows("SELECT body FROM message ORDER BY id") == [(None,), (b"one",)]


def test_who_waits_is_woken_by_a_put_in_another_process(node: Node, program: Program) -> None:
    node.declare("orders")
    one = program("print('ready')\nsys.stdin.readline(); node.put('orders', repr(time.time()))\ntime.sleep(5)")
    assert said(one) == "ready"
    assert one.stdin is not None
    one.stdin.write("\n")
    one.stdin.flush()
    (message,) = node.receive("orders", wait=10)
    assert time.time() - float(message.body) < 1


def test_a_dead_letter_of_a_group_goes_back_as_the_last_of_it(node: Node) -> None:
    node.declare("orders", max_failures=1, on_poison="skip")
    node.put_many("orders", [1, 2], group="a")
    node.receive("orders")[0].nack("bad")
    assert node.dead("orders").redrive() == 1
    assert [one.json() for one in node.receive("orders", 9)] == [2, 1]


@pytest.mark.parametrize("group", [None, "a"])
def test_a_dead_letter_of_a_deleted_queue_goes_where_it_is_said_to_and_not_into_what_nothing_consumes(
    node: Node, group: str | None
) -> None:
    node.put("orders", b"one", group=group)
    node.reject(node.receive("orders"))
    node.delete("orders")
    node.put("orders", b"anew")
    assert node.dead("orders").peek() == []
    dead = node.dead("orders#1")
    (letter,) = dead.peek()
    with pytest.raises(
        NotAllowed, match=rf"orders is deleted .* `wsrm-mq dead-letter \w+ {letter.position} --to QUEUE`"
    ):
        dead.redrive()
    assert len(dead.peek()) == 1
    if group is None:
        assert dead.redrive(to="orders") == 1
    else:
        dead.edit_and_redrive(letter.position, to="orders")
    assert sorted(one.body for one in node.receive("orders", 9)) == [b"anew", b"one"]


def test_dead_letters_are_discarded_or_go_to_another_queue(node: Node, rows: Rows) -> None:
    node.declare("other")
    node.put_many("orders", range(3))
    node.reject(node.receive("orders", 3))
    dead = node.dead("orders")
    first, *_ = dead.peek()
    assert dead.discard([first.position]) == 1
    assert ("discarded", "by_operator") in rows(EVENTS)
    assert dead.redrive(to="other") == 2
    assert [one.json() for one in node.receive("other", 9)] == [1, 2]


def test_a_dead_letter_tells_why_it_was_given_up_and_not_what_it_waited_for(node: Node) -> None:
    position = node.put("orders", b"one", delay=60)
    assert [one.reason for one in node.peek("orders")] == ["scheduled"]
    node.settle("orders", f"position = {position}", "reject")
    assert [one.reason for one in node.dead("orders").peek()] == ["rejected"]


@pytest.mark.local("the end of a process is seen at once; a session ends when it was silent for its time")
def test_a_queue_that_one_reads_alone_is_free_when_its_process_is_killed(node: Node, program: Program) -> None:
    node.declare("orders", access="exclusive")
    node.put_many("orders", range(2))
    reader = program("node.receive('orders')\nprint('has it')\ntime.sleep(60)")
    assert said(reader) == "has it"
    with pytest.raises(QueueBusy):
        node.receive("orders")
    killed(reader)
    assert node.receive("orders", wait=20)


@pytest.mark.local("counts the commits of the local node")
def test_many_dead_letters_are_redriven_and_discarded_in_commits_between_which_others_write(node: Node) -> None:
    node.put_many("orders", range(1_200))
    node.reject(node.receive("orders", 1_200))
    dead = node.dead("orders")
    before = node.store.writer.commits
    assert dead.redrive() == 1_200
    assert node.store.writer.commits - before >= 3
    node.reject(node.receive("orders", 1_200))
    before = node.store.writer.commits
    assert dead.discard() == 1_200
    assert node.store.writer.commits - before >= 3
    assert node.stats("orders").dead == 0


@pytest.mark.local("counts the commits of the local node")
def test_a_purge_of_much_is_many_commits_between_which_others_write(node: Node) -> None:
    node.put_many("orders", range(1_200))
    (one,) = node.receive("orders")
    before = node.store.writer.commits
    assert node.purge("orders") == (1_199, 1)
    assert node.store.writer.commits - before >= 3
    assert one.ack() is Settlement.SETTLED


@pytest.mark.local("counts the commits of the local node")
def test_a_large_queue_is_deleted_in_commits_between_which_others_write_and_not_where_it_is_used(
    node: Node, connect: Connect
) -> None:
    node.put_many("orders", range(1_200))
    (one,) = connect().receive("orders")
    with pytest.raises(QueueBusy, match="process"):
        node.delete("orders")
    assert node.stats("orders").messages == 1_200
    one.release()
    queue = node.subscribe_durable("db/#", "s")
    for number in range(600):
        node.publish("db/add", number)
    before = node.store.writer.commits
    assert node.delete("orders").settled == 1_200
    assert node.unsubscribe("s").settled == 600
    assert node.store.writer.commits - before >= 5
    assert not {"orders", queue} & {*node.keys()}


def test_a_purge_leaves_what_is_leased_and_says_how_much(node: Node) -> None:
    node.put_many("orders", range(3))
    (one,) = node.receive("orders")
    assert node.purge("orders") == (2, 1)
    assert one.ack() is Settlement.SETTLED


def test_what_is_redriven_may_count_on(node: Node) -> None:
    node.declare("orders", max_failures=2, retry=[0])
    position = node.put("orders", b"one")
    for _ in range(2):
        node.receive("orders", wait=5)[0].nack("bad")
    assert node.dead("orders").redrive(reset=False) == 1
    (again,) = node.receive("orders")
    assert (again.position, again.failures) == (position, 2)
    again.nack("bad")
    assert [one.failures for one in node.dead("orders").peek()] == [3], "the first failure is one too many again"


@pytest.mark.parametrize("group", [None, "a"])
def test_a_dead_letter_is_edited_and_the_edited_message_has_its_place(
    node: Node, rows: Rows, group: str | None
) -> None:
    node.declare("orders", properties={"id": "/order/@id"})
    node.put("orders", b"<order id='1'/>", type="Order", priority=7, message_id="m-1", group=group)
    node.reject(node.receive("orders"), "no good")
    dead = node.dead("orders")
    (letter,) = dead.peek()
    edited = dead.edit_and_redrive(letter.position, b"<order id='2'/>")
    assert edited > letter.position
    assert dead.peek() == []
    (again,) = node.receive("orders")
    assert (again.position, again.body, again.type, again.priority) == (edited, b"<order id='2'/>", "Order", 7)
    assert (again.message_id, again.properties, again.failures) == ("m-1", {"id": "2"}, 0)
    assert again.ack() == "settled"
    event, reason = rows(EVENTS)[-1]
    assert (event, reason) == ("redriven", f"redriven by a program; as edited at position {edited}")
    with pytest.raises(NotFound, match="no dead letter"):
        dead.edit_and_redrive(letter.position, b"")


def test_a_dead_letter_may_get_another_type_alone_and_go_to_another_queue(node: Node) -> None:
    node.declare("other")
    node.put("orders", {"id": 1}, type="Ordr")
    node.reject(node.receive("orders"))
    dead = node.dead("orders")
    dead.edit_and_redrive(dead.peek()[0].position, type="Order", to="other")
    (again,) = node.receive("other")
    assert (again.type, again.json(), again.content_type) == ("Order", {"id": 1}, "application/json")
