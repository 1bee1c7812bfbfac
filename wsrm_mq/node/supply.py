"""The supply of a node's consumers: one transaction at a time sends their acknowledgements, renews the leases of
what waits, and leases as much as they have room for.

It waits for nothing and has no thread: a turn is asked for by a consumer, by the doorbell, or by the watch when
something is due, and is run by the writer. It is of those that have something to send, and of those that have room
where something is ready: thousands that wait cost no transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from wsrm_mq.errors import StoreError, StoreUnavailable, UnknownQueue, WSRMError
from wsrm_mq.node.backlog import Held
from wsrm_mq.node.doorbell import Doorbell
from wsrm_mq.node.flow import Flow, Rest
from wsrm_mq.node.message import Message, Settling, shown
from wsrm_mq.node.sharing import Load, shares
from wsrm_mq.queue import declaring, settling
from wsrm_mq.queue.declaring import Declared, declared
from wsrm_mq.queue.leasing import Leased, Request, barriers_for, count_ready, lease
from wsrm_mq.queue.policies import FOREVER
from wsrm_mq.queue.settling import Lease, Settlement
from wsrm_mq.store.store import Store
from wsrm_mq.store.subscribing import OTHER_LOADS
from wsrm_mq.store.transaction import Transaction

SOON_MS: Final = 1_000
LEFT_SECONDS: Final = 0.1
"""How long a message is left to a consumer of another process that has the smaller part of its backlog in use."""


class Renewed(NamedTuple):
    held: list[Held]
    answers: list[Settlement]
    until: int


class Turn(NamedTuple):
    """The results of a turn, by flow: acknowledgements too late, leases renewed, messages leased, an error."""

    lost: dict[Flow, int]
    renewed: dict[Flow, Renewed]
    leased: dict[Flow, list[Leased]]
    failed: dict[Flow, WSRMError]
    offset: int
    """ms from the clock of leases to the time of day."""
    has_returned: bool
    """Some went back from consumers that did not come."""


class Supply:
    """The supply of one node, which rings its ``doorbell``. ``of``: those that settle the messages of each flow."""

    def __init__(self, store: Store, doorbell: Doorbell, of: Mapping[Flow, Settling]) -> None:
        self._store = store
        self._doorbell = doorbell
        self._of = of
        self.clock: Callable[[], int] = store.believed.steady or store.clock
        self._lock = threading.Lock()
        self._under_way = False
        self._asked: set[Flow] = set()
        """The flows that are looked at next."""
        self._is_rung = False
        """Something may be ready for any of them."""
        self._looks_at = 0
        """The time when the watch looks next, in ms."""
        self._turns = 0
        self._left_at: int | None = None
        """When a message was left to other processes that none has leased since, ms; ``None``: there is none."""

    @property
    def flows(self) -> list[Flow]:
        return list(self._of)

    def look(self) -> float:
        """The watch calls it: ask where something is due. Answers after how many seconds it looks again."""
        now = self.clock()
        if not 0 < self._looks_at - now <= SOON_MS:
            flows = self.flows
            self.ask(*flows)
            due = min((at for flow in flows if (at := flow.due_at()) is not None), default=now + SOON_MS)
            self._looks_at = min(max(due, now + 2), now + SOON_MS)
        return (self._looks_at - now) / 1000

    def acknowledged(self, flow: Flow, message: Message) -> None:
        """A consumer has taken a message: its acknowledgement is sent when that is due."""
        if flow.acknowledge(message):
            self.ask(flow)
            return
        self._mind(flow)

    def _mind(self, flow: Flow) -> None:
        """Have the watch look when something of it is due."""
        due_at = flow.due_at()
        if due_at is not None and due_at < self._looks_at:
            self._looks_at = due_at
            self._doorbell.nudge()

    def rung(self) -> None:
        """Something may be ready: have it leased, where there is room for it."""
        self._is_rung = True
        self.ask()

    def ask(self, *flows: Flow) -> None:
        """Look whether these have something to send, and whether something is ready for them."""
        with self._lock:
            self._asked.update(flows)
            if self._under_way:
                return
            self._under_way = True
        self._go_on()

    def _go_on(self) -> None:
        """Begin a turn for those that have asked and need one."""
        while True:
            with self._lock:
                asked, self._asked = self._asked, set()
                is_rung, self._is_rung = self._is_rung, False
                self._under_way = bool(asked or is_rung)
            if not self._under_way:
                return
            now = self.clock()
            due = {flow for flow in asked if flow.is_due(now)}
            waiting = {flow for flow in (self.flows if is_rung else asked) if flow.has_room} - due
            ready = self._ready({flow.names for flow in waiting})
            taking = {flow for flow in waiting if flow.names in ready}
            if due or taking:
                self._turn(due, [flow for flow in self.flows if flow in due or flow in taking])
                return

    def _ready(self, queues: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
        """The queues of these in which something may be ready. Of many processes that are told of one message one
        leases it, and the others do not keep it waiting."""
        found: set[tuple[str, ...]] = set()
        for names in queues:
            try:
                with self._store.reader() as db:
                    now = self._store.reached()
                    is_ready = any(
                        one.policy.barrier or count_ready(db, one, None, now, most=1)
                        for one in (declaring.read(db, name) for name in names)
                    )
            except WSRMError:
                is_ready = True  # a turn tells the consumer
            if is_ready:
                found.add(names)
        return found

    def _turn(self, due: set[Flow], flows: list[Flow]) -> None:
        sent = {flow: found for flow in due if (found := flow.to_send())}
        left = [one.message.lease for flow in due for one in flow.to_take_back()]
        renewed = {flow: found for flow in due if (found := flow.to_renew())}
        try:
            self._store.submit(
                partial(self._run, flows, sent, left, renewed),
                partial(self._done, sent),
                keep=bool(sent or left),
                drains=True,
            )
        except StoreError as error:
            self._done(sent, None, error)

    # in the transaction

    def _run(
        self,
        flows: Sequence[Flow],
        sent: dict[Flow, list[Held]],
        left: list[Lease],
        renewed: dict[Flow, list[Held]],
        tx: Transaction,
    ) -> Turn:
        turn = Turn({}, {}, {}, {}, tx.now - tx.measured, has_returned=bool(left))
        if left:
            settling.take_back(tx, left)
        acks = [one.message.lease for found in sent.values() for one in found]
        if acks:
            told = dict(zip(acks, settling.ack(tx, acks), strict=True))
            for flow, found in sent.items():
                turn.lost[flow] = sum(told[one.message.lease] is Settlement.LOST for one in found)
        for flow, found in renewed.items():
            answers = settling.renew(tx, [one.message.lease for one in found], flow.granted.lease)
            turn.renewed[flow] = Renewed(found, answers, tx.measured + (flow.granted.lease or 0))
        groups: dict[tuple[str, ...], list[Flow]] = {}
        for flow in flows:
            if flow.is_open:
                groups.setdefault(flow.names, []).append(flow)
        for names, rivals in groups.items():
            loads = [_load(flow, sent.get(flow, ())) for flow in rivals]
            self._lease(tx, names, rivals, loads, turn)
        return turn

    def _lease(
        self, tx: Transaction, names: tuple[str, ...], rivals: list[Flow], loads: list[Load], turn: Turn
    ) -> None:
        """Lease for subscriptions of the same queues, each its share."""
        try:
            at = self._turns % len(names)
            found = [declared(tx, name) for name in (*names[at:], *names[:at])]
        except UnknownQueue as error:
            deleted = UnknownQueue(
                f"{error} It was deleted, or unsubscribed, while it was consumed; what an operator did is in `wsrm-mq "
                "audit list`."
            )
            turn.failed.update(dict.fromkeys(rivals, deleted))
            return
        except WSRMError as error:
            turn.failed.update(dict.fromkeys(rivals, error))
            return
        if len(found) == 1 and found[0].policy.barrier is not None:
            for flow in rivals:
                turn.leased.setdefault(flow, []).extend(barriers_for(tx, found[0], flow.granted.key))
        others = self._others(tx, found[0])
        is_short = True
        while is_short and any(load.room for load in loads):
            is_short = False
            for index, part in enumerate(self._parts(tx, found, loads, others)):
                if part:
                    got = _leased(tx, found, rivals[index], part, turn)
                    if got:
                        turn.leased.setdefault(rivals[index], []).extend(got)
                        self._turns += 1
                    load, is_through = loads[index], len(got) < part
                    is_short = is_short or is_through  # what it does not take is for others
                    loads[index] = Load(load.granted if is_through else load.unsettled + len(got), load.granted)

    def _others(self, tx: Transaction, queue: Declared) -> list[Load]:
        """The loads of consumers in other processes, which share a queue of proportional fairness by their loads. None
        once a share that was left to one of them has stayed for ``LEFT_SECONDS``: it is shared without them then."""
        if queue.policy.fairness != "proportional":
            return []
        is_over = self._left_at is not None and tx.measured - self._left_at >= LEFT_SECONDS * 1000
        self._left_at = None if is_over else self._left_at
        which = {"queue": queue.key, "instance": tx.instance}
        return [] if is_over else [Load(*row) for row in tx.execute(OTHER_LOADS, which).fetchall()]

    def _parts(self, tx: Transaction, found: list[Declared], loads: list[Load], others: list[Load]) -> list[int]:
        """How many messages each of this process leases, where those of others get their share too."""
        if not others and sum(load.room > 0 for load in loads) == 1:
            return [load.room for load in loads]
        most = sum(load.room for load in (*loads, *others))
        ready = sum(count_ready(tx, queue, None, tx.reached, most) for queue in found)
        parts = shares(found[0].policy.fairness, [*loads, *others], ready, self._turns)
        mine = parts[: len(loads)]
        is_left = sum(mine) < min(ready, sum(load.room for load in loads))
        if not is_left:
            self._left_at = None
        elif self._left_at is None:
            self._left_at = tx.measured
            timer = threading.Timer(LEFT_SECONDS + 0.01, self.rung)
            timer.daemon = True
            timer.start()
        return mine

    # when it is committed

    def _done(self, sent: dict[Flow, list[Held]], turn: Turn | None, error: BaseException | None) -> None:
        try:
            if turn is None:
                self._not_done(sent, error)
            else:
                self._deliver(sent, turn)
        finally:
            self._under_way = False
        if sent and error is None:
            self._doorbell.settled()
        if turn is not None and (
            turn.has_returned
            or any(held.message.frees_others for found in sent.values() for held in found)
            or any(one.is_barrier or one.is_told for leased in turn.leased.values() for one in leased)
        ):
            self._doorbell.tell_soon()
        if error is None:
            self.ask()

    def _deliver(self, sent: dict[Flow, list[Held]], turn: Turn) -> None:
        for flow, held in sent.items():
            flow.sent(held, turn.lost[flow])
        for flow, renewed in turn.renewed.items():
            self._give_back(Rest(ahead=flow.renewed_ahead(*renewed)))
        for flow, wrong in turn.failed.items():
            self._give_back(flow.end(wrong))  # of its other queues
        for flow, leased in turn.leased.items():
            held = [self._held(flow, one, turn.offset) for one in leased]
            if flow.arrive(held):
                self._mind(flow)
            else:
                self._give_back(Rest(ahead=held))

    def _held(self, flow: Flow, one: Leased, offset: int) -> Held:
        until = None if one.until >= FOREVER else one.until
        return Held(Message(self._of.get(flow), one, shown(one.until, offset)), until, one.seen.lane)

    def _give_back(self, rest: Rest) -> None:
        if any(rest):
            self._store.submit(rest.settle, lambda _result, _error: None, keep=True)

    def _not_done(self, sent: dict[Flow, list[Held]], error: BaseException | None) -> None:
        """A turn was not stored: the watch tries again where the store may be written later, else no flow goes on."""
        for flow, held in sent.items():
            flow.not_sent(held)
        if not (isinstance(error, StoreUnavailable) and self._store.is_open):
            for flow in self.flows:
                flow.end(error)


def _load(flow: Flow, sent: Sequence[Held]) -> Load:
    load = flow.load
    return Load(load.unsettled - len(sent), load.granted)


def _leased(tx: Transaction, found: list[Declared], flow: Flow, count: int, turn: Turn) -> list[Leased]:
    granted = flow.granted
    request = Request(count, None, granted.lease, flow.wanted, granted.consumer, granted.key)
    try:
        return lease(tx, found, request)
    except WSRMError as error:
        turn.failed[flow] = error
        return []
