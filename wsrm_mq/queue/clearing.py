"""Many messages at once: settled by a filter, purged, redriven; and queues that are deleted."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from wsrm_mq.errors import QueueBusy
from wsrm_mq.queue import settling
from wsrm_mq.queue.dead_letters import BY_OPERATOR, redrive
from wsrm_mq.queue.declaring import Declared, declared
from wsrm_mq.queue.leaving import Standing, free_lane, holder_of, lane_of, put_aside, standing
from wsrm_mq.queue.ownership import move_past
from wsrm_mq.queue.policies import FOREVER
from wsrm_mq.queue.put import position_in, put_before
from wsrm_mq.queue.reporting import left
from wsrm_mq.queue.settling import Lease, Settlement
from wsrm_mq.store import consuming, queues, subscribing
from wsrm_mq.store.filtering import Filter
from wsrm_mq.store.pruning import FREE_TAKEN
from wsrm_mq.store.transaction import Transaction, as_json

PIECE: Final = 500
"""Positions that are looked up at a time."""
_LAST: Final = 2**63 - 1
_ACTIONS: Final = {"ack": settling.ack, "expire": settling.expire, "reject": settling.reject}
ACTIONS: Final = tuple(_ACTIONS)
ACTOR: Final = "node"
REDRIVEN: Final = "redriven by a program"


class Cleared(NamedTuple):
    """How many messages an act settled, and how many it skipped as others have leased them."""

    settled: int
    skipped: int = 0


class Swept(NamedTuple):
    """The result of settling by a filter. ``leased``: of what this instance had leased of the settled messages the
    fences, by position."""

    cleared: Cleared
    leased: dict[int, int]


class Part(NamedTuple):
    """The result of one transaction of several. ``next``: the place where the next one begins, of a queue that is
    deleted its key; ``None``: it was the last."""

    cleared: Cleared
    next: int | None


def together(parts: Iterable[Cleared]) -> Cleared:
    """Sum up the results of several acts."""
    found = list(parts)
    return Cleared(sum(one.settled for one in found), sum(one.skipped for one in found))


def settle_where(
    tx: Transaction, queue: Declared, wanted: Filter, action: str, own: Container[int] | None = None
) -> Swept:
    """Settle what fits a filter, delivered or not, by one of ``ACTIONS``. What others have leased is skipped, unless
    the queue's leasing is ``sublet``. ``own``: the positions of what is leased here by the one who asks, ``None``: all
    that is."""
    verb = _ACTIONS[action]
    settled = skipped = 0
    leased: dict[int, int] = {}
    for positions in _positions(tx, queue.key, wanted, 0, _LAST):
        holders = {one.position: holder_of(tx, one) for one in standing(tx, positions).values()}
        here = {position: fence for position, (owner, fence) in holders.items() if owner == tx.instance}
        mine = {position: fence for position, fence in here.items() if own is None or position in own}
        answers = verb(tx, [Lease(position, mine.get(position)) for position in positions])
        done = [at for at, answer in zip(positions, answers, strict=True) if answer is Settlement.SETTLED]
        settled, skipped = settled + len(done), skipped + len(positions) - len(done)
        leased |= {position: here[position] for position in done if position in here}
    return Swept(Cleared(settled, skipped), leased)


def tally(tx: Transaction, queue: Declared, lower: int = 0, upper: int | None = None) -> Cleared:
    """Count what a purge would give up, and what it would skip as leased."""
    bounds = {"queue": queue.key, "now": tx.now, "lower": lower, "upper": _LAST if upper is None else upper}
    count, leased = tx.execute(consuming.TALLY, bounds).fetchone()
    return Cleared(count - leased, leased)


def in_parts(
    call: Callable[[Callable[[Transaction], Part]], Part],
    first: Callable[[Transaction], Part],
    rest: Callable[[int, Transaction], Part],
) -> Cleared:
    """Do an act in as many transactions as it takes, each by ``call``: what others write goes between them. ``rest``
    gets the place where a part begins."""
    part = call(first)
    done = part.cleared
    while part.next is not None:
        part = call(partial(rest, part.next))
        done = together([done, part.cleared])
    return done


def purge(begins: int, tx: Transaction, *, name: str, upper: int) -> Part:
    """Give up what is not leased in the queue that is called so, from a position up to another one, a part of it: its
    outcome is ``purged``."""
    positions = next(_positions(tx, declared(tx, name).key, None, begins, upper), [])
    return Part(_purge(tx, positions, "purged"), positions[-1] + 1 if len(positions) == PIECE else None)


def _purge(tx: Transaction, positions: list[int], reason: str) -> Cleared:
    settled = skipped = 0
    for one in standing(tx, positions).values():
        owner, _fence = holder_of(tx, one)
        if owner is not None:
            skipped += 1
        else:
            purge_one(tx, one, reason)
            settled += 1
    return Cleared(settled, skipped)


def redrive_letters(
    tx: Transaction,
    letters: str,
    positions: Sequence[int] | None,
    to: str | None,
    *,
    after: int = 0,
    reset: bool,
    actor: str,
) -> Part:
    """Put dead letters behind a position back into the queue that they came from, or into ``to``, one part of them;
    those of a wrapped service are delivered to that again. See ``redrive``."""

    def again(one: Standing) -> None:
        redrive(tx, one.position, actor=actor, reason=REDRIVEN, to=to, counts=reset)

    return _each_letter(tx, letters, positions, after, again)


def discard_letters(
    tx: Transaction, letters: str, positions: Sequence[int] | None, *, after: int = 0, actor: str
) -> Part:
    """Give dead letters behind a position up, one part of them."""
    return _each_letter(tx, letters, positions, after, lambda one: put_aside(tx, one, BY_OPERATOR, actor))


def _each_letter(
    tx: Transaction, letters: str, positions: Sequence[int] | None, after: int, verb: Callable[[Standing], None]
) -> Part:
    search = {"queue": tx.queue_named(letters), "after": after, "count": PIECE}
    found = [at for (at,) in tx.execute(consuming.FREE_LETTERS, search).fetchall()]
    chosen = [at for at in found if positions is None or at in positions]
    for one in standing(tx, chosen).values():
        verb(one)
    return Part(Cleared(len(chosen)), found[-1] if len(found) == PIECE else None)


def received(tx: Transaction, queue: Declared, message_id: str) -> Settlement:
    """Settle the message of this id in a queue, also where another consumer has leased it."""
    position = put_before(tx, queue, message_id)
    key = message_id.removeprefix("#")
    if position is None and key != message_id and key.isdecimal() and len(key) < 19:
        position = position_in(tx, int(key), queue)
    one = None if position is None else standing(tx, [position]).get(position)
    if one is None:
        return Settlement.UNKNOWN
    owner, fence = holder_of(tx, one)
    return settling.ack(tx, [Lease(one.position, None if owner is None else fence)])[0]


def ack_many(tx: Transaction, queue: Declared, positions: list[int]) -> list[Settlement]:
    """Settle the messages at positions of a queue as taken, in no lease's name."""
    here = {at for at, one in standing(tx, positions).items() if one.queue == queue.key}
    answers = iter(settling.ack(tx, [Lease(at) for at in positions if at in here]))
    return [next(answers) if at in here else Settlement.UNKNOWN for at in positions]


