"""The run of a plan. Its messages are entered in pieces, a little ahead of their delivery, and then delivered as every
message is: by the service that runs, or here.

The progress of a run is in the store and not in this process. So a run that is stopped or killed goes on where it was
when the plan is run again.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from wsrm_mq.delivery.application import Application, Environ, WSGIApplication, call_wsgi
from wsrm_mq.delivery.delivery import Call, Delivery, Outcome
from wsrm_mq.delivery.service_reply import UnusableReply
from wsrm_mq.engine import Engine
from wsrm_mq.errors import NotAllowed, NotAnswered, NotFound, StoreError
from wsrm_mq.queue import plans as verbs
from wsrm_mq.queue.plans import Entered, Plan, Planned, Withdrawn
from wsrm_mq.queue.policy import PolicyOf, QueuePolicy
from wsrm_mq.replay.plan import BREAKS_ORDER, KEY_HEADER, PlanFile
from wsrm_mq.store import plans as sql
from wsrm_mq.store.applications import Serving, outgoing_queue, served
from wsrm_mq.store.clock import Clock, wall_clock
from wsrm_mq.store.driver import connect_looker, store_errors
from wsrm_mq.store.identity import identify
from wsrm_mq.store.outside import run_once
from wsrm_mq.store.port import MISSING_SECONDS
from wsrm_mq.store.store import store_path
from wsrm_mq.store.transaction import Transaction, as_json

if TYPE_CHECKING:
    from wsrm_mq.outbound.posting import Poster


# The targets of a plan: an application that is called here, or an address that gets plain SOAP posts.
#
# An address is checked before anything is sent: a store has business data, and a wrong address would get a day of it.
# Nothing follows a redirect.

MADE_UP_SECONDS: Final = 0.1
"""The time for which missed turns are made up."""
_DEFAULT_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 5.0
_OPTION: Final = "replay_targets"
_SENT: Final = {
    "CONTENT_TYPE": "Content-Type",
    "HTTP_SOAPACTION": "SOAPAction",
    "HTTP_ACCEPT": "Accept",
    "HTTP_ACCEPT_LANGUAGE": "Accept-Language",
}
"""Headers of the stored request that go along; none of them names the sender."""


def to_application(app: WSGIApplication, policy_of: PolicyOf, **options: Any) -> Call:
    """Calls a WSGI application here; ``options`` as of ``Application``."""
    return Application(partial(call_wsgi, app), policy_of, **options)


def check_address(url: str, allowed: Sequence[str], *, connects: bool = False) -> None:
    """Raises ``NotAllowed`` for an address that nothing is sent to: one that is not http or https, or that leads into a
    private network or to this machine and does not begin with one of ``allowed``. ``connects``: it is connected to as
    well, and nothing is sent; raises ``NotAnswered`` where that fails."""
    from wsrm_mq.outbound.addresses import Allowed, check_url
    from wsrm_mq.outbound.names import Names
    from wsrm_mq.outbound.posting import Poster

    check_url(url, Allowed(_OPTION, allowed), Names().look_up)
    if connects:
        Poster(Allowed(_OPTION, allowed), seconds=_CONNECT_SECONDS).connect(url)


def to_address(
    url: str, policy_of: PolicyOf, allowed: Sequence[str] = (), *, seconds: float = _DEFAULT_SECONDS, threads: int = 64
) -> Call:
    """Posts a message to ``url`` without its headers of WS-RM; into a private network only below one of ``allowed``.
    Only 2xx without a SOAP fault is success, for a one-way too: a target that does not take a message gets it again."""
    from wsrm_mq.outbound.addresses import Allowed
    from wsrm_mq.outbound.posting import Poster

    poster = Poster(Allowed(_OPTION, allowed), seconds=seconds, connections=threads)

    def strictly(partner: str | None) -> QueuePolicy:
        return replace(policy_of(partner), retry_faults=True)

    application = Application(partial(_post, poster, url), strictly, headers="strip")

    def call(delivery: Delivery) -> Outcome:
        outcome = application(delivery)
        if outcome.remark is None:
            return outcome
        return Outcome(error=outcome.remark, diagnosis=outcome.diagnosis._replace(kind="soap_fault"))

    return call


def _post(poster: Poster, url: str, environ: Environ) -> tuple[str, list[tuple[str, str]], bytes]:
    fields = {name: environ[key] for key, name in _SENT.items() if environ.get(key)}
    fields[KEY_HEADER] = _key(environ)
    fields["Content-Length"] = environ["CONTENT_LENGTH"]
    try:
        answer = poster.post(url, fields, environ["wsgi.input"])
    except (NotAllowed, NotAnswered) as error:
        raise UnusableReply(str(error)) from error
    return f"{answer.status} {answer.reason}".strip(), answer.headers, answer.content


def _key(environ: Environ) -> str:
    parts = [environ["wsrm.sequence_id"], str(environ["wsrm.message_number"]), environ["wsrm.replay_id"]]
    return ";".join(quote(part, safe=":") for part in parts if part)


class Pace:
    """Turns of calls, of all threads together: at most ``rate`` a second; ``None``: any number."""

    def __init__(self, rate: float | None) -> None:
        self._seconds = 0.0 if rate is None else 1 / rate
        self._next = time.monotonic()
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def turns(self, most: int) -> int:
        """Take the turns that have come by now, at most ``most``, without waiting; answers how many."""
        if not self._seconds:
            return most
        with self._lock:
            now = time.monotonic()
            self._next = max(self._next, now - MADE_UP_SECONDS)
            taken = max(0, min(most, 1 + math.floor((now - self._next) / self._seconds)))
            self._next += taken * self._seconds
        return taken

    def wait(self) -> bool:
        """Wait for the turn of one call; ``False``: it does not come, as the run was stopped."""
        if not self._seconds:
            return True
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next)
            self._next = turn + self._seconds
        return not self._stopped.wait(turn - now)

    def stop(self) -> None:
        """End all waits: no turn comes any more."""
        self._stopped.set()


AHEAD: Final = 2_000
"""The largest number of entered messages that are undelivered: a plan may have a day's messages, and the store need not
have them twice. With a rate it is at most the messages of one second, since a service that was away delivers all of
them at once."""
PIECE: Final = 500
"""The most messages that are entered in one transaction."""
LOOK_SECONDS: Final = 0.02
_STOPPED_SECONDS: Final = 1.0
"""The wait of a message whose turn did not come before its run was stopped: the run has ended by then."""
_DRAIN_SECONDS: Final = 30.0
_LET_END_SECONDS: Final = 5.0
"""The wait for a service that delivers a message while its plan is cancelled."""
_LAST_WORD_SECONDS: Final = 2.0
"""The time for writing to a store that has just failed. The next run finds the messages whose end could not be
written."""
LIVES_SECONDS: Final = 1.0
"""The time between two looks whether a service lives."""
_STANDS_SECONDS: Final = 5.0
"""After this time without a settled message a write asks the store whether it can write."""
_SERVICE_SECONDS: Final = 5.0
"""A run that waits for a service ends when none has lived for so long."""


class Progress(NamedTuple):
    """The progress of a run, in messages."""

    messages: int
    """The messages of the plan."""
    line: int
    """Lines that were read."""
    settled: int
    """Delivered, or skipped, missing or buried."""
    waiting: int
    """Entered, and to be delivered."""
    blocked: tuple[str, ...]
    """Identifiers of groups that a failure has stopped."""
    retrying: int
    """Groups that wait for their next try."""
    error: str | None
    """The last error of one of these groups."""


class _Group(NamedTuple):
    """A group with something undelivered; see ``PROGRESS``."""

    key: int
    identifier: str
    blocked: int | None
    retry_at: int | None
    messages: int
    error: str | None


def nothing_here(_delivery: Delivery) -> Outcome:
    """The application of a run whose messages the running service delivers."""
    raise AssertionError("this process serves no queue")


def check_plan(where: str | Path, file: Path) -> Plan:
    """Check that the plan ``file`` can be run on the store at ``where``, and answer the store's row of it. Raises
    ``NotAllowed`` where it cannot: it was changed, is of another store, is over, or is being run."""
    with PlanFile(file) as plan:
        return _checked(store_path(where), plan)[0]


def _checked(path: Path, plan: PlanFile, target: str | None = None) -> tuple[Plan, str]:
    """Answer the store's row of a plan that can be run on it, to ``target``, and the digest of its file."""
    with closing(connect_looker(path)) as db, store_errors(path):
        if identify(db).id != plan.header.store:
            raise NotAllowed(f"{plan.path} was made of another store than {path}.")
        if db.execute(sql.PLAN, (plan.header.id,)).fetchone() is None:
            raise NotFound(
                f"{path} knows no plan {plan.header.id}: it ended long ago, or the store was put back from before. "
                "Make the plan again."
            )
        digest = plan.digest()
        known = verbs.plan_of(db, plan.header.id)
        verbs.refuse(db, known, digest, target)
    return known, digest


