"""The next nodes of a node: one that does not answer is away, what waits for it goes by other routes, and it is asked
again and again whether it is back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

from wsrm_mq.envelope.render import ending
from wsrm_mq.errors import NotAllowed, NotAnswered
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.hopping import destination
from wsrm_mq.queue.rerouting import reroute, try_again
from wsrm_mq.queue.routing import node_name, routes
from wsrm_mq.routes.sending import Hop, Sending, poster_of, why_away
from wsrm_mq.sequence.elements import EndpointReference, TerminateSequence
from wsrm_mq.store import routing
from wsrm_mq.store.lasting import Lasting, Repeated
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

LOOK_SECONDS: Final = 0.5
AWAY_SECONDS: Final = 5.0
"""A next node that has not answered for so long is away."""
_AT_ONCE: Final = 16
LADDER: Final = (1.0, 5.0, 30.0, 30.0, 30.0, 300.0, 300.0, 300.0, 1800.0)
"""Seconds after which it is asked again; after the last as long as that, again and again."""
_QUESTION: Final = "urn:wsrm-mq:route:question"
"""No sequence has this name: an RM destination answers so, with a fault, and keeps nothing."""


class _Known(NamedTuple):
    """The row of a next node: since when it is away, when it is asked next, how often it was, why it is away, and its
    name."""

    away_since: int | None = None
    tried_next_at: int | None = None
    attempts: int = 0
    error: str | None = None
    name: str | None = None


class Hops:
    """Looks at all of them at once, again and again: the next look is held up by one that hangs, for the few seconds
    of a question."""

    def __init__(self, store: Store, sending: Sending, events: Events) -> None:
        self._store = store
        self._sending = sending
        self._events = events
        self._stopping = threading.Event()
        self._trouble, self._trouble_of_one = Repeated(), Repeated()
        self._thread = Lasting("wsrm-mq-hops", self._run, self._broke, events)

    def start(self) -> None:
        with self._store.reader() as db:
            self._sending.reaching.own = node_name(db).name
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(LOOK_SECONDS)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            with self._store.reader() as db:
                leads_to = {one.next_hop for one in routes(db)}
                leads_to.update(address for (address,) in db.execute(routing.WAITED_FOR).fetchall())
                moving = {address for (address,) in db.execute(routing.MOVING).fetchall()}
                known = {row[0]: _Known(*row[1:]) for row in db.execute(routing.HOPS).fetchall()}
                self._sending.reaching.own = node_name(db).name
            with ThreadPoolExecutor(_AT_ONCE, "wsrm-mq-hop") as threads:
                for address in sorted(leads_to | moving):
                    threads.submit(self._look, address, known.get(address, _Known()), address in moving)
            self._trouble.over()

    def _look(self, address: str, known: _Known, moves: bool) -> None:
        try:
            if moves:
                self._move(address)
            if not self._stopping.is_set():
                self._look_at(address, known)
        except Exception as error:  # the others are looked at all the same
            self._trouble_of_one.tell(self._events, "route.broken", error)

    def _broke(self, error: BaseException) -> None:
        self._trouble.tell(self._events, "watch.store_error", error)
        self._stopping.wait(LOOK_SECONDS)

    def _look_at(self, address: str, known: _Known) -> None:
        away_since, tried_next_at, attempts, error, name = known
        reaching, now = self._sending.reaching, self._store.clock()
        if away_since is None and name is None and reaching.left_alone(address, None) is None:
            reaching.asked(address, *_question(address))
        away, has_answered = reaching.away(address), self._has_answered(address, name)
        if away_since is None:
            if away is not None and away[0] >= AWAY_SECONDS:
                self._change(self._saying(address, now - round(away[0] * 1000), attempts, away[1]))
                self._events.tell("route.away", address=address, error=away[1])
            elif attempts and (has_answered or (tried_next_at is not None and tried_next_at <= now)):
                self._store.call(self._saying(address, None, 0, None))
        elif has_answered:
            self._is_back(address, 0)
        elif tried_next_at is not None and tried_next_at <= now:
            why = reaching.asked(address, *_question(address))
            if self._has_answered(address, name):
                self._is_back(address, attempts + 1)
            else:
                self._store.call(self._saying(address, away_since, attempts + 1, why))
        elif away is not None and away[1] != error:  # what waits was tried meanwhile
            self._store.call(self._saying(address, away_since, attempts, away[1]))

    def _has_answered(self, address: str, name: str | None) -> bool:
        """Whether it has since this was asked last; its name is kept where it is another one now."""
        heard = self._sending.reaching.heard
        if address not in heard:
            return False
        said = heard.pop(address)
        if said not in (None, name):  # None: what is in between has answered
            self._change(lambda tx: tx.execute(routing.NAME_HOP, {"address": address, "node": said}))
        return True

    def _move(self, address: str) -> None:
        """Have what waits go where it is to go now, in parts between which others write."""
        part = partial(reroute, next_hop=address)
        while not self._stopping.is_set() and any(self._store.call(part, keep=True)):
            self._store.ring()
            self._sending.look()

    def _change(self, *verbs: Callable[[Transaction], object]) -> None:
        """Say something of a next node that changes where messages go."""

        def verb(tx: Transaction) -> None:
            for one in verbs:
                one(tx)
            tx.execute(routing.MAY_MOVE)

        self._store.call(verb, keep=True)

    def _is_back(self, address: str, attempts: int) -> None:
        """A next node that has answered a question alone may answer no message: it keeps its place on the ladder until
        it has, or was not away for as long as that."""
        self._change(self._saying(address, None, attempts, None), partial(try_again, next_hop=address))
        self._events.tell("route.back", address=address)
        self._sending.look()

    def _saying(
        self, address: str, away_since: int | None, attempts: int, why: str | None
    ) -> Callable[[Transaction], None]:
        wait = round(LADDER[min(attempts, len(LADDER) - 1)] * 1000)
        row: dict[str, Any] = {"address": address, "away_since": away_since, "attempts": attempts, "last_error": why}

        def verb(tx: Transaction) -> None:
            since = tx.now if away_since is not None else tx.now + round(AWAY_SECONDS * 2_000)
            tx.execute(routing.SAY_HOP, {**row, "tried_next_at": since + wait})

        return verb


def _question(address: str) -> tuple[dict[str, str], bytes]:
    _address, rm, soap, addressing, *_ = destination(address)
    to = EndpointReference(address)
    body = ending(soap, addressing, rm, None, TerminateSequence(_QUESTION, None), to=to)
    return {"Content-Type": f"{soap.media_type}; charset=utf-8"}, body


def ask(address: str, hop: Hop | None, own: str | None = None) -> str | None:
    """Ask a next node once, as the node of this name. Why it takes no messages of this one; ``None``: it does."""
    try:
        return why_away(poster_of({} if hop is None else {address: hop})(address, *_question(address), None), own)
    except (NotAllowed, NotAnswered) as error:
        return str(error)