def leave(tx: Transaction) -> bool:
    """Give back what this instance has leased, which is no failure; answers whether there is more."""
    mine = {"owner": tx.instance, "until": FOREVER, "count": PIECE}
    found = [key for (key,) in tx.execute(consuming.LEASED_BY, mine).fetchall()]
    if found:
        tx.execute(consuming.GIVE_BACK, {"keys": as_json(found)})
    lanes = tx.lanes_by(consuming.LANES_LEASED_BY, mine)
    for lane in lanes:
        free_lane(tx, lane)
    tx.execute(queues.LET_GO_OF_QUEUES, {"key": tx.instance})
    return PIECE in (len(found), len(lanes))


def refuse_busy(tx: Transaction, queue: Declared, *, if_empty: bool) -> None:
    """Raises ``QueueBusy`` where something of a queue is leased, and with ``if_empty`` where it has something."""
    holders = [one for one in tx.execute(consuming.LEASED_IN, {"queue": queue.key}).fetchall() if one[2]]
    messages, _bytes = tx.unsettled_in(queue.key)
    if holders:
        who = ", ".join(f"instance {name} (process {pid}) has {count}" for name, pid, count in holders)
        raise QueueBusy(f"Messages of {queue.name} are leased: {who}. Wait for them, or use `force=True`.")
    if messages and if_empty:
        raise QueueBusy(f"{queue.name} has {messages} messages. Purge it, or leave out `if_empty`.")


