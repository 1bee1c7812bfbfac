"""Any history of calls, by several nodes on one store, against a model of a few dictionaries (``model``).

After every call each node's look at a queue is held against the model, and the store against its invariants. Nodes have
no watch here, and no janitor: what time and deaths bring about is done when the history says so, by the verbs that
those call.

Of the invariants of the queue model the machine holds I2, I4, I5, I10, I12 and I15 after each call, by each entry's
state, count and body; I1 with each message that is stored, I3 with each lease, I9 with each subscription, I17 with each
settlement by a filter; I6 and I11 at the end, by each entry's one outcome and its row. Nodes that close and die are
calls as others are, so what was answered before is there behind them: I7, as far as a process goes.

The simulator (``tests/simulator``, which has a table of all) holds I1 to I13 and I15 to I17 over commits that are cut
off, sequences that have gaps, and processes that are taken for dead. What neither can show is shown where it happens:
I7, what an acknowledgement promises over kill -9 and a loss of power (``test_killed``, ``test_durability``,
``tests/soak``), I8 over a kill within a commit (``test_journals``, ``tests/crash``), I16, that nothing blocks a thread
of a server (``tests/scenarios/test_blocking``, ``tests/delivery/test_completion``).
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, precondition, rule

import wsrm_mq.store.store
from tests.node.model import Entry, Model
from tests.node.test_subscription import until
from tests.support.examples import examples
from tests.support.stored import empty_store
from wsrm_mq.errors import LeaseLost, OutOfOrder, QueueBusy, Unrouted
from wsrm_mq.node import Node
from wsrm_mq.node.message import Message
from wsrm_mq.queue import expiring
from wsrm_mq.queue.policies import QueuePolicy
from wsrm_mq.queue.retention import Kept, batches
from wsrm_mq.store.clock import Believed, Steady
from wsrm_mq.store.invariants import all_findings

MEMORY: Final = Path("/dev/shm")
BEGINNING: Final = 1_700_000_000_000
HOUR: Final = 3_600_000
QUEUES: Final = ("a", "b")
POLICIES: Final = [
    QueuePolicy(lease=10, retry=(0, 5), max_failures=3, on_poison="skip", max_backlog=2),
    QueuePolicy(lease=20, retry=(5,), max_failures=2, max_cancels=2, on_poison="block", ttl=60),
    QueuePolicy(lease=10, retry=(), max_failures=1, dead_letter=False, leasing="sublet", on_poison="block"),
    QueuePolicy(lease=None, retry=(0,), max_failures=None, max_deliveries=3, dedupe_window=30.0),
    QueuePolicy(lease=10, delivery="at_most_once", max_cancels=1),
]
KINDS: Final = st.sampled_from(["x", "y"])
GROUPS: Final = st.sampled_from([None, None, "g", "h"])
IDS: Final = st.sampled_from([None, None, None, "1", "2"])
SIZES: Final = st.integers(1, 40)
WHO: Final = st.integers(0, 1)
ACTIONS: Final = ("ack", "expire", "reject")
REASONS: Final = {"expire": "forced_expire", "reject": "rejected"}
TOPIC: Final = "t/1"
SINCE: Final = "SELECT e.id, q.name, e.message FROM entry e JOIN queue q ON q.id = e.queue WHERE e.id > ? ORDER BY e.id"


class Lease:
    """A message that somebody has, or had."""

    def __init__(self, message: Message, entry: Entry) -> None:
        self.message = message
        self.entry = entry


class Calls(RuleBasedStateMachine):
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self._home = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.path = Path(self._home.name) / "store.db"
        self.path.write_bytes(empty_store())
        self.path.chmod(0o600)
        self._patched = pytest.MonkeyPatch()
        self._patched.setattr(wsrm_mq.store.store, "believed_of", self._believed)
        self.model = Model({}, BEGINNING, BEGINNING)
        self.opened = 0
        self.nodes = [self.open(), self.open()]
        self.holders = [0, 1]
        self.reader = sqlite3.connect(self.path, isolation_level=None)
        self.fences: Counter[object] = Counter()
        self.bodies: dict[int, bytes] = {}
        self.was_set_back = False

    def _believed(self, _clock: object, _file: Path) -> Believed:
        return Believed(None, None, Steady(lambda: self.model.wall, lambda: self.model.steady / 1000))

    def open(self) -> Node:
        node = Node(self.path, clock=lambda: self.model.wall)
        node.doorbell.stop()
        node.upkeep.stop()
        return node

    def teardown(self) -> None:
        for name in QUEUES if self.model.policies else ():
            self.check_letters(self.nodes[0], name)
        self.check_ledger()
        with self.nodes[0].store.reader() as db:
            assert list(all_findings(db)) == []
        self.reader.close()
        for node in self.nodes:
            node.close()
        self._patched.undo()
        self._home.cleanup()

    # putting

    @initialize(first=st.sampled_from(POLICIES), second=st.sampled_from(POLICIES))
    def declare(self, first: QueuePolicy, second: QueuePolicy) -> None:
        for name, policy in zip(QUEUES, (first, second), strict=True):
            options = {field: getattr(policy, field) for field in QueuePolicy.__struct_fields__}
            assert self.nodes[0].declare(name, **options) == policy
            self.model.policies[name] = policy
        self.bind()

    def bind(self) -> None:
        self.nodes[1].bind("t/*", "a")
        self.nodes[1].bind("t/#", "b", filter="kind = 'x'")

    def body(self, size: int) -> bytes:
        return bytes([len(self.bodies) % 256]) * size

    def group(self, queue: str, group: str | None) -> str | None:
        return None if self.model.policies[queue].delivery == "at_most_once" else group

    def is_new(self, position: int, queue: str, kind: str, body: bytes, priority: int, message: int) -> Entry:
        assert position > self.model.highest, "positions grow, and none is given twice (I1)"
        self.bodies[message] = body
        return Entry(position, queue, message, kind, len(body), priority)

    def id_to_give(self, message_id: str | None) -> str | None:
        """None where the clock was set back: what was forgotten while it was ahead is forgotten."""
        return None if self.was_set_back else message_id

    def known(self, queue: str, message_id: str | None) -> Entry | None:
        found = self.model.known.get((queue, message_id or ""))
        return found[0] if found is not None and found[1] > self.model.wall else None

    def stays_known(self, one: Entry, message_id: str | None) -> None:
        if message_id is not None:
            until = self.model.wall + round(self.model.policies[one.place].dedupe_window * 1000)
            self.model.known[one.place, message_id] = one, until

    @rule(
        who=WHO,
        queue=st.sampled_from(QUEUES),
        kind=KINDS,
        size=SIZES,
        priority=st.sampled_from([4, 4, 0, 9]),
        group=GROUPS,
        delay=st.sampled_from([None, None, None, 7]),
        ttl=st.sampled_from([None, None, 12]),
        message_id=IDS,
    )
    def put(
        self,
        who: int,
        queue: str,
        kind: str,
        size: int,
        priority: int,
        group: str | None,
        delay: int | None,
        ttl: int | None,
        message_id: str | None,
    ) -> None:
        group, body = self.group(queue, group), self.body(size)
        delay = None if group is not None else delay
        message_id = self.id_to_give(message_id)
        options: dict[str, Any] = {"priority": priority, "ttl": ttl, "delay": delay, "message_id": message_id}
        position = self.nodes[who].put(queue, body, group=group, properties={"kind": kind}, **options)
        if (before := self.known(queue, message_id)) is not None:
            assert position == before.position, "the same message"
            return
        one = self.is_new(position, queue, kind, body, priority, position)
        if delay is not None:
            one.waits_until = self.model.wall + delay * 1000
        self.model.put(one, group, None if ttl is None else ttl * 1000)
        self.stays_known(one, message_id)
        self.check()

    @rule(who=WHO, queue=st.sampled_from(QUEUES), kinds=st.lists(KINDS, min_size=2, max_size=4), group=GROUPS)
    def put_many(self, who: int, queue: str, kinds: list[str], group: str | None) -> None:
        """In a transaction, together with what is put elsewhere."""
        group, body = self.group(queue, group), self.body(8)
        node = self.nodes[who]
        with node.transaction() as transaction:
            for kind in kinds:
                node.put(queue, body, group=group, properties={"kind": kind})
            node.put_many("a", [body])
            other = self.nodes[1 - who]
            assert other.stats("a").messages == len(self.model.live("a")), "nothing is seen before the commit"
        for kind, name, position in zip(
            [*kinds, "-"], [*[queue] * len(kinds), "a"], transaction.positions, strict=True
        ):
            one = self.is_new(position, name, kind, body, 4, position)
            self.model.put(one, group if kind != "-" else None, None)
        self.check()

    @rule(who=WHO, queue=st.sampled_from(QUEUES), lease=st.none() | leases)
    def roll_back(self, who: int, queue: str, lease: Lease | None) -> None:
        node = self.nodes[who]
        node.begin()
        node.put(queue, b"never", message_id="never")
        node.publish(TOPIC, b"never", properties={"kind": "x"})
        if lease is not None:
            node.ack([lease.message])
        node.rollback()
        self.check()

    @rule(who=WHO, kind=KINDS, size=SIZES, message_id=IDS)
    def publish(self, who: int, kind: str, size: int, message_id: str | None) -> None:
        body = self.body(size)
        message_id = self.id_to_give(message_id)
        done = self.nodes[who].publish(TOPIC, body, properties={"kind": kind}, message_id=message_id)
        wanted = ["a", *(["b"] if kind == "x" else [])]
        before = {name: found for name in QUEUES if (found := self.known(name, message_id)) is not None}
        assert set(done.queues) == {*wanted, *before}
        fresh = self.reader.execute(SINCE, (self.model.highest,)).fetchall()
        assert sorted(name for _position, name, _message in fresh) == [name for name in wanted if name not in before]
        if before:
            assert done.position in [one.position for one in before.values()]
        for position, name, message in fresh:
            one = self.is_new(position, name, kind, body, 4, message)
            self.model.put(one, None, None)
            self.stays_known(one, message_id)
        self.check()

    @rule(who=WHO)
    def publish_to_none(self, who: int) -> None:
        with pytest.raises(Unrouted):
            self.nodes[who].publish("elsewhere", b"", mandatory=True)
        self.check()

    # leasing and settling

    @rule(
        target=leases,
        who=WHO,
        queue=st.sampled_from(QUEUES),
        most=st.integers(1, 4),
        max_bytes=st.sampled_from([None, None, 30]),
        kind=st.sampled_from([None, None, "x", "y"]),
    )
    def receive(self, who: int, queue: str, most: int, max_bytes: int | None, kind: str | None) -> Any:
        text = None if kind is None else f"kind = '{kind}'"
        got = self.nodes[who].receive(queue, most, max_bytes=max_bytes, filter=text)
        wanted = None if kind is None else lambda one: one.kind == kind  # type: ignore[unused-ignore]
        expected = self.model.lease(queue, self.holders[who], most, max_bytes, wanted)
        return self.leased(got, expected)

    @rule(target=leases, who=WHO, queue=st.sampled_from(QUEUES), most=st.integers(1, 3))
    def receive_letters(self, who: int, queue: str, most: int) -> Any:
        node = self.nodes[who]
        got = node.dead(queue).receive(most)
        return self.leased(got, self.model.lease_letters(queue, self.holders[who], most))

    def leased(self, got: list[Message], expected: list[Entry]) -> Any:
        assert [one.position for one in got] == [one.position for one in expected]
        for message, one in zip(got, expected, strict=True):
            fenced = one.group if one.in_group else one
            assert (message.lease.fence or 0) > self.fences[fenced] or one.in_group, "fences grow (I3)"
            self.fences[fenced] = message.lease.fence or 0
            assert message.lease.fence == one.fence
            assert message.body == self.bodies[one.message]
            assert message.failures == one.failures
            assert message.deliveries == one.deliveries + one.in_group, "a group counts when it comes back"
            assert message.number == one.number
        self.check()
        return multiple(*(Lease(message, one) for message, one in zip(got, expected, strict=True)))

    @rule(lease=leases, who=WHO, verb=st.sampled_from(["ack", "release", "nack", "reject", "expire", "renew"]))
    def settle(self, lease: Lease, who: int, verb: str) -> None:
        """The lease may be another node's, of a dead one, or over; that is the same: it is known by its fence."""
        one, node = lease.entry, self.nodes[who]
        if one.place not in QUEUES:  # its queue was deleted
            return
        if one.position not in self.model.entries:
            assert getattr(node, verb)([lease.message]) == ["unknown"], "it was pruned"
            return
        answer = self.model.judge(one, lease.message.lease.fence, only_leased=verb in ("release", "nack", "renew"))
        if answer == "settled":
            reason = {"reject": "rejected", "expire": "forced_expire"}.get(verb)
            model = self.model.reject if reason else getattr(self.model, verb)
            answer = model(one, reason) if reason else model(one)
        call: Callable[..., Any] = getattr(node, verb)
        if answer == "lost":
            with pytest.raises(LeaseLost, match="had ended"):
                call([lease.message])
        elif answer == "out_of_order":
            with pytest.raises(OutOfOrder, match="Settle that first"):
                call([lease.message])
        else:
            assert call([lease.message]) == [answer]
        self.check()

    @precondition(lambda self: self.there())
    @rule(who=WHO, which=st.integers(0), by_id=st.booleans())
    def settle_in_no_lease(self, who: int, which: int, by_id: bool) -> None:
        there = self.there()
        one = there[which % len(there)]
        same_message = [other for other in self.model.entries.values() if other.message == one.message]
        if by_id and len(same_message) == 1:
            fence = one.fence if one.is_leased else None
            answer = self.model.judge(one, fence)
            call = lambda: self.nodes[who].received(one.place, f"#{one.message}")  # noqa: E731
        else:
            answer = self.model.judge(one, None)
            its = "SELECT queue.name FROM entry JOIN queue ON queue.id = entry.queue WHERE entry.id = ?"
            found = self.reader.execute(its, (one.position,)).fetchone()
            place = found[0] if found is not None else one.place  # that of a dead letter is another
            call = lambda: self.nodes[who].ack_at(place, one.position)  # noqa: E731
        if answer == "settled":
            answer = self.model.ack(one)
        assert call() == answer
        self.check()

    @rule(who=WHO, queue=st.sampled_from(QUEUES), kind=KINDS, action=st.sampled_from(ACTIONS))
    def settle_by_filter(self, who: int, queue: str, kind: str, action: str) -> None:
        """It is a look, and each settled by itself (I17)."""
        seen = self.nodes[who].peek(queue, filter=f"kind = '{kind}'", limit=1_000)
        settled = 0
        found = [self.model.entries[one.position] for one in seen]
        assert found == [one for one in self.model.live(queue) if one.kind == kind]
        fences = {one: one.fence if one.holder == self.holders[who] else None for one in found}
        for one in [one for one in found if self.model.judge(one, fences[one]) == "settled"]:
            done = self.model.ack(one) if action == "ack" else self.model.reject(one, REASONS[action])
            settled += done == "settled"
        cleared = self.nodes[who].settle(queue, f"kind = '{kind}'", action)
        assert cleared == (settled, len(found) - settled)
        self.check()

    @rule(who=WHO, queue=st.sampled_from(QUEUES), edges=st.tuples(st.integers(0, 30), st.integers(0, 30)))
    def purge(self, who: int, queue: str, edges: tuple[int, int]) -> None:
        lower, upper = sorted(edges)
        assert self.nodes[who].purge(queue, lower, upper) == self.model.purge(queue, lower, upper)
        self.check()

    def there(self) -> list[Entry]:
        """The entries that are, or were, in queues that are not deleted."""
        return [one for one in self.model.entries.values() if one.place in QUEUES]

    @rule(who=WHO, queue=st.sampled_from(QUEUES), how=st.sampled_from(["", "", "if_empty", "force"]))
    def delete(self, who: int, queue: str, how: str) -> None:
        """A queue that was deleted is declared anew; nothing of the old one is in it."""
        node, policy = self.nodes[who], self.model.policies[queue]
        options = {how: True} if how else {}
        if how != "force" and (self.model.is_busy(queue) or (how == "if_empty" and self.model.live(queue))):
            with pytest.raises(QueueBusy):
                node.delete(queue, **options)
            self.check()
            return
        cleared = node.delete(queue, **options)
        assert cleared == (self.model.delete(queue), 0)
        assert queue not in set(node.keys())
        node.declare(queue, **{field: getattr(policy, field) for field in QueuePolicy.__struct_fields__})
        self.bind()
        self.check()

    @rule(who=WHO)
    def prune(self, who: int) -> None:
        """Messages that were settled long ago are forgotten, and nothing else (I1: nor are positions given again)."""
        node = self.nodes[who]
        for batch in batches(node.store.reader, lambda _partner: Kept(0, 0), self.model.wall):
            node.call(batch)
        left = {position for (position,) in self.reader.execute("SELECT id FROM entry")}
        gone = [one for one in self.model.entries.values() if one.position not in left]
        due = [one for one in self.model.entries.values() if one.place not in QUEUES or self.model.is_due(one)]
        assert all(one in due and one.outcome not in (None, "dead") for one in gone)
        if not self.was_set_back:
            late = [one for one in self.there() if one in due and one not in gone and one.reason != "replayed"]
            assert late == []
        self.model.pruned(gone)
        self.check()

    @precondition(lambda self: any(one.outcome == "dead" for one in self.there()))
    @rule(who=WHO, which=st.integers(0))
    def redrive(self, who: int, which: int) -> None:
        dead = [one for one in self.there() if one.outcome == "dead"]
        one = dead[which % len(dead)]
        done = self.nodes[who].dead(one.place).redrive([one.position])
        assert done == (not one.is_leased)
        if done:
            (last,) = self.reader.execute("SELECT max(id) FROM entry").fetchone()
            self.model.redrive(one, last)
        self.check()

    @rule(
        who=WHO,
        queue=st.sampled_from(QUEUES),
        asked=st.integers(1, 5),
        taken=st.integers(0, 4),
        kind=st.sampled_from([None, None, "x"]),
    )
    def subscribe(self, who: int, queue: str, asked: int, taken: int, kind: str | None) -> None:
        """It has as much as was granted, or all that is ready (I9); some of it is acknowledged, in batches, the rest
        goes back when it is closed."""
        text = None if kind is None else f"kind = '{kind}'"
        wanted = None if kind is None else lambda one: one.kind == kind  # type: ignore[unused-ignore]
        granted = min(asked, self.model.policies[queue].max_backlog or asked)
        taken = min(taken, granted - 1)  # that is no batch
        with self.nodes[who].subscribe(
            queue, max_backlog=asked, filter=text, ack_batch=asked, ack_timeout=HOUR
        ) as subscription:
            assert subscription.max_backlog == granted
            expected = self.model.lease(queue, self.holders[who], granted, None, wanted)
            got = [subscription.take(20) for _ in expected[:taken]]
            until(lambda: subscription.flow.load.unsettled >= len(expected))
            assert subscription.flow.load.unsettled == len(expected) <= granted
            assert [one.position for one in got if one is not None] == [one.position for one in expected[:taken]]
            self.check(is_alone=False)
            for message in got:
                assert message is not None
                subscription.acknowledge(message)
            for one in expected[:taken]:
                assert self.model.ack(one) in ("settled", "already_settled")
        self.model.hand_back(expected[taken:])
        self.check()

    # time, and those that go

    @rule(seconds=st.sampled_from([1, 5, 11, 31]))
    def time_passes(self, seconds: int) -> None:
        self.model.wall += seconds * 1_000
        self.model.steady += seconds * 1_000
        self.sweep()

    @rule(hours=st.sampled_from([-1, 1]))
    def the_clock_is_set(self, hours: int) -> None:
        before = [one for one in self.model.entries.values() if one.is_leased]
        self.model.wall += hours * HOUR
        if hours < 0:
            self.was_set_back = True
            self.model.turned_back()
        self.sweep()
        assert all(one.is_leased for one in before), "no lease ends by that (Q-110)"

    def sweep(self) -> None:
        self.model.sweep()
        self.nodes[0].doorbell._look_around()
        while self.nodes[0].store.call(expiring.sweep):
            continue
        self.check()

    @rule(who=WHO)
    def reopens(self, who: int) -> None:
        self.model.left(self.holders[who])
        self.nodes[who].close()
        self.enters(who)

    @rule(who=WHO)
    def dies(self, who: int) -> None:
        """As by kill -9: nothing of it is written any more, and its lock is gone."""
        node = self.nodes[who]
        node.store.suspend()
        node.store.abandon()
        self.model.died(self.holders[who])
        self.nodes[1 - who].doorbell._look_around()
        self.enters(who)

    def enters(self, who: int) -> None:
        self.opened += 1
        self.nodes[who], self.holders[who] = self.open(), self.opened + 1
        self.check()

    # what must hold

    def check(self, *, is_alone: bool = True) -> None:
        """``is_alone``: no subscription is open, whose supply writes when it likes."""
        self.model.note_settled()
        node = self.nodes[0]
        before = self.reader.execute("PRAGMA data_version").fetchone()
        for name in QUEUES:
            self.check_live(node, name)
        if is_alone:
            assert self.reader.execute("PRAGMA data_version").fetchone() == before, "a look changes nothing (I10)"
        for (message,) in self.reader.execute("SELECT id FROM message WHERE body IS NULL"):
            left = [one for one in self.model.entries.values() if one.message == message]
            assert all(one.outcome not in (None, "dead") for one in left), "a body is there for who needs it (I15)"
        for (message,) in self.reader.execute("SELECT id FROM message WHERE body IS NOT NULL"):
            left = [one for one in self.model.entries.values() if one.message == message]
            assert self.was_set_back or any(map(self.model.may_keep, left)), "and for no longer by its clock (I15)"

    def check_live(self, node: Node, name: str) -> None:
        live = self.model.live(name)
        seen = node.peek(name, limit=1_000)
        same([_told(one) for one in seen], [(one.position, *self.model.state(one), one.failures) for one in live])
        states = Counter(self.model.state(one) for one in live)
        stats = node.stats(name)
        assert (stats.ready, stats.leased) == (states["ready", None], states["leased", None])
        assert stats.held == {reason: count for (state, reason), count in states.items() if state == "held"}
        assert (stats.messages, stats.bytes) == (len(live), sum(one.size for one in live))
        assert stats.dead == len(self.model.letters(name))
        (counted,) = self.reader.execute("SELECT messages FROM queue WHERE name = ?", (name,)).fetchone()
        assert counted == len(live), "what is counted for quotas is what is there"

    def check_letters(self, node: Node, name: str) -> None:
        letters = node.dead(name).peek(limit=1_000)
        dead = self.model.letters(name)
        same([(one.position, one.reason) for one in letters], [(one.position, one.reason) for one in dead])

    def check_ledger(self) -> None:
        """All but a clean delivery has its row (I11)."""
        told = set(self.reader.execute("SELECT position, reason FROM ledger WHERE position IS NOT NULL"))
        rows = self.reader.execute("SELECT id, outcome, reason FROM entry ORDER BY id").fetchall()
        same(rows, [(one.position, one.outcome, one.reason) for one in self.model.entries.values()])
        for position, outcome, reason in rows:
            if outcome not in (None, "delivered") and reason != "replayed":
                assert (position, reason) in told


def same(found: list[Any], expected: list[Any]) -> None:
    """These are the same, in the same order."""
    more, less = [one for one in found if one not in expected], [one for one in expected if one not in found]
    assert found == expected, f"the store has {more}, and not {less}"


def _told(one: Message) -> tuple[int, str, str | None, int]:
    return one.position, one.state, one.reason, one.failures


@pytest.mark.invariant("I1", "I9", "I10", "I15", "I17")
@pytest.mark.local("has the clock of its nodes, and does what their watch does")
@pytest.mark.filterwarnings("ignore:`ack_batch`")
@pytest.mark.timeout(600)
class TestCalls(Calls.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(
        max_examples=examples(40),
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
