"""The common part of the fronts: a front is a server's way to call (WSGI, ASGI), and all fronts do the same.

A front names a request in the words of WSGI (its ``environ``). This module decides whether the request is the
middleware's business, who sends it, the verb to commit for it, and its answer. It waits for nothing: each front waits
in its own way.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Hashable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wsrm_mq.config import Settings
from wsrm_mq.config.loading import named_operations
from wsrm_mq.config.settings import Partner
from wsrm_mq.contrib import spyne_compat  # with which Spyne can be imported on Python 3.12 and later
from wsrm_mq.delivery.application import Application, CallApplication, Environ
from wsrm_mq.delivery.chores import Modes, claim_queue
from wsrm_mq.delivery.completion import Settable
from wsrm_mq.destination.answers import Answer, plain, unavailable
from wsrm_mq.destination.commits import OPTION, Fetching, Reach
from wsrm_mq.destination.connections import Connections, Proxies
from wsrm_mq.destination.coverage import Business, Coverage, Operations, OwnDescription, not_rm, path_of
from wsrm_mq.destination.destination import RMDestination
from wsrm_mq.destination.exchange import Client, Commit, Forward, Peer, Wait
from wsrm_mq.destination.request_body import BodyRefused
from wsrm_mq.engine import Engine
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.stream import Limits, content_coding
from wsrm_mq.errors import (
    ConfigurationError,
    NameServerSilent,
    NotAuthenticated,
    StoreError,
    StoreOverloaded,
    StoreUnavailable,
)
from wsrm_mq.events.telling import tell
from wsrm_mq.hooks import Hooks, answering_text
from wsrm_mq.kept_headers import KeptHeaders, as_json
from wsrm_mq.queue.arrival import Body, Sender, may_take
from wsrm_mq.queue.policy import Mode, QueuePolicy
from wsrm_mq.queue.sending import OutgoingMessage
from wsrm_mq.queue.settle import settlement
from wsrm_mq.remembered import Recent, are_small
from wsrm_mq.store.applications import Serving, queue_name
from wsrm_mq.store.channels import is_anything_waiting
from wsrm_mq.store.counting import reason_of
from wsrm_mq.versions import SOAPVersion

if TYPE_CHECKING:
    from wsrm_mq.delivery.posted import Post
    from wsrm_mq.destination.description import Description
    from wsrm_mq.envelope.wsdl import Announcement

Refused = BodyRefused | StoreError | NotAuthenticated | ConfigurationError | NameServerSilent
REFUSED: Final = (BodyRefused, StoreError, NotAuthenticated, ConfigurationError, NameServerSilent)
"""Errors that end a request before anything of it is stored; see ``Front.refusal``."""
_NO_HEADERS: Final = Headers(SOAPVersion.SOAP_1_2)
_QUEUE_NAME: Final = 512
"""Bytes of a path, which names a queue: the sender chooses it."""
MAX_CLIENTS: Final = 4_096
"""The number of clients that are remembered, before all are forgotten."""
_TOLD_OPERATIONS: Final = 256
_NOT_COMPRESSED: Final = "Send this without Content-Encoding: the service here cannot expand it."
_NOT_GZIP: Final = "Send this with Content-Encoding gzip or without: no other one is expanded here."
_NO_APPLICATION: Final = (
    "A middleware goes around the application itself: import it. Only `wsrm-mq serve` takes the name of one, "
    "as module:attribute."
)
_NO_WSDL: Final = (
    "it gives no WSDL at this path with ?wsdl, so all of its operations are taken to have an answer; name those that "
    "have none in the option one_way, else set one_way = []"
)
_UNKNOWN_OPERATION: Final = (
    "whether it has an answer is said nowhere, so its sender has waited for one; name it in the option one_way if it "
    "has none, else set one_way = []"
)
_WRAPPED_TWICE: Final = (
    "The service is wrapped twice: this delivery of one WSRMMiddleware came to another one inside it, "
    "which would keep it. Take one of them away: wrap the service once."
)


class Front:
    """The destination of one application and all that runs behind it. ``app`` is looked at, for its kind and its
    signature; ``call`` calls it."""

    def __init__(self, app: object, call: CallApplication, settings: Settings, hooks: Hooks) -> None:
        if not callable(app):
            raise ConfigurationError(f"app is {app!r}, which cannot be called. {_NO_APPLICATION}")
        self.settings = settings
        known = _known(app)
        self.only_soap = known.only_soap
        self._cannot_expand = self.only_soap and settings.headers == "pass"
        """Whether a compressed body has to be refused: Spyne parses it as it is, so every try would fail."""
        self.limits = Limits(body_bytes=settings.max_body)
        self.has_hooks = hooks.authenticate is not None or hooks.connection_key is not None
        """Whether there are hooks that see the request."""
        self._authenticate = answering_text("authenticate", hooks.authenticate) or _authenticated
        self.reach = Reach(settings.decoupled)
        self._has_identity = hooks.authenticate is None
        """A client's requests are all one sender's, as the server names it."""
        self._default_peer = _peer(known, settings)
        self._peers = {name: _peer(known, settings, name, partner) for name, partner in settings.partners.items()}
        peers = self._default_peer, *self._peers.values()
        self.asks = any(peer.operations is None for peer in peers)
        """Whether the application is asked for its WSDL; see ``ask_for_wsdl``."""
        self.own_description = OwnDescription(call, tell=self._tell_no_wsdl)
        self._told_of: Recent[Hashable, bool] = Recent(_TOLD_OPERATIONS)
        self._may_require_rm = any(peer.require_rm for peer in peers)
        self._coverage = Coverage(settings.paths, only_soap=self.only_soap)
        self._queues = settings.paths if settings.queue is None else (settings.queue,)
        self._proxies = Proxies(settings.trusted_proxies, settings.address_header)
        self._pulls = any(peer.policy.mode is Mode.PULL for peer in peers)
        self._connections = Connections(
            connection_key=answering_text("connection_key", hooks.connection_key),
            header=settings.connection_header,
            trusted_proxies=settings.trusted_proxies,
            idle=settings.connection_idle,
            notes_closes=settings.queue_one_way or self._pulls,
        )
        self.deliver = Application(
            call,
            self._policy_of,
            headers=settings.headers,
            limits=self.limits,
            max_reply=settings.max_reply,
            copied=frozenset(peer.name for peer in peers if peer.policy.mode is Mode.COPY),
        )
        """Calls the application for a stored message."""
        self.engine = self._make_engine(hooks)
        self.destination = self._make_destination(
            known.understood if settings.understood is None else frozenset(settings.understood)
        )
        self.description = self._make_description(peers)
        """The additions to WSDLs, if there are any."""
        reported = (settings.address_header,) if settings.address_header is not None else ()
        self.kept_headers = KeptHeaders(
            (*settings.keep_headers, *reported),
            lambda name: self.engine.events.tell("request.header_dropped", name=name),
        )
        self.clients: dict[Hashable, Client] = {}
        self.is_ending = False

    def _make_engine(self, hooks: Hooks) -> Engine:
        settings = self.settings
        if self._pulls:  # what the first message is consumed with is loaded before it holds the store's lock
            from wsrm_mq.queue import pulling, reporting  # noqa: F401
        modes = Modes(self._policy_of, pulls=self._pulls)
        named = None if self._pulls else settings.queue
        return Engine(
            settings.store,
            self.deliver,
            self._policy_of,
            request_threads=settings.threads,
            max_waiting=settings.max_waiting,
            on_event=hooks.on_event,
            clock=hooks.clock,
            chores=(lambda: modes.look(self.engine.store, self.engine.events), self._end_connections),
            serving=Serving(settings.application, self._queues, sends=bool(settings.decoupled)),
            poster=partial(_poster, settings) if settings.decoupled else None,
            on_open=None if named is None else partial(claim_queue, name=named),
            hold_timeout=None if settings.hold_timeout is None else round(settings.hold_timeout * 1000),
        )

    def _make_destination(self, understood: frozenset[str] | None) -> RMDestination:
        return RMDestination(
            described=self.own_description.of,
            understood=understood,
            limits=self.limits,
            queue_one_way=self.settings.queue_one_way,
            sender_fault_status=self.settings.sender_fault_status,
            events=self.engine.events,
            identify=self._identify,
            connections=self._connections,
            hand_over=self.engine.hand_over,
            refused=self.count_refusal,
            may_take=self._may_take,
            reach=self.reach,
            say=self._say,
            fetching=Fetching(self._is_waiting, self._has_left),
        )

    def _make_description(self, peers: Iterable[Peer]) -> Description | None:
        settings = self.settings
        has_one_way = any(peer.operations is not None and peer.operations.one_way for peer in peers)
        if not (has_one_way or settings.announce_rm or settings.public_url is not None):
            return None
        from wsrm_mq.destination.description import Description  # lxml, which few need

        return Description(self._one_way_for, settings.public_url, self._announcement, self.engine.events)

    # life

    def start(self) -> None:
        """Open the store and begin to deliver, at once: this process serves. Does nothing where that is done."""
        if not self.engine.is_running:
            self.engine.start()
            self.is_ending = False
        self.engine.ask()

    def close(self, timeout: float | None = None) -> bool:
        self.is_ending = True
        return self.engine.close(timeout)

    # requests

    def business(self, environ: Environ) -> Business | Answer:
        """Decide whose business the request is, or answer it to turn it away."""
        business = self._coverage.business(environ)
        if business is Business.DOUBTFUL and self._may_require_rm:
            try:
                _principal, peer = self._identify(environ, _NO_HEADERS)
            except (NotAuthenticated, ConfigurationError) as error:
                return self.refusal(error)
            if peer.require_rm:
                business = not_rm(environ)
        return self.turned_away(business) if isinstance(business, Answer) else business

    def turned_away(self, answer: Answer) -> Answer:
        """Count ``answer``, which turns away a request of which nothing else is known."""
        self.count_refusal(f"http_{answer.status}", None)
        return answer

    def meet(self, key: Hashable, environ: Environ, alike: Environ) -> Client:
        """Make the client of a request that is the middleware's business, and remember it by ``key``. ``alike``: the
        part of ``environ`` that is the same in all of its requests. Raises ``BodyRefused`` for a request that no body
        would make good."""
        coding = content_coding(environ.get("HTTP_CONTENT_ENCODING", ""))
        if coding and self._cannot_expand:
            raise BodyRefused(415, _NOT_COMPRESSED, ("Accept-Encoding", "identity"))
        if coding not in ("", "gzip"):
            raise BodyRefused(415, _NOT_GZIP, ("Accept-Encoding", "gzip, identity"))
        path = queue_name(path_of(environ))
        if len(path) > _QUEUE_NAME:
            raise BodyRefused(414, f"The path is longer than {_QUEUE_NAME} bytes.")
        address = self._proxies.sender(environ)
        known = environ if address == environ.get("REMOTE_ADDR") else {**environ, "REMOTE_ADDR": address}
        client = Client(
            environ=alike,
            kept=as_json(self.kept_headers.select(known)),
            path=path,
            queue=self.settings.queue or path,
            content_type=environ.get("CONTENT_TYPE", ""),
            soap_action=environ.get("HTTP_SOAPACTION"),
            content_encoding=coding,
            address=address,
            identity=self._identify(environ, _NO_HEADERS) if self._has_identity else None,
        )
        if are_small(alike.items()):
            if len(self.clients) >= MAX_CLIENTS:
                self.clients = {}
            self.clients[key] = client
        return client

    def begin(self, client: Client, environ: Environ, body: Body, call: object) -> Answer | Forward | Commit:
        """Begin a request of ``client``. Raises the errors that ``refusal`` answers, and ``NameNotKnown``: then it can
        be called again when that name was ``looked_up``. ``call``: the server's own function that came with the
        request, WSGI's start_response or ASGI's receive; some servers show the connection there."""
        if not self.engine.is_asked:
            if self.is_ending and not self.engine.is_running:
                return unavailable("The service is shutting down. Send again later.")
            self.start()
        return self.destination.begin(client, body, environ, call)

    def looked_up(self, client: Client, host: str) -> tuple[Future[Any], float]:
        """Have the name of a host looked up; see ``Names.ask``. The names of one client leave others their share."""
        return self.reach.names.ask(host, client.who)

    def ask_for_wsdl(self, client: Client) -> None:
        """Ask the application for its WSDL, in a thread that may wait, and not in the application's own."""
        if self.own_description.read(client.path, client.environ):
            client.arrivals.clear()
            self.clients = {}  # what is remembered of others was decided without it

    def ask_at_start(self) -> None:
        """``ask_for_wsdl`` for the paths that are configured. To be called where the application answers by now."""
        if self.asks:
            self.own_description.read_at_start(self.settings.paths or ())

    def _tell_no_wsdl(self, path: str) -> None:
        self.engine.events.tell("one_way.no_wsdl", path=path, reason=_NO_WSDL)

    def _say(self, message: OutgoingMessage, who: str | None, about: int | None) -> bool:
        sending = self.engine.acknowledging
        return sending is not None and sending.send(message, who, about)

    def waiting(
        self, commit: Commit, wait: Wait, event: Settable, patience: float, *, may_wait: bool = True
    ) -> Generator[float, bool | None, Answer]:
        """Wait for a message to be settled, at most ``patience`` seconds, which begin as ``hold_wait`` (I16), where it
        may. Yields the seconds to wait for ``event``, and is sent whether the client is gone; answers the answer. Few
        requests at a time wait for a gap."""
        waiters, who = self.engine.waiters, commit.request.who
        with waiters.expecting(wait.position, event):
            settled = self._settled(commit, wait)
            if settled is not None:
                return settled
            if may_wait and waiters.enter(who, commit.request.peer.max_waiting, bounded=wait.bounded):
                is_gone: bool | None = False
                deadline = time.monotonic() + patience
                try:
                    while (left := deadline - time.monotonic()) > 0 and not (self.is_ending or is_gone):
                        # Once a second it looks by itself: a wake-up from another process can be lost.
                        is_gone = yield min(left, 1.0)
                        settled = self._settled(commit, wait)
                        if settled is not None:
                            return settled
                finally:
                    waiters.leave(who, bounded=wait.bounded)
        self._gave_up(commit, wait)
        return wait.otherwise

    def _settled(self, commit: Commit, wait: Wait) -> Answer | None:
        """The answer to a request that waits for a message; ``None`` while that is not settled, and where the store
        cannot say: the message is stored, which an error would deny."""
        policy = commit.request.peer.policy if commit.arrival is not None else None
        try:
            with self.engine.store.reader() as db:
                found = settlement(db, wait.position, policy)
        except StoreUnavailable:
            return None
        return None if found is None else self.destination.settled(commit, wait, found)

    def refusal(self, error: Refused) -> Answer:
        """The answer to a request that went no further than ``error``: nothing of it was stored."""
        reason = f"http_{error.status}" if isinstance(error, BodyRefused) else reason_of(error)
        self.count_refusal(reason, None, str(error))
        return _answer_to(error)

    def count_refusal(self, reason: str, partner: str | None, said: str = "") -> None:
        """Count a refusal. Where there is no store yet, there is nothing to count it in."""
        if self.engine.is_running:
            self.engine.store.refusals.note(reason, partner, self.engine.store.clock(), said=said)

    def _may_take(self, sender: Sender, identifier: str) -> bool:
        with self.engine.store.reader() as db:
            return may_take(db, sender, identifier)

    def _is_waiting(self, sender: Sender, address: str) -> bool:
        store = self.engine.store
        with store.reader() as db:
            return is_anything_waiting(db, address, sender.principal, sender.peer, store.clock())

    def _has_left(self, position: int) -> None:
        """Note that a message was fetched. Should that not be written down, the message is fetched again."""
        from wsrm_mq.queue.polling import taken

        self.engine.store.submit(partial(taken, position=position), lambda _done, _error: None, lingers=True)

    def _gave_up(self, commit: Commit, wait: Wait) -> None:
        """A request waits no longer for its reply, which may be fetched at once when it is there."""
        self._tell_unknown(commit)
        if commit.may_answer_later:
            from wsrm_mq.queue.polling import leave_to_fetch

            verb = partial(leave_to_fetch, position=wait.position)
            with suppress(StoreUnavailable):
                self.engine.store.submit(verb, lambda _done, _error: None, lingers=True)

    def _tell_unknown(self, commit: Commit) -> None:
        """Tell of an operation of which no answer is known, once: it has waited like a two-way one, and may be
        one-way."""
        request = commit.request
        name = request.headers.body_name
        if self.is_ending or commit.arrival is None or self._told_of.get((request.client.path, name)):
            return
        if commit.arrival.wants_reply and self.destination.operations(request).is_unknown(request.headers):
            self._told_of.keep((request.client.path, name), True)
            operation = "{{{}}}{}".format(*name) if name is not None else str(request.headers.action)
            self.engine.events.tell(
                "one_way.unknown", operation=operation, path=request.client.path, reason=_UNKNOWN_OPERATION
            )

    def _end_connections(self) -> None:
        """Complete the messages that closed connections sent without WS-RM."""
        names = self._connections.closed()
        if names:  # told once: it is tried until it is stored, and the watch does not wait for it
            from wsrm_mq.queue.unsequenced import end_connections

            verb = partial(end_connections, names=names)
            self.engine.store.submit(verb, lambda _ended, _error: None, keep=True, lingers=True)

    def _identify(self, environ: Environ, headers: Headers) -> tuple[str | None, Peer]:
        """The principal that sends a request, and its peer in the configuration."""
        principal = self._authenticate(environ, headers)
        if not self._peers:
            return principal, self._default_peer
        matched = self.settings.partner_for(principal, path_of(environ), self._proxies.sender(environ))
        return principal, self._default_peer if matched is None else self._peers[matched[0]]

    def _one_way_for(self, environ: Environ) -> frozenset[str]:
        """The operations without output for the client that asks for the WSDL."""
        operations = self._asks(environ).operations
        return operations.one_way if operations is not None else frozenset()

    def _asks(self, environ: Environ) -> Peer:
        try:
            return self._identify(environ, _NO_HEADERS)[1]
        except (NotAuthenticated, ConfigurationError):
            return self._default_peer  # the application shows its WSDL to strangers

    def _announcement(self, environ: Environ) -> Announcement | None:
        """The promises of the WSDL to the client that asks for it."""
        if not (self.settings.announce_rm and self._coverage.describes(environ)):
            return None
        from wsrm_mq.envelope.wsdl import Announcement

        peer = self._asks(environ)
        policy = peer.policy
        return Announcement(policy.assurance, policy.ordered, peer.require_rm, policy.inactivity)

    def _policy_of(self, partner: str | None) -> QueuePolicy:
        """The policy of a partner; the general one where its section is gone."""
        return self._peers.get(partner or "", self._default_peer).policy


