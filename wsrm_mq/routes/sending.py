"""The sending of what waits in the transmission queues of a node: the engine of an RM Source, with each message written
as it leaves, and the credentials that each next node knows this one by."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from wsrm_mq.delivery.delivery import Delivery, Outcome
from wsrm_mq.delivery.requesting import tend
from wsrm_mq.engine import Engine
from wsrm_mq.envelope.stream import content_type_of
from wsrm_mq.errors import ConfigurationError, NotAllowed, NotAnswered
from wsrm_mq.outbound.addresses import Allowed
from wsrm_mq.outbound.posting import Poster, tls
from wsrm_mq.queue.arrival import Body
from wsrm_mq.queue.hopping import NODE_HEADER
from wsrm_mq.queue.policy import QueuePolicy, Resend
from wsrm_mq.routes.block import ACTION, CONTENT_TYPE, leaving
from wsrm_mq.routes.express import end_earlier_runs
from wsrm_mq.source.persistent import Persistent
from wsrm_mq.store import outbound as outbounds
from wsrm_mq.store import routing
from wsrm_mq.store.applications import FORWARDING
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import as_json

if TYPE_CHECKING:
    from wsrm_mq.delivery.posted import Answered, Post
    from wsrm_mq.queue.ownership import Claim

_EVERYWHERE: Final = Allowed.listed("next_hop", ("0.0.0.0/0", "::/0", "public"))
"""Any address: the operator says where routes lead."""
POLICY: Final = QueuePolicy(resend=Resend(spread=0.2))
_SECONDS: Final = 60.0
_QUESTION_SECONDS: Final = 5.0
"""A next node has so long for an answer whether it is there: the others wait for their questions meanwhile."""


_VOUCHING: Final = (
    "in its section [node.NAME] here `ca` is the file of who vouches for it, `certificate` that of this node"
)


class Hop(NamedTuple):
    """How a next node is spoken to: the token that it knows this one by, or the file of a certificate and its key; the
    file of the authorities that its own certificate is of; a proxy on the way."""

    token: str | None = None
    certificate: str | None = None
    ca: str | None = None
    proxy: str | None = None


class Reaching(Persistent):
    """The way with next nodes that do not answer, or do not as nodes do: each is left alone for a while, and nothing
    of what waits for it has failed. A process has only that pause here, and what it has heard since it looked last:
    which next nodes are away, and how they are called, is said by their rows in the store alone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.tell = lambda *_, **__: None  # ``Hops`` tells
        self.heard: dict[str, str | None] = {}
        """The addresses that have answered since ``Hops`` looked, with the names of the nodes, as far as they said."""
        self.own: str | None = None
        """The name of this node."""
        self.ask: Post = self._post

    def place(self, url: str) -> str:
        """Each node by itself: several may be behind one host."""
        return url

    def __call__(self, url: str, *arguments: Any, **options: Any) -> Answered:
        answered = super().__call__(url, *arguments, **options)
        self.heard[url] = name_of(answered)
        return answered

    def why_away(self, answered: Answered) -> str | None:
        return why_away(answered, self.own)

    def asked(self, url: str, headers: Mapping[str, str], body: bytes) -> str | None:
        """Ask a next node something, whether it is left alone or not. Why it is away; ``None``: it answers."""
        try:
            answered = self.ask(url, headers, body, None)
        except (NotAllowed, NotAnswered) as error:
            why: str | None = str(error).removeprefix(f"{url}: ")
        else:
            why = self.why_away(answered)
        if why is None:
            self.heard[url] = name_of(answered)
            self.is_back(url)
        else:
            self._put_off(url, self.place(url), why)
        return why


def name_of(answered: Answered) -> str | None:
    """The name of the node that has answered; ``None``: it does not say that it is one."""
    said = next((value for name, value in answered.headers if name.lower() == NODE_HEADER), None)
    return None if said is None else unquote(said)


def why_away(answered: Answered, own: str | None = None) -> str | None:
    """Why a next node takes no messages now; ``None``: it does. A node says on each answer that it is one: another
    service of WS-RM would acknowledge what it cannot place. 413 may be the word of what is between. ``own``: the name
    of this node."""
    kind, name = content_type_of(answered.headers).lower(), name_of(answered)
    is_node = name is not None
    if is_node and name == own:
        return (
            f"answers as {name}, which is this node: the route leads back here, or two nodes have one name. "
            "`wsrm-mq route drop` here, or `wsrm-mq node name` there"
        )
    is_taken = "xml" in kind or answered.status == 400 or (answered.status == 202 and not answered.content)
    if is_node and b"CreateSequenceRefused" in answered.content:  # its own affair, and it passes
        return "refuses a sequence: too many of this node's token are open there: `wsrm-mq sequence list` there"
    if answered.status == 413 or (is_node and is_taken):
        return None
    why = f"answered {answered.status}"
    if answered.status in (401, 403, 429):  # the last: too many tokens that it does not know
        return f"{why}: it does not know this node, or grants it no right: `wsrm-mq token add … --route` there"
    where = "Its address ends in /rm, or in /queues/rm beside an application"
    return f"{why} with {kind or 'nothing'}: is there a node of wsrm_mq? {where}"


