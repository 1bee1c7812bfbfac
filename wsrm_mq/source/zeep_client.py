"""zeep over an RM Source: what an operation sends is stored before it leaves, and sent until it is acknowledged.

An operation without an output returns when its request is stored. One with an output waits for its reply; if that is
not there in time, ``Pending`` says under which MessageID it will be.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Self

import requests
import zeep
from lxml import etree
from zeep.loader import absolute_location
from zeep.plugins import Plugin
from zeep.transports import Transport
from zeep.wsdl.utils import get_or_create_header
from zeep.wsse import Compose

from wsrm_mq.envelope.wsdl import Asserted, asserted, default_action, imports_in, input_names
from wsrm_mq.errors import ConfigurationError, NotFound
from wsrm_mq.queue.policy import Resend
from wsrm_mq.source.looking import Reply, Sent
from wsrm_mq.source.signing import SECURITY, Signer
from wsrm_mq.source.source import RESEND, RMSource
from wsrm_mq.versions import ADDRESSING_VERSIONS, WSRM_1_0

_WANTS_REPLY: Final = "Wsrm-Mq-Wants-Reply"
"""The header of HTTP that tells the transport whether a reply is wanted; it is not sent."""
_STAMPED: Final = ("Action", "MessageID", "To", "ReplyTo", "FaultTo", "From")
_OWN_WAITS: Final = 5
"""The first waits between sendings, which a WSDL may state; those behind them are the usual ones."""


class Request(NamedTuple):
    """The request of an operation."""

    content: bytes
    to: str
    wants_reply: bool
    content_type: str | None
    """The Content-Type of a message with parts; else ``None``."""

    def give(self, source: RMSource) -> Sent:
        """Have it stored."""
        given = source.ask if self.wants_reply else source.send
        return given(self.content, to=self.to, content_type=self.content_type)


Take = Callable[[Request], Any]
"""Takes a request; answers what its operation answers."""
_take: ContextVar[Take | None] = ContextVar("take", default=None)
"""The function that takes the request of this thread's operation, in place of sending it and waiting for its reply."""
_wants_reply: ContextVar[bool] = ContextVar("wants_reply")
"""Whether the request that this thread's operation makes is replied to."""