class Served:
    """The calls of a server on either middleware: start it, announce its end, close it."""

    _front: Front

    def start(self) -> None:
        """Open the store and begin to deliver, at once. To be called in a process that serves, not in one that only
        forks those that do."""
        self._front.start()

    def stop_waiting(self) -> None:
        """The end is near: answer the requests that wait for a message, and let none wait from now on."""
        self._front.is_ending = True

    def close(self, timeout: float | None = None) -> bool:
        """Finish the running messages, give every sequence back, close the store. Answers whether all finished in
        ``timeout`` seconds."""
        return self._front.close(timeout)

    @property
    def engine(self) -> Engine:
        return self._front.engine

    @property
    def deliver(self) -> Application:
        """Calls the wrapped application, for a stored message."""
        return self._front.deliver


def _poster(settings: Settings) -> Post:
    """Make the poster of one process."""
    from wsrm_mq.outbound.addresses import Allowed
    from wsrm_mq.outbound.posting import Poster, tls

    return Poster(
        Allowed.listed(OPTION, settings.decoupled),
        seconds=settings.send_timeout,
        context=tls(settings.send_ca, settings.send_certificate),
        proxy=settings.send_proxy,
    ).post


def _answer_to(error: Refused) -> Answer:
    match error:
        case BodyRefused():
            return plain(error.status, error.reason, *error.fields)
        case NotAuthenticated():
            return plain(401, str(error), ("WWW-Authenticate", error.challenge))
        case ConfigurationError():
            tell("request.misconfigured", error=error, trouble=error.__cause__)
            return unavailable("The service is set up wrongly, its log says how; nothing was taken. Send again later.")
        case NameServerSilent():
            return unavailable(f"Nothing was taken: {error}. Send again later.")
        case StoreOverloaded():
            return unavailable("Too many requests wait; nothing was taken. Send again later.", retry_after=1)
        case _:
            tell("request.store_error", error=error)
            return unavailable("The store cannot be written now; nothing was taken. Send again later.")


