"""The other nodes of this one's site and enterprise, over the API of their queue servers. Which they are is said by the
configuration (``[node.NAME]``)."""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, NamedTuple

from wsrm_mq import node as local
from wsrm_mq.client.forms import Answer, Request, asking, offers_in, read
from wsrm_mq.client.mirror import Copy, Mirror
from wsrm_mq.client.node import RemoteNode
from wsrm_mq.config import Settings, load, settings_from
from wsrm_mq.config.settings import FarNode
from wsrm_mq.errors import (
    ConfigurationError,
    NoQueueServer,
    NotAnswered,
    Overloaded,
    ServerUnavailable,
    StoreError,
    WSRMError,
)
from wsrm_mq.node.message import Action, Message
from wsrm_mq.node.neighbours import Away, Offer, Offers, Reach
from wsrm_mq.queue.settling import Settlement
from wsrm_mq.queue.tracing import Stop

LOOK_SECONDS: Final = 3.0
"""A node that is asked what it offers has so long."""
ANSWER_SECONDS: Final = 10.0
"""A node has so long for an answer with messages that are looked at."""


class Answered(NamedTuple):
    """The answer of a node that was asked for its offers. ``away``: why none came."""

    name: str
    offers: list[Offer]
    away: Away | None
    seconds: float


class Far(RemoteNode):
    """The line to another node. What looks there is not asked twice, and has its time; what leases and settles there is
    asked for as long as any client asks."""

    def __init__(self, called: str, where: FarNode, client: str | None) -> None:
        super().__init__(where.url or "", client, token=where.token(called), tls=_tls(called, where))
        self.called = called
        self.away: Away | None = None
        self.settled: set[int] = set()
        """Positions that were settled over this line, and may be in a copy yet."""

    async def asked(self, request: Request, seconds: float = ANSWER_SECONDS) -> Answer:
        """The answer, within its time, on the loop of the line."""
        try:
            async with asyncio.timeout(seconds):
                answer = await self.line.ask(request, patience=0)
        except TimeoutError:
            raise self._gone(ServerUnavailable(f"{self.line.where} has not answered within {seconds:.0f} s.")) from None
        except WSRMError as error:
            raise self._gone(error) from None
        self.away = None
        return answer

    def _gone(self, error: WSRMError) -> WSRMError:
        if is_away(error):
            self.away = Away(time.time() if self.away is None else self.away.since, str(error))
        return error

    def ask(self, method: str, *segments: object, json: object = None, **options: object) -> Answer:
        return self.line.wait(self.asked(asking(method, *segments, json=json, **options)))

    def settle_messages(self, messages: Sequence[Message], action: Action, **how: Any) -> list[Settlement]:
        answers = super().settle_messages(messages, action, **how)
        if action in ("ack", "reject", "expire") and not self.in_transaction:
            self.settled.update(one.position for one in messages)
        return answers

    async def _sent(self, wanted: Sequence[dict[str, object]]) -> list[Settlement]:
        answers = await super()._sent(wanted)
        self.settled.update(int(str(one["position"])) for one in wanted)
        return answers


def is_away(error: WSRMError) -> bool:
    """Whether an error says that a node, or what is in front of it, does not answer as one: else it has refused."""
    return isinstance(error, StoreError | NotAnswered | NoQueueServer | Overloaded) or type(error) is WSRMError