class Sending:
    """Sends from the store of a node, in whatever process of it. ``hops``: credentials, by the URL of the next node."""

    def __init__(self, store: Store, hops: Mapping[str, Hop], post: Post | None) -> None:
        """``post`` takes the place of HTTP."""
        self._hops = hops
        self._post = post
        self._engine = Engine(
            store.path,
            _never,
            lambda _partner: POLICY,
            clock=store.clock,
            chores=(self._tend,),
            serving=FORWARDING,
            poster=partial(poster_of, hops) if post is None else lambda: post,
            patience=self._patience,
            written=_written,
        )

    def start(self) -> None:
        self._engine.start()
        self.call(end_earlier_runs)
        self._engine.ask()

    def close(self, timeout: float | None) -> bool:
        """Answers whether all posts were over in so many seconds."""
        return self._engine.close(timeout)

    def _patience(self, *arguments: Any, **options: Any) -> Reaching:
        self.reaching = Reaching(*arguments, **options)
        if self._post is None:
            self.reaching.ask = poster_of(self._hops, _QUESTION_SECONDS)
        return self.reaching

    def look(self) -> None:
        """Something may wait to be sent: have the watch look where it does, and no process sends it."""
        store = self._engine.store
        with store.reader() as db:
            now = {"now": store.clock()}
            waits = db.execute(routing.TO_SEND, now).fetchone() or db.execute(outbounds.TO_TEND, now).fetchone()
        if waits is not None:
            self._engine.watch.nudge()

    def _tend(self) -> None:
        """A chore of the watch: what is due about sequences."""
        if not self._engine.is_running:
            return
        with self._engine.store.reader() as db:
            is_due = db.execute(outbounds.TO_TEND, {"now": self._engine.store.reached()}).fetchone() is not None
        if is_due:
            self.call(lambda tx: tend(tx, POLICY))

    def call(self, verb: Any) -> None:
        """Run a verb that answers the claims on what is to be sent because of it."""

        def give(claims: tuple[Claim, ...]) -> None:
            for claim in claims:
                self._engine.dispatcher.give(claim)

        self._engine.store.call(verb, keep=True, committed=give, leads=True)


def _never(_delivery: Delivery) -> Outcome:
    raise AssertionError("nothing is delivered here")


def poster_of(hops: Mapping[str, Hop], seconds: float = _SECONDS) -> Post:
    """Make the poster of one process, with what each next node knows this one by."""
    made: dict[Hop, Poster] = {}

    def post(url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answered:
        hop = hops.get(url, Hop())
        if hop not in made:
            try:
                context = tls(hop.ca, hop.certificate)
            except ConfigurationError as error:
                raise NotAnswered(f"{url}: {error}") from error
            made[hop] = Poster(_EVERYWHERE, seconds=seconds, context=context, proxy=hop.proxy)
        if hop.token is not None and not (hop.token.isascii() and hop.token.isprintable()):  # an error would quote it
            raise NotAnswered(f"{url}: its token is not one line of ASCII characters, and cannot be sent")
        known_by = {} if hop.token is None else {"Authorization": f"Bearer {hop.token}"}
        try:
            return made[hop].post(url, {**headers, **known_by}, body, who)
        except NotAnswered as error:
            if "_ssl.c" in str(error):  # each error of OpenSSL names it
                raise NotAnswered(f"{error}: {_VOUCHING}") from error
            raise

    return post


def _written(store: Store, delivery: Delivery) -> Delivery:
    """A message with the envelope that it leaves in."""
    assert delivery.channel is not None
    to = delivery.channel.endpoint.address
    with store.reader() as db:
        facts = leaving(db, delivery.position, to, delivery.action, delivery.message_id, store.reached())
    envelope = facts.envelope(delivery.body.open().read())
    return delivery._replace(
        action=ACTION,
        message_id=facts.message_id,
        environ=as_json({"CONTENT_TYPE": CONTENT_TYPE}),
        body=Body(envelope),
    )