def cancel_plan(where: str | Path, plan: str, *, actor: str, reason: str, dry_run: bool = False) -> Withdrawn:
    """End the plan with the id ``plan``: it runs no more, its undelivered entries are taken back, and the sequences
    that it holds go on. Messages that had been waiting for delivery go to the dead letters. It waits some seconds for a
    message that is being delivered; one that takes longer is taken back when the plan is cancelled again.

    Raises ``NotFound``; ``NotAllowed`` where the plan is being run, or ran to its end. With ``dry_run`` nothing else
    happens.
    """
    path = store_path(where)
    run_once(path, lambda tx: verbs.cancel(tx, plan, actor=actor, reason=reason), dry_run=dry_run)
    if dry_run:
        return Withdrawn(0, 0)
    done = _taken_back(path, plan)
    while run_once(path, lambda tx: verbs.let_go_on(tx, plan)):
        pass
    return done


def _taken_back(path: Path, plan: str) -> Withdrawn:
    done = Withdrawn(0, 0)
    until = time.monotonic() + _LET_END_SECONDS
    while True:
        now = run_once(path, lambda tx: verbs.withdraw_entered(tx, plan))
        done = Withdrawn(done.messages + now.messages, now.left)
        if not now.left or (not now.messages and time.monotonic() > until):
            return done
        if not now.messages:
            time.sleep(LOOK_SECONDS)