class Neighbours:
    """The other nodes that are configured, each by its name. A line to one is begun when it is needed first."""

    def __init__(self, settings: Settings, client: str | None, shelf: str | os.PathLike[str] | None = None) -> None:
        """``client``: what consumers are known by at the others. ``shelf``: the directory of copies; ``None``: one that
        goes with this object."""
        self.nodes: Mapping[str, FarNode] = settings.nodes
        self._site = settings.site
        self._client = client
        self._shelf_path = shelf
        self._shelf: local.Node | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._far: dict[str, Far] = {}
        self._mirrors: dict[tuple[str, str], Mirror] = {}
        self._heard: dict[str, list[Offer]] = {}
        self._lock = threading.RLock()

    def of(self, reach: Reach) -> list[str]:
        """The names of the nodes of this one's site, or of the enterprise."""
        return [name for name, one in self.nodes.items() if reach == "enterprise" or one.site == self._site]

    def far(self, name: str) -> Far:
        """The line to a node. Raises ``ConfigurationError``."""
        where = self.nodes.get(name)
        if where is None:
            known = ", ".join(self.nodes) or "none"
            raise ConfigurationError(f"There is no section [node.{name}]; there are: {known}.")
        with self._lock:
            if name not in self._far:
                self._far[name] = Far(name, where, self._client)
            return self._far[name]

    def look(self, reach: Reach = "enterprise") -> list[Answered]:
        """Ask the nodes what they offer, all at once; each is waited for ``LOOK_SECONDS``."""
        began = time.monotonic()
        asked = self._ask(reach, asking("GET", "offers"), LOOK_SECONDS)
        return [self._answered(name, one, began) for name, one in asked]

    def _ask(self, reach: Reach, request: Request, seconds: float) -> list[tuple[str, Future[Answer]]]:
        asked: list[tuple[str, Future[Answer]]] = []
        for name in self.of(reach):
            try:
                far = self.far(name)
                asked.append((name, far.line.run(far.asked(request, seconds))))
            except ConfigurationError as error:
                asked.append((name, Future()))
                asked[-1][1].set_exception(error)
        return asked

    def trace(self, origin: str) -> dict[str, list[Stop] | WSRMError]:
        """The places where the nodes have a message, or have had it, as far as they tell this one; in the place of an
        answer why none came. All are asked at once, and each is waited for ``ANSWER_SECONDS``."""
        found: dict[str, list[Stop] | WSRMError] = {}
        for name, asked in self._ask("enterprise", asking("GET", "traces", origin), ANSWER_SECONDS):
            try:
                found[name] = read(asked.result(), dict[str, list[Stop]])["stops"]
            except WSRMError as error:
                found[name] = error
        return found

    def _answered(self, name: str, asked: Future[Answer], began: float) -> Answered:
        try:
            offers = self._heard[name] = offers_in(asked.result(), name)
            return Answered(name, offers, None, time.monotonic() - began)
        except WSRMError as error:
            far = self._far.get(name)
            away = Away(time.time(), str(error)) if far is None or far.away is None else far.away
            last = self._heard.get(name, []) if is_away(error) else []
            offers = [one._replace(away_since=away.since) for one in last]
            return Answered(name, offers, away, time.monotonic() - began)

    def offers(self, reach: Reach) -> Offers:
        """See ``Node.queues``: those of the others."""
        answered = self.look(reach)
        away = {one.name: one.away for one in answered if one.away is not None}
        return Offers((offer for one in answered for offer in one.offers), away)

    def mirror(self, queue: str, of: str) -> Mirror:
        """See ``Node.mirror``."""
        far = self.far(of)
        with self._lock:
            found = self._mirrors.get((of, queue))
            if found is None:
                found = Mirror(far, queue, Copy(self._copies(), of, queue))
                self._mirrors[of, queue] = found
            return found

    def _copies(self) -> local.Node:
        if self._shelf is None:
            if self._shelf_path is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="wsrm-mq-")
            path = Path(self._shelf_path or self._temporary.name)  # type: ignore[union-attr]
            path.mkdir(parents=True, exist_ok=True)
            self._shelf = local.connect(path)
        return self._shelf

    def close(self) -> None:
        """End the lines, which gives back what is leased over them."""
        for far in self._far.values():
            far.close()
        for mirror in self._mirrors.values():
            mirror.close()
        if self._shelf is not None:
            self._shelf.close()
        if self._temporary is not None:
            self._temporary.cleanup()


def _tls(called: str, where: FarNode) -> ssl.SSLContext | None:
    if where.ca is None and where.certificate is None:
        return None
    try:
        context = ssl.create_default_context(cafile=where.ca)
        if where.certificate is not None:
            context.load_cert_chain(where.certificate)
    except OSError as error:
        raise ConfigurationError(f"node.{called}: its ca, or its certificate, cannot be read: {error}.") from None
    return context


def neighbours_of(nodes: Any, client: str | None, shelf: str | os.PathLike[str] | None = None) -> Neighbours:
    """The nodes of a configuration file, or of the options that it would have."""
    settings = settings_from(nodes) if isinstance(nodes, Mapping) else load(Path(nodes), os.environ)
    return Neighbours(settings, client, shelf)