class _Taken(Exception):
    """Ends an operation whose request was taken; the answer goes past zeep so."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer


class ReliablePlugin(Plugin):
    """The last of a client's plug-ins: gives each request its action and ReplyTo, in the version of WS-Addressing that
    ``source`` speaks, in place of what zeep has written."""

    def __init__(self, source: RMSource) -> None:
        self._source = source

    def egress(self, envelope: Any, http_headers: Any, operation: Any, _binding_options: Any) -> tuple[Any, Any]:
        addressing = self._source.addressing
        header = get_or_create_header(envelope)
        written = None
        for namespace in ADDRESSING_VERSIONS:
            for local in _STAMPED:
                for element in header.findall(f"{{{namespace}}}{local}"):
                    written = element.text if local == "Action" else written
                    header.remove(element)
        wants_reply = operation.abstract.output_message is not None
        etree.SubElement(header, f"{{{addressing.namespace}}}Action").text = written or action_of(operation)
        http_headers[_WANTS_REPLY] = "yes" if wants_reply else "no"
        return envelope, http_headers


def action_of(operation: Any) -> str:
    """The wsa:Action of an operation, as its WSDL gives it: by itself, as its SOAPAction, or by its names."""
    port_type, abstract = operation.binding.port_name, operation.abstract
    input_name = operation.name if abstract.output_message is None else f"{operation.name}Request"
    default = default_action(port_type.namespace or "", port_type.localname, input_name)
    return abstract.wsa_action or operation.soapaction or default


def _name_actions(client: zeep.Client, documents: list[bytes]) -> None:
    """Give an operation without any action the one that the name of its input makes, which zeep does not keep."""
    named = input_names(documents)
    for operation in _operations_of(client):
        port_type = operation.binding.port_name
        name = named.get((port_type.text, operation.name))
        if name is not None and not (operation.abstract.wsa_action or operation.soapaction):
            operation.abstract.wsa_action = default_action(port_type.namespace or "", port_type.localname, name)


def _operations_of(client: zeep.Client) -> Iterator[Any]:
    """The operations of all ports; their bindings may be in documents that the WSDL imports."""
    for port in _ports_of(client):
        yield from port.binding.all().values()


def _ports_of(client: zeep.Client) -> Iterator[Any]:
    for service in client.wsdl.services.values():
        yield from service.ports.values()


def _documents(transport: Transport, wsdl: str) -> list[bytes]:
    """A WSDL, and those that it imports."""
    found: dict[str, bytes] = {}
    waiting = [wsdl]
    for place in waiting:  # it grows
        if place not in found:
            found[place] = transport.load(place)
            waiting += (absolute_location(one, place) for one in imports_in(found[place]))
    return list(found.values())


class ReliableTransport:
    """A transport of zeep's that posts by ``source``, and does all else as ``inner`` does. ``timeout``: for so many
    seconds a reply is waited for; ``None``: for as long as it takes. What the session of ``inner`` has for its requests
    goes with no request of ``source``: it is refused where that has not been told it too. What its ``post_xml`` makes
    of an envelope, as parts with attachments, is sent. ``signer``: what signs each request as it leaves."""

    def __init__(
        self,
        source: RMSource,
        inner: Transport | None = None,
        timeout: float | None = 30.0,
        signer: Signer | None = None,
    ) -> None:
        self._source = source
        self._signer = signer
        self._inner = Transport() if inner is None else inner
        if type(self._inner).post is not Transport.post:
            raise ConfigurationError(
                f"{type(self._inner).__name__}.post is never called, as requests leave by the RM Source: have its "
                "`post_xml` make what is sent, and call `self.post(address, message, headers)`."
            )
        self._making = copy(self._inner)
        self._making._close_session = False
        self._making.post = self._made  # type: ignore[method-assign]
        _refuse_session(self._inner.session, source)
        self._timeout = timeout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def post_xml(self, address: str, envelope: Any, headers: Any) -> Any:
        wanted = headers.pop(_WANTS_REPLY, None)
        if wanted is None:
            raise ConfigurationError("A ReliableTransport needs a ReliablePlugin, as the last of the client's plugins.")
        if envelope.find(f"{{*}}Header/{SECURITY}") is not None:
            raise ConfigurationError(
                "The request has a wsse:Security, which would be stored, and sent again as it is: give wsse= to "
                "ReliableClient, or to the client before it is made `reliable`."
            )
        token = _wants_reply.set(wanted == "yes")
        try:
            return self._making.post_xml(address, envelope, headers)
        finally:
            _wants_reply.reset(token)

    def _made(self, address: str, message: bytes | str, headers: Mapping[str, str]) -> Any:
        """The request that zeep would post."""
        if self._signer is not None:
            sign(self._source, self._signer, address)
        said = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
        content_type = said if said.lower().startswith("multipart/") else None
        content = message.encode() if isinstance(message, str) else message
        request, take = Request(content, address, _wants_reply.get(), content_type), _take.get()
        if take is not None:
            raise _Taken(take(request))
        return self._exchange(request)

    def _exchange(self, request: Request) -> Any:
        sent = request.give(self._source)
        return answered(self._source.reply(sent, self._timeout) if request.wants_reply else ACCEPTED)


ACCEPTED: Final = Reply(202, "", b"")
"""The answer to a request that wants no reply."""


def answered(reply: Reply) -> requests.Response:
    """A reply as zeep expects it of HTTP."""
    made = requests.Response()
    made.status_code, made._content = reply.status, reply.content
    made.headers["Content-Type"] = reply.content_type
    return made


class Later:
    """The result of an operation that is not waited for."""

    def __init__(self, client: ReliableClient, operation: str, sent: Sent, *, wants_reply: bool) -> None:
        self._client = client
        self._operation = operation
        self.sent = sent
        self._wants_reply = wants_reply
        self.message_id = sent.message_id

    def done(self) -> bool:
        """Whether ``result`` would answer at once."""
        return self._client.source.is_settled(self.sent)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for what the operation returns, or raises; ``None`` once it is acknowledged, where it has no output.
        Raises ``Pending`` after ``timeout`` seconds."""
        if not self._wants_reply:
            return self._client.source.wait(self.sent, timeout)
        return self._client.read(self._operation, self._client.source.reply(self.sent, timeout))


