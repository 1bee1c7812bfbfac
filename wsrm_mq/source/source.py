"""``RMSource``: what a program gives it is in a store of the program's own first, and leaves from there until its
destination has acknowledged it, once and in order, however long that is away, and whatever dies meanwhile.

It is the engine that sends replies, with requests in the place of replies: the same outbound sequences, sender and
tables. Any number of processes may send from one store; each sequence is sent by one of them at a time.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar

from wsrm_mq import outbox
from wsrm_mq.delivery.arriving import Arriving, Told
from wsrm_mq.delivery.completion import Signal
from wsrm_mq.delivery.delivery import Delivery, Outcome
from wsrm_mq.delivery.outgoing_messages import own_message, tell_end_of_outbound
from wsrm_mq.delivery.requesting import ask, quiet_since, tend
from wsrm_mq.engine import Engine
from wsrm_mq.envelope.render import last_message
from wsrm_mq.errors import BadRequest, ConfigurationError, LeftAlone, Unsigned
from wsrm_mq.events.telling import OnEvent
from wsrm_mq.outbound.addresses import Allowed
from wsrm_mq.outbound.posting import Poster, tls
from wsrm_mq.queue import requests
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import QueuePolicy, Resend
from wsrm_mq.queue.requests import Destination
from wsrm_mq.queue.sending import OutgoingMessage
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.source import acts
from wsrm_mq.source.listening import Endpoint, Listen, Listener, place_of
from wsrm_mq.source.looking import LOOK_SECONDS, Looking, Sent
from wsrm_mq.source.notices import Notices, OnNotice
from wsrm_mq.source.persistent import Persistent
from wsrm_mq.source.polling import Polls, address_of
from wsrm_mq.source.relay import Relay, call_of, request_of
from wsrm_mq.source.stamping import stamped
from wsrm_mq.store import outbound as outbounds
from wsrm_mq.store import queues
from wsrm_mq.store.applications import SENDING, SIGNED, SOURCE, source_queue
from wsrm_mq.store.clock import Clock, wall_clock
from wsrm_mq.store.identity import identify
from wsrm_mq.store.port import Database
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import ADDRESSING_OF_LABEL, RM_OF_LABEL, SOAP_OF_LABEL, AddressingVersion, RMVersion

if TYPE_CHECKING:
    from wsrm_mq.delivery.posted import Answered, Post
    from wsrm_mq.source.signing import Signer

_EVERYWHERE: Final = Allowed.listed("to", ("0.0.0.0/0", "::/0", "public"))
"""The program says where its requests go."""
RESEND: Final = Resend(spread=0.2)
_SENDABLE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
"""A value that a header of HTTP may have. What else is tried to be sent, an error quotes with its secret."""
HANGS_SECONDS: Final = 10.0
"""A signer that takes longer is told of."""
_LAST_NOTICES_SECONDS: Final = 5.0
_LEAST_IDLE: Final = 2_000
"""ms. The watch looks once in a second."""
R = TypeVar("R")


class RMSource(Looking):
    """Sends requests reliably from a store. Its methods may be called by any thread.

    ``rm``: the version of WS-ReliableMessaging, 1.0 or 1.1, which is 1.2 too; ``addressing``: that of
    WS-Addressing, 1.0, or 2004/08 as is usual with RM 1.0. ``headers`` go with every request and are not stored.
    ``offers``: each sequence offers one for replies, also where its first request is one-way; else another sequence
    begins with the first that is replied to. ``expires``: for how many seconds a sequence is asked for;
    ``inactivity``: for how many a destination keeps one in which nothing is said. It is asked for an
    acknowledgement at half of them.
    ``acks_to``: the URL at which this side is acknowledged and replied to, in the place of the responses to its
    requests; it listens there itself, or at ``listen``, a host and a port; ``False``: the program has a server of
    its own call ``endpoint``. ``polls``: what does not come on responses is fetched (WS-MakeConnection, 1.1).
    ``timeout``: for how many seconds an answer is waited for. ``ca``, ``certificate``, ``proxy``: see ``Poster``.
    ``post`` takes the place of HTTP.
    ``on_notice`` is called, by a thread of its own, with a ``Notice`` when a request of this source is stored, and
    when it is acknowledged or given up; also for those that waited in the store before."""

    _listener: Listener | None = None
    _notices: Notices | None = None
    _polls: Polls | None = None
    _told_upto: int | None = None
    """The last row of the ledger that was looked at."""

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        rm: str = "1.1",
        addressing: str | None = None,
        headers: Mapping[str, str] | None = None,
        resend: Resend | None = None,
        offers: bool = False,
        expires: float = 7 * 24 * 3600.0,
        inactivity: float | None = None,
        acks_to: str | None = None,
        listen: Listen = True,
        polls: bool = False,
        timeout: float = 60.0,
        ca: str | None = None,
        certificate: str | None = None,
        proxy: str | None = None,
        post: Post | None = None,
        on_event: OnEvent | None = None,
        on_notice: OnNotice | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        self.rm, self.addressing = _spoken(rm, addressing)
        place = place_of(acks_to, listen, polls=polls, rm=self.rm)
        self.acks_to = acks_to
        self.endpoint = None if acks_to is None else Endpoint(acks_to, partial(self._heard, acks_to))
        """The WSGI application for what is sent to ``acks_to``."""
        idle = None if inactivity is None else max(round(inactivity * 1000), _LEAST_IDLE)
        self._policy = QueuePolicy(max_expires=round(expires * 1000), inactivity=idle, resend=resend or RESEND)
        self.offers = offers
        self._headers = dict(headers or {})
        if (name := _unsendable(self._headers)) is not None:
            raise ConfigurationError(f"headers: the value of {name} is not one line of latin-1 characters.")
        self.signers: dict[str, Signer] = {}
        """The objects that sign, by the URL that they sign for: see ``sign``."""
        self._signing = threading.Lock()
        self._at_signers: dict[int, tuple[str, float]] = {}
        """The threads that wait for a signer: for which URL, and since when."""
        about_http = {"headers": headers, "ca": ca, "certificate": certificate, "proxy": proxy}
        self.told = frozenset(name for name, value in about_http.items() if value)
        """The options of HTTP that it was given."""
        self._engine = Engine(
            store,
            _never,
            lambda _partner: self._policy,
            on_event=on_event,
            clock=clock,
            chores=(self._tend,),
            serving=SENDING,
            poster=partial(self._poster, post, timeout, ca, certificate, proxy),
            patience=self._patience,
        )
        self._relays: list[Relay] = []
        try:
            self._start(place, on_notice, polls=polls)
        except BaseException:
            self.close()
            raise

    def _start(self, place: tuple[str, int] | None, on_notice: OnNotice | None, *, polls: bool) -> None:
        engine = self._engine
        engine.start()
        with engine.store.reader() as db:
            self._store_id = identify(db).id
        if polls:
            self._polls = Polls(engine.store, self._persistent, self._arriving(), engine.events)
        engine.ask()
        if place is not None and self.endpoint is not None:
            self._listener = Listener(self.endpoint, *place)
        if on_notice is not None:
            self._notices = Notices(on_notice, engine.store.reader, engine.events)

    @property
    def engine(self) -> Engine:
        """For ``wsrm_mq.observe.ObserveApp``."""
        return self._engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def _poster(
        self, post: Post | None, timeout: float, ca: str | None, certificate: str | None, proxy: str | None
    ) -> Post:
        """Make the poster of one process."""
        made: Post = post or Poster(_EVERYWHERE, seconds=timeout, context=tls(ca, certificate), proxy=proxy).post

        def with_headers(url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answered:
            sent = {**headers, **self._headers}
            signer = self.signers.get(url)
            if signer is not None:
                from wsrm_mq.source.signing import signed  # of lxml

                if _has_parts(sent["Content-Type"]):  # it was stored before anything was signed there
                    raise LeftAlone(f"{url}: it has parts, and cannot be signed", 0.0, is_given_up=True)
                self._at_signers[threading.get_ident()] = url, time.monotonic()
                try:
                    body, sent = signed(url, body, sent, signer)
                finally:
                    del self._at_signers[threading.get_ident()]
                if (name := _unsendable(sent)) is not None:
                    raise Unsigned(f"{url}: the signer's value of the header {name} is not one line; nothing was sent")
            return made(url, sent, body, who)

        return with_headers

    def _patience(self, *arguments: object, **options: object) -> Persistent:
        tell = self._engine.events.tell
        self._persistent = Persistent(*arguments, tell=tell, **options)  # type: ignore[arg-type, misc]
        return self._persistent

    def sign(self, to: str, signer: Signer | None) -> None:
        """Have all that leaves for the URL ``to`` signed, each time anew, by an object as zeep's ``wsse`` are. It is
        not stored: where no program has a signer for ``to``, what is sent there waits, what is stored already too.
        ``None``: nothing is signed there any more."""
        with self._signing:
            before = self.signers
            signers = {url: one for url, one in {**before, to: signer}.items() if one is not None}
            self._engine.store.call(partial(requests.sign, to=to, is_signed=signer is not None))
            self.signers = signers
            try:
                self._engine.serve(SENDING._replace(paths=(*(SENDING.paths or ()), *map(source_queue, signers))))
            except BaseException:
                self.signers = before
                raise

    # sending

    def send(
        self,
        envelope: bytes,
        *,
        to: str,
        action: str | None = None,
        content_type: str | None = None,
        last: bool = False,
        acknowledged_within: float | None = None,
    ) -> Sent:
        """Send the SOAP envelope of a one-way request to the URL ``to``: it is stored when this returns. What it lacks
        of addressing headers is put in; ``action`` where it has no wsa:Action. ``content_type``: of one with
        attachments, multipart/related with its boundary; they stay byte for byte as they are. ``last``: no other
        follows it in its sequence, which ends with it. ``acknowledged_within``: wait for so many seconds until it is
        acknowledged.

        Raises ``BadRequest`` for what cannot be sent, ``StoreError`` where it cannot be stored, ``Pending`` where it
        is not acknowledged in time: it is sent all the same."""
        if acknowledged_within is None:
            return self._sent(envelope, to, action, content_type, is_last=last)
        settled, begun = Signal(), time.monotonic()
        sent = self._sent(envelope, to, action, content_type, is_last=last, settled=settled)
        try:
            settled.wait(min(acknowledged_within, LOOK_SECONDS))  # it was expected before it could be settled
            self.wait(sent, acknowledged_within - (time.monotonic() - begun))
        finally:
            self._engine.waiters.forget(sent.position, settled)
        return sent

    def ask(self, envelope: bytes, *, to: str, action: str | None = None, content_type: str | None = None) -> Sent:
        """The same for a request that is replied to, on the response to it: it is sent until the reply is there, which
        ``reply`` and ``replies`` give."""
        return self._sent(envelope, to, action, content_type, wants_reply=True)

    def _sent(
        self,
        envelope: bytes,
        to: str,
        action: str | None,
        content_type: str | None,
        *,
        is_last: bool = False,
        wants_reply: bool = False,
        settled: Signal | None = None,
    ) -> Sent:
        """``settled`` is set when it is, also where that is before this returns."""
        there, message = self._stamped(envelope, to, action, content_type, wants_reply=wants_reply)

        def verb(tx: Transaction) -> tuple[int, tuple[Claim, ...]]:
            stored = requests.store(tx, there, message, is_last=is_last, wants_reply=wants_reply, offers=self.offers)
            assert stored.sent.position is not None
            return stored.sent.position, self._begun(tx, stored)

        def expect(position: int) -> None:
            if settled is not None:
                self._engine.waiters.expect(position, settled)

        position = self._call(verb, expect)
        if self._notices is not None:
            self._notices.stored(position, message.message_id)
        return Sent(message.message_id, position)

    def _stamped(
        self, envelope: bytes, to: str, action: str | None, content_type: str | None, *, wants_reply: bool
    ) -> tuple[Destination, OutgoingMessage]:
        if _has_parts(content_type) and self._is_signed(to):
            raise BadRequest(f"{to}: requests there are signed, and one with parts cannot be: send it without parts.")
        return stamped(
            *(envelope, to, action, self.rm, self.addressing),
            wants_reply=wants_reply,
            content_type=content_type,
            acks_to=self._heard_at(to),
        )

    def _is_signed(self, to: str) -> bool:
        """Whether a program signs what leaves for ``to``, this one or another."""
        with self._engine.store.reader() as db:
            return bool(db.execute(queues.APPLICATION, {"name": source_queue(to)}).fetchone() == (SIGNED,))

    def _begun(self, tx: Transaction, stored: requests.Stored) -> tuple[Claim, ...]:
        """The claims on what is to be sent because of a request that was stored."""
        outbound = tx.outbound(stored.outbound) if stored.is_first else None
        return stored.sent.claims + (() if outbound is None else ask(tx, outbound, self._policy).claims)

    def _call(
        self,
        verb: Callable[[Transaction], tuple[R, Sequence[Claim]]],
        committed: Callable[[R], None] = lambda _result: None,
    ) -> R:
        def give(done: tuple[R, Sequence[Claim]]) -> None:
            committed(done[0])
            for claim in done[1]:
                self._engine.dispatcher.give(claim)

        return self._engine.store.call(verb, committed=give, leads=True)[0]

    # out of the program's own database

    def enqueue(
        self,
        connection: object,
        envelope: bytes,
        *,
        to: str,
        action: str | None = None,
        content_type: str | None = None,
        wants_reply: bool = False,
    ) -> str:
        """Write a request into the table ``wsrm_outbox`` of the program's own database, by its ``connection`` and in
        its transaction: it is sent if and only if that is committed, once a ``relay`` has moved it into this store.
        ``connection``: as for ``once``. ``content_type``: as for ``send``; ``wants_reply``: as ``ask``. Answers the
        MessageID.

        Raises ``BadRequest`` for what cannot be sent, ``OutboxError`` for a connection that it cannot use, and what the
        database itself raises."""
        destination, message = self._stamped(envelope, to, action, content_type, wants_reply=wants_reply)
        outbox.add(connection, call_of(destination, message, wants_reply=wants_reply, offers=self.offers))
        return message.message_id

    def relay(self, connect: Callable[[], object]) -> None:
        """Move what was enqueued into this store, in its order, until ``close``: a thread does it, which looks several
        times a second. ``connect`` opens a connection to the database, for that thread alone. A database that is away
        is told of (``relay.waits``) and tried again. One store alone takes what a database has, by any number of
        processes."""
        self._relays.append(Relay(connect, self._store_id, self._move, self._forget, self._engine.events))

    def _move(self, calls: Sequence[outbox.Call]) -> None:
        def verb(tx: Transaction) -> tuple[dict[int, str], tuple[Claim, ...]]:
            fresh: dict[int, str] = {}
            claims: tuple[Claim, ...] = ()
            for call in calls:
                to, message = request_of(call)
                to = to._replace(acks_to=self._heard_at(to.address))
                how = {"wants_reply": bool(call.wants_reply & 1), "offers": bool(call.wants_reply & 2) or self.offers}
                stored = requests.store_once(tx, to, message, **how)
                if stored is not None and stored.sent.position is not None:
                    fresh[stored.sent.position] = call.message_id
                    claims += self._begun(tx, stored)
            return fresh, claims

        for position, message_id in self._call(verb).items():
            if self._notices is not None:
                self._notices.stored(position, message_id)

    def _forget(self, calls: Sequence[outbox.Call]) -> None:
        def verb(tx: Transaction) -> None:
            for call in calls:
                requests.forget(tx, call.destination, call.message_id)

        self._engine.store.call(verb, keep=True)

    def end(self, to: str, timeout: float | None = 0.0) -> bool:
        """End the sequences to ``to``: no message follows those that were sent, and once all are acknowledged the
        destination is told so. Waits for that, ``timeout`` seconds at most, ``None`` for as long as it takes, and
        answers whether all is acknowledged. What is sent afterwards begins another sequence."""

        def verb(tx: Transaction) -> tuple[int, list[Claim]]:
            claims: list[Claim] = []
            for outbound in acts.open_to(tx, to):
                terms, value = outbound.value.terms, outbound.value
                if terms.rm.has_last_message and value.last_number is None and value.given and value.is_open:
                    there = EndpointReference(to)
                    body = last_message(terms.soap, terms.addressing, terms.rm, None, there)
                    destination = Destination(to, terms.rm, terms.soap, terms.addressing, acks_to=outbound.principal)
                    said = own_message(there, body, terms.soap)
                    claims += requests.store(tx, destination, said, is_last=True).sent.claims
                elif (element := requests.seal(tx, outbound)) is not None:
                    claims += tell_end_of_outbound(tx, element).claims
            return 0, claims

        self._call(verb)
        return self.flush(timeout)

    def create_sequence(self, to: str, *, soap: Literal["1.1", "1.2"] = "1.1") -> None:
        """Have the sequence to ``to`` created ahead of its first request, in this version of SOAP, unless there is one:
        a wrong address or credentials that are refused show before anything waits, and the first request waits for no
        exchange before its own (S-SND-007)."""
        there = Destination(to, self.rm, SOAP_OF_LABEL[soap], self.addressing, acks_to=self._heard_at(to))

        def verb(tx: Transaction) -> tuple[None, tuple[Claim, ...]]:
            made = requests.ahead(tx, there, offers=self.offers)
            return None, () if made is None else ask(tx, made, self._policy).claims

        self._call(verb)

    def close_sequence(self, to: str) -> None:
        """Close the open sequence to ``to`` now, so that its destination says what it has: what it does not have goes
        on in another sequence. 1.0 has no such message; there the sequence is given up, and what is not acknowledged
        may arrive twice."""
        self._call(lambda tx: (0, acts.close(tx, to)))
        self._engine.watch.look_soon()

    def terminate(self, to: str) -> None:
        """End the sequences to ``to`` now. What is not acknowledged is a dead letter."""
        self._call(lambda tx: (0, acts.terminate(tx, to)))
        self._engine.watch.look_soon()

    def try_now(self, to: str | None = None) -> None:
        """Have what waits for its next try leave now, whether its host was away or it was not acknowledged, as
        ``wsrm-mq source resend`` does: to the URL ``to``, or to every destination. Every host is tried again."""
        self._persistent.try_now()
        self._call(lambda tx: (acts.try_now(tx, to), ()))
        self._engine.watch.nudge()

    def _tend(self) -> None:
        """A chore of the watch: what is due about sequences."""
        if not self._engine.is_running:
            return
        now = self._engine.store.reached()
        with self._engine.store.reader() as db:
            due = db.execute(outbounds.TO_TEND, {"now": now}).fetchone()
            due = due or db.execute(outbounds.QUIET, {"before": quiet_since(self._policy, now)}).fetchone()
            resent = self._resent(db)
        for to in resent:
            self.try_now(to)
        if due is not None:
            self._call(lambda tx: (0, tend(tx, self._policy)))
        for url, since in list(self._at_signers.values()):
            if (seconds := time.monotonic() - since) > HANGS_SECONDS:
                self._persistent.hangs(url, f"its signer has not answered for {seconds:.0f} s; nothing was sent")
        if self.acks_to is not None or self._polls is not None:
            self._close_unheard()
        if self._polls is not None:
            self._polls.look()

    def _resent(self, db: Database) -> set[str]:
        """The destinations that an operator has had tried again since this was asked last."""
        if self._told_upto is None:  # what was before has made no host wait here
            (self._told_upto,) = db.execute(queues.LAST_TOLD).fetchone()
        told = db.execute(queues.TOLD_SINCE, {"after": self._told_upto}).fetchall()
        self._told_upto = told[-1][0] if told else self._told_upto
        return {name.removeprefix(SOURCE) for _key, event, name in told if event == acts.RESENT}

    def _heard_at(self, to: str) -> str | None:
        """The address at which the destination ``to`` acknowledges and replies; ``None``: the responses."""
        return self.acks_to if self._polls is None else address_of(self._store_id, to)

    def _close_unheard(self) -> None:
        """Close the sequences that are acknowledged elsewhere, as ``acks_to`` was another one, or none: what is not
        acknowledged goes on in one that is heard here. 1.0 has no close: it is sent until it is given up."""
        with self._engine.store.reader() as db:
            keys = [
                key for key, to, acks_to in db.execute(outbounds.CLOSABLE).fetchall() if acks_to != self._heard_at(to)
            ]
        if keys:
            self._call(lambda tx: (0, acts.close_created(tx, keys)))

    def _arriving(self) -> Arriving:
        engine = self._engine
        return Arriving(engine.store, lambda _partner: self._policy, engine.events, engine.hand_over)

    def _heard(self, acks_to: str, message: Answered) -> Told:
        return self._arriving().posted(acks_to, message)

    def close(self, timeout: float | None = 30.0) -> bool:
        """Leave the store; what waits stays there for the next time. Answers whether all posts were over within
        ``timeout`` seconds."""
        if self._listener is not None:
            self._listener.stop()
        if self._polls is not None:
            self._polls.stop()
        for relay in self._relays:
            relay.stop()
        if self._notices is not None:
            self._notices.stop(_LAST_NOTICES_SECONDS)
        return self._engine.close(timeout)


def _spoken(rm: str, addressing: str | None) -> tuple[RMVersion, AddressingVersion]:
    """The versions that a source speaks, by their names. Raises ``ConfigurationError``."""
    rm = {"1.2": "1.1"}.get(rm, rm)
    if rm not in RM_OF_LABEL:
        raise ConfigurationError(f"rm={rm!r} is no version of WS-ReliableMessaging: write 1.0, 1.1 or 1.2.")
    version = RM_OF_LABEL[rm]
    spoken = version.addressings[0] if addressing is None else ADDRESSING_OF_LABEL.get(addressing)
    if spoken is None or spoken not in version.addressings:
        which = " or ".join(one.label for one in version.addressings)
        raise ConfigurationError(f"addressing={addressing!r} does not go with rm={rm!r}: write {which}.")
    return version, spoken


def _has_parts(content_type: str | None) -> bool:
    return (content_type or "").lower().startswith("multipart/")


def _unsendable(headers: Mapping[str, str]) -> str | None:
    """The name of a header that cannot be sent."""
    return next((name for name, value in headers.items() if not _SENDABLE.fullmatch(value)), None)


def _never(_delivery: Delivery) -> Outcome:
    raise AssertionError("nothing is delivered here")