DELIVERY: Final = "wsrm.sequence_id"
"""In the environ or the scope of a request: it is a delivery of another middleware around this one."""


def refuse_delivery(given: Mapping[str, Any]) -> Answer:
    """Turn a delivery away so that it counts as a failure of the outer middleware: an acceptance here would pass for a
    delivery there."""
    refuse = given.get("wsrm.refuse")
    if refuse is not None:
        refuse(_WRAPPED_TWICE)
    return plain(500, _WRAPPED_TWICE)


def _authenticated(environ: Environ, _headers: Headers) -> str | None:
    """The TLS client's name as servers and proxies show it, else REMOTE_USER, else none."""
    return environ.get("SSL_CLIENT_S_DN") or environ.get("REMOTE_USER") or None


class _Known(NamedTuple):
    """A framework's answers about its application."""

    only_soap: bool = False
    understood: frozenset[str] | None = None
    """The namespaces of header blocks that it understands; ``None``: it checks them by itself."""
    operations: Operations | None = None
    """``None``: the application's own WSDL has to say them."""


def _known(app: object) -> _Known:
    """Spyne is asked where it is there, and told to tell what its operations raise."""
    if "spyne" not in sys.modules:
        return _Known()
    from wsrm_mq.contrib import spyne_errors

    spyne_errors.tell_all_failures(app)
    if not spyne_compat.is_spyne(app):
        return _Known()
    one_way, has_replies = spyne_compat.one_way_operations(app), spyne_compat.has_replies(app)
    operations = Operations(one_way, has_replies=has_replies, pass_as_before=True)
    return _Known(spyne_compat.speaks_soap(app), spyne_compat.understood_headers(app), operations)


def _peer(known: _Known, settings: Settings, name: str | None = None, partner: Partner | None = None) -> Peer:
    """The peer that stands for a partner; without one, for all senders without a section."""
    options = ("sender_fault_status", "require_rm", "strict_addressing")
    one_way = settings.effective("one_way", partner)
    return Peer(
        settings.policy(partner),
        name,
        stack=None if partner is None else partner.stack,
        one_way_answer=partner.one_way_answer if partner is not None else "acknowledgement",
        operations=known.operations if one_way == "auto" else Operations(named_operations(one_way)),
        verify_body=settings.verify_body,
        max_waiting=settings.max_waiting_peer,
        **{option: settings.effective(option, partner) for option in options},
    )