def run_plan(
    where: str | Path,
    file: Path,
    *,
    actor: str,
    target: str = "app",
    call: Call | None = None,
    policy_of: PolicyOf = lambda _partner: QueuePolicy(),
    rate: float | None = None,
    stop_on_error: bool = False,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
    clock: Clock = wall_clock,
) -> Progress:
    """Run the plan ``file`` on the store at ``where`` to its end, or as far as it comes, and answer its progress.

    ``call`` delivers a message here; with ``None`` the running service delivers. ``target`` is the name of that place
    in the ledger, ``actor`` the name of who runs it. ``rate`` is the largest number of messages a second: of deliveries
    where they happen here, of entered messages where the service delivers. With ``stop_on_error`` nothing more is
    entered once a group is blocked.

    Raises ``NotAllowed`` for a plan that was changed, is of another store, is over or is being run; ``StoreError``; and
    ``KeyboardInterrupt``, as any wait does. The plan can be run again after each of them.
    """
    path = store_path(where)
    with PlanFile(file) as plan:
        _, digest = _checked(path, plan, target)  # what an earlier run has left is served from the start on
        if call is None and not _lives_service(path):
            raise NotAllowed(
                f"No service runs on {path} that could deliver. Start it, or deliver here: --to MODULE:ATTRIBUTE."
            )
        pace = Pace(rate)
        engine = Engine(
            path,
            nothing_here if call is None else _paced(call, pace),
            policy_of,
            clock=clock,
            serving=Serving(paths=(outgoing_queue(plan.header.id),)),
            prunes=False,
        )
        engine.start()
        drain_seconds = _DRAIN_SECONDS
        try:
            run = _Run(engine, plan, rate, stop_on_error, on_progress, to_app=call is None)
            return run.to_its_end(digest, target, actor)
        except StoreError:
            drain_seconds = _LAST_WORD_SECONDS
            raise
        finally:
            pace.stop()
            engine.close(drain_seconds)


def _paced(call: Call, pace: Pace) -> Call:
    """The rate holds for messages too that an earlier run has entered, and for retries."""

    def call_in_turn(delivery: Delivery) -> Outcome:
        if pace.wait():
            return call(delivery)
        return Outcome(error="The run was stopped before its turn.", left_alone=_STOPPED_SECONDS)

    return call_in_turn


def _lives_service(path: Path) -> bool:
    with closing(connect_looker(path)) as db, store_errors(path):
        return any(not serving.is_run for serving in served(db))