class _Operations:
    """The operations of a client, whose requests ``take`` takes; its first argument is the operation's name."""

    def __init__(self, client: ReliableClient, take: Callable[[str, Request], Any]) -> None:
        # One that waits for nothing: a client for event loops has another one itself.
        self._service = zeep.Client.bind(client, client._default_service_name, client._default_port_name)
        self._taking = take

    def __getattr__(self, name: str) -> Any:
        operation = self._service[name]

        def call(*arguments: Any, **named: Any) -> Any:
            token = _take.set(partial(self._taking, name))
            try:
                operation(*arguments, **named)
            except _Taken as taken:
                return taken.answer
            finally:
                _take.reset(token)
            raise ConfigurationError("The client's transport was replaced: make a new ReliableClient.")

        return call


class ReliableClient(zeep.Client):
    """A client of zeep's whose calls are never lost: they are in ``store`` before they leave.

    ::

        with ReliableClient("http://partner.example/orders?wsdl", store="outbox.db") as client:
            client.service.put_order(n=1, text="two seats")
    """

    _transport = ReliableTransport

    def __init__(
        self,
        wsdl: str,
        *,
        store: str | os.PathLike[str],
        rm: str | None = None,
        addressing: str | None = None,
        timeout: float | None = 30.0,
        source: dict[str, Any] | None = None,
        transport: Transport | None = None,
        plugins: list[Any] | None = None,
        **options: Any,
    ) -> None:
        """``rm`` and ``addressing`` as for ``RMSource``; without them, the newest that the policy of the port
        announces, else 1.1, and with 1.0 the WS-Addressing that it announces. When requests are sent again, and how
        long a sequence lives in which nothing is said, is what that says of timing, unless ``source`` has a ``resend``
        or an ``inactivity``. ``timeout``: for so many
        seconds a reply is waited for. ``source``: more options of ``RMSource``; the others are zeep's. ``wsse`` is
        applied to each request as it leaves, each time anew: see ``RMSource.sign``."""
        security = Security.of(options.pop("wsse", None))
        inner = Transport() if transport is None else transport
        documents = _documents(inner, wsdl)
        policy = asserted(documents, options.get("service_name"), options.get("port_name"))
        timing: dict[str, Any] = {}
        if rm in (None, policy.rm.label):
            timing["resend"] = _resend_of(policy)
            timing["inactivity"] = None if policy.inactivity is None else policy.inactivity / 1000
        if addressing is None and policy.addressing is not None and (rm or policy.rm.label) == WSRM_1_0.label:
            addressing = policy.addressing.label
        self.source = RMSource(store, rm=rm or policy.rm.label, addressing=addressing, **{**timing, **(source or {})})
        try:
            reliable = self._transport(self.source, inner, timeout, security and security.signer)
            egress = [*(plugins or []), ReliablePlugin(self.source)]
            super().__init__(wsdl, wsse=security, transport=reliable, plugins=egress, **options)  # type: ignore[no-untyped-call]
            _sign_ports(self, self.source)
            _name_actions(self, documents)
            self.source.offers = _has_replies(self)
            self.later = _Operations(self, self._later)
            """Its operations answer a ``Later`` as soon as their requests are stored."""
        except BaseException:
            self.source.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: Any) -> None:
        self.source.close()

    def _later(self, operation: str, request: Request) -> Any:
        return Later(self, operation, request.give(self.source), wants_reply=request.wants_reply)

    def enqueue(self, connection: object) -> _Operations:
        """Operations that write their requests by ``connection`` into the program's own database, in its transaction,
        and answer the MessageID: see ``RMSource.enqueue``. ``client.source.relay`` moves them on."""

        def take(_operation: str, request: Request) -> str:
            content, to, wants_reply, content_type = request
            return self.source.enqueue(connection, content, to=to, wants_reply=wants_reply, content_type=content_type)

        return _Operations(self, take)

    def replies(self, message_id: str) -> Any:
        """The result of the operation that was called with this MessageID, whichever process has called it; ``None``
        where there is no reply yet. Raises what it raises, and ``NotFound``."""
        reply, action = self.source.replies(message_id), self.source.action_of(message_id)
        if reply is None:
            return None
        binding = self.service._binding
        for name, operation in binding.all().items():
            if action_of(operation) == action:
                return self.read(name, reply)
        raise NotFound(f"{message_id}: no operation of this WSDL has the action {action}.")

    def read(self, operation: str, reply: Reply) -> Any:
        """Read what an operation returns from a reply."""
        binding = self.service._binding
        return binding.process_reply(self, binding.get(operation), answered(reply))