def delete(tx: Transaction, queue: Declared, *, if_empty: bool = False, force: bool = False) -> Part:
    """Delete a queue, and give up a part of what it has; ``purge_deleted`` does the others. It has its name no longer:
    nothing is put there or leased any more. See ``refuse_busy``, which ``force`` leaves out."""
    if not force:
        refuse_busy(tx, queue, if_empty=if_empty)
    if not queue.is_deleted:  # else by a process that ended before it was through
        tx.execute(consuming.FORGET_DEDUPE, {"queue": queue.key})
        tx.execute(subscribing.UNBIND_ALL, {"queue": queue.key})
        tx.execute(subscribing.END_DURABLE, {"queue": queue.key, "now": tx.now})
        letters = tx.execute(queues.DEAD_LETTERS, {"parent": queue.key}).fetchone()
        for key, name in ((queue.key, queue.name), *([] if letters is None else [(letters[0], f"{queue.name}#dead")])):
            tx.execute(queues.TAKE_NAME, {"key": key, "name": f"{name}#{queue.key}"})
            tx.forget_queue_name(name)
    tx.forget_queue_name(queue.name)
    return purge_deleted(queue.key, tx)


def purge_deleted(key: int, tx: Transaction) -> Part:
    """Give up what a queue has that is deleted, leased or not, a part of it. With the last it is declared no longer."""
    positions = next(_positions(tx, key, None, 0, _LAST), [])
    _take_back(tx, positions)
    cleared = _purge(tx, positions, "queue_deleted")
    if len(positions) == PIECE:
        return Part(cleared, key)
    tx.execute(queues.UNDECLARE, {"key": key})
    return Part(cleared, None)


def _take_back(tx: Transaction, positions: list[int]) -> None:
    for one in standing(tx, positions).values():
        lane = lane_of(tx, one)
        if one.lane is not None and lane.owner is not None:
            free_lane(tx, lane)
    tx.execute(consuming.GIVE_BACK, {"keys": as_json(positions)})


def purge_one(tx: Transaction, one: Standing, reason: str) -> None:
    """Give up a message that is not leased: its outcome is ``purged``."""
    lane = lane_of(tx, one)
    tx.execute(consuming.PURGE, {"keys": as_json([one.position]), "reason": reason, "now": tx.now})
    if one.stored_policy is not None:
        tx.add_unsettled(one.queue, -1, -one.size)
    if one.asks:
        left(tx, one.position, one.message, one.size, one.asks, "purged", reason)
    tx.ledger("purged", lane, number=one.number, position=one.position, reason=reason)
    if one.number is not None:
        lane.name(one.number, tx.now)
        move_past(tx, lane, one.number)
    tx.execute(FREE_TAKEN, {"keys": as_json([one.message]), "now": tx.now})


def _positions(tx: Transaction, queue: int, wanted: Filter | None, lower: int, upper: int) -> Iterator[list[int]]:
    statement, values = consuming.UNSETTLED_IN.of(wanted)
    while True:
        search = {**values, "queue": queue, "lower": lower, "upper": upper, "count": PIECE}
        found = [key for (key,) in tx.execute(statement, search).fetchall()]
        if found:
            yield found
        if len(found) < PIECE:
            return
        lower = found[-1] + 1