class _Run:
    def __init__(
        self,
        engine: Engine,
        plan: PlanFile,
        rate: float | None,
        stop_on_error: bool,
        on_progress: Callable[[Progress], None],
        *,
        to_app: bool,
    ) -> None:
        self._engine = engine
        self._store = engine.store
        self._plan = plan
        self._id = plan.header.id
        self._pace = Pace(rate)
        self._ahead = AHEAD if rate is None else min(AHEAD, max(1, int(rate)))
        self._stop_on_error = stop_on_error
        self._on_progress = on_progress
        self._to_app = to_app
        self._line = 0
        self._active: set[int] = set()
        """Keys of groups that may have something undelivered."""
        self._blocked: dict[int, _Group] = {}
        self._served_at = time.monotonic()
        """The time when a service was seen last."""
        self._looked_at = 0.0
        self._waiting = 0
        """Messages that waited at the last look, and since when it was as many."""
        self._stands_since = 0.0

    def to_its_end(self, digest: str, target: str, actor: str) -> Progress:
        known = self._begun(digest, target, actor)
        try:
            self._engine.ask()
            self._line = known.line
            for claim in self._store.call(lambda tx: verbs.try_again(tx, self._id)):
                self._engine.dispatcher.give(claim)
            self._take_up()
            self._wake()
            progress = self._enter_all()
        except BaseException:
            with suppress(StoreError):  # then the lock of this process tells that it runs no more
                self._store.call(lambda tx: verbs.leave(tx, self._id))
            raise
        while not self._store.call(lambda tx: verbs.leave(tx, self._id), keep=True):
            self._store.wake()  # what it held goes on
        return progress

    def _begun(self, digest: str, target: str, actor: str) -> Plan:
        """A run that ended on a full disk may seem to live: the watch knows better after a few seconds."""
        until = time.monotonic() + 2 * MISSING_SECONDS
        while True:
            known = self._store.call(lambda tx: verbs.begin(tx, self._id, digest, target, actor))
            if known is not None:
                return known
            if time.monotonic() > until:
                raise NotAllowed(f"Whether another process runs the plan {self._id} is not known. Try again later.")
            time.sleep(LOOK_SECONDS)

    def _take_up(self) -> None:
        """Find the groups that an earlier run has left undelivered."""
        with self._store.reader() as db:
            self._active = {row[0] for row in db.execute(sql.UNSETTLED_GROUPS, {"plan": self._id})}

    def _enter_all(self) -> Progress:
        lines = self._plan.lines(self._line)
        is_over = False
        while True:
            groups = self._look()
            progress = self._progress(groups)
            self._on_progress(progress)
            waiting = sum(group.messages for group in groups)
            if self._blocked and self._stop_on_error and not waiting:
                return progress
            is_over = is_over or (self._stop_on_error and bool(self._blocked))
            if is_over and not waiting:
                return self._last_look(progress)
            room = 0 if is_over else self._pace.turns(max(0, min(PIECE, self._ahead - waiting)))
            if not room:
                self._wait(waiting)
                continue
            piece = list(islice(lines, room))
            is_over = not piece
            if piece:
                self._enter(
                    [
                        Planned(line.group, line.position, line.state, BREAKS_ORDER in line.flags)
                        for _number, line in piece
                    ]
                )

    def _enter(self, lines: list[Planned]) -> None:
        def verb(tx: Transaction) -> Entered:
            return verbs.enter(tx, self._id, self._line, lines, to_app=self._to_app)

        done = self._store.call(verb)
        self._line += len(lines)
        self._active |= done.groups
        for claim in done.claims:
            self._engine.dispatcher.give(claim)
        self._wake()

    def _wake(self) -> None:
        if self._to_app:
            self._store.wake()
            self._store.ring()

    def _look(self) -> list[_Group]:
        """The groups that have something to deliver and are not blocked."""
        with self._store.reader() as db:
            rows = db.execute(sql.PROGRESS, (as_json([*self._active]),)).fetchall()
        groups = [_Group._make(row) for row in rows]
        self._blocked |= {group.key: group for group in groups if group.blocked is not None}
        left = [group for group in groups if group.blocked is None]
        self._active = {group.key for group in left}
        return left

    def _last_look(self, progress: Progress) -> Progress:
        """All of the plan's groups once more: an operator may have resumed one that was blocked."""
        self._take_up()
        self._blocked.clear()
        return self._progress(self._look()) if self._active else progress

    def _progress(self, groups: list[_Group]) -> Progress:
        retrying = [group for group in groups if group.retry_at is not None]
        waiting = sum(group.messages for group in groups)
        stopped = sum(group.messages for group in self._blocked.values())
        failed = [*retrying, *self._blocked.values()]
        return Progress(
            messages=self._plan.header.messages,
            line=self._line,
            settled=self._line - waiting - stopped,
            waiting=waiting,
            blocked=tuple(group.identifier for group in self._blocked.values()),
            retrying=len(retrying),
            error=failed[0].error if failed else None,
        )

    def _wait(self, waiting: int) -> None:
        time.sleep(LOOK_SECONDS)
        now = time.monotonic()
        if waiting != self._waiting:
            self._waiting, self._stands_since = waiting, now
        elif waiting and now - self._stands_since > _STANDS_SECONDS:
            self._stands_since = now
            self._enter([])  # it writes: a settlement that a full disk refuses is tried for ever, without a word here
        if not (self._to_app and waiting):
            return
        if now - self._looked_at < LIVES_SECONDS:
            return
        self._looked_at = now
        if _lives_service(self._store.path):
            self._served_at = now
        elif now - self._served_at > _SERVICE_SECONDS:
            raise NotAllowed(
                f"No service runs on {self._store.path} any more; {waiting} messages wait for it. Start it, and run "
                "the plan again: it goes on where it was."
            )