def reliable(client: zeep.Client, source: RMSource, timeout: float | None = 30.0) -> zeep.Client:
    """Have a client that is there already send by ``source``. Raises ``ConfigurationError`` for one of asyncio."""
    if isinstance(client, zeep.AsyncClient):
        raise ConfigurationError(
            "A zeep.AsyncClient awaits its answers: make an AsyncReliableClient(wsdl, store=…) in its place."
        )
    security = client.wsse = Security.of(client.wsse)
    if isinstance(client.wsdl.location, str):
        _name_actions(client, _documents(client.transport, client.wsdl.location))
    source.offers = source.offers or _has_replies(client)
    client.transport = ReliableTransport(source, client.transport, timeout, security and security.signer)
    client.plugins = [*client.plugins, ReliablePlugin(source)]
    _sign_ports(client, source)
    return client


def _has_replies(client: zeep.Client) -> bool:
    """Whether an operation has an output. WCF refuses a sequence that offers none for replies then, and one that does
    where there are none."""
    return any(operation.abstract.output_message is not None for operation in _operations_of(client))


class Security(NamedTuple):
    """In the place of a client's ``wsse``: requests are stored without it, and replies verified by it."""

    signer: Signer

    @classmethod
    def of(cls, wsse: Any) -> Self | None:
        return None if wsse is None else cls(Compose(wsse) if isinstance(wsse, list) else wsse)

    def apply(self, envelope: Any, headers: Any) -> tuple[Any, Any]:
        return envelope, headers

    def verify(self, envelope: Any) -> Any:
        return self.signer.verify(envelope)


def _sign_ports(client: zeep.Client, source: RMSource) -> None:
    """Have what waits for the ports of a client signed, as soon as there is one that can."""
    if client.wsse is not None:
        for port in _ports_of(client):
            sign(source, client.wsse.signer, port.binding_options["address"])


def sign(source: RMSource, signer: Signer, address: str) -> None:
    """Have requests to ``address`` signed. Raises ``ConfigurationError`` where another signer does that: what is in the
    store does not tell whose it is."""
    known = source.signers.get(address)
    if known is None:
        source.sign(address, signer)
    elif known is not signer:
        raise ConfigurationError(
            f"{address}: another wsse signs what this source sends there. Give the clients one wsse, or each a store."
        )


_SAID_BY: Final = {
    "auth": ("headers", 'headers={"Authorization": "…"}'),
    "cookies": ("headers", 'headers={"Cookie": "…"}'),
    "headers": ("headers", 'headers={"…": "…"}'),
    "verify": ("ca", 'ca="authorities.pem"; certificates are always verified'),
    "cert": ("certificate", 'certificate="certificate-and-key.pem"'),
    "proxies": ("proxy", 'proxy="http://proxy:3128"'),
}
"""Settings of a session for its requests → the option of ``RMSource`` that says the same, and how."""


def _refuse_session(session: requests.Session, source: RMSource) -> None:
    plain = requests.Session()
    plain.headers["User-Agent"] = session.headers["User-Agent"]
    # A cookie that the server of the WSDL has set, as load balancers do, has a domain: the program has not set it.
    has_cookies = any(not getattr(cookie, "domain", "") for cookie in session.cookies)
    for name, (option, way) in _SAID_BY.items():
        has = has_cookies if name == "cookies" else getattr(session, name) != getattr(plain, name)
        if has and option not in source.told:
            raise ConfigurationError(
                f"The session of the transport has {name}, and the requests of an RM Source do not leave by it: "
                f"tell RMSource too (ReliableClient: source={{…}}), {way}."
            )


def _resend_of(policy: Asserted) -> Resend:
    """How to send again to a service of this policy: nothing before it may have acknowledged (POL-002)."""
    if policy.retransmission is None and policy.acknowledgement is None:
        return RESEND
    first = max(policy.retransmission or RESEND.ladder[0], policy.acknowledgement or 0)
    own = tuple(first << step if policy.is_exponential else first for step in range(_OWN_WAITS))
    return replace(RESEND, ladder=(*own, *(wait for wait in RESEND.ladder if wait > own[-1])))
