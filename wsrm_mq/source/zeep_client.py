"""zeep over an RM Source: what an operation sends is stored before it leaves, and sent until it is acknowledged.

An operation without an output returns when its request is stored. One with an output waits for its reply; if that is
not there in time, ``Pending`` says under which MessageID it will be.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self

import requests
import zeep
from lxml import etree
from zeep.plugins import Plugin
from zeep.transports import Transport
from zeep.wsdl.utils import etree_to_string, get_or_create_header

from wsrm_mq.envelope.policy import Asserted, asserted
from wsrm_mq.errors import ConfigurationError, NotFound
from wsrm_mq.queue.policy import Resend
from wsrm_mq.source.source import RESEND, Reply, RMSource, Sent
from wsrm_mq.versions import ADDRESSING_VERSIONS

_WANTS_REPLY: Final = "Wsrm-Mq-Wants-Reply"
"""What the plug-in tells the transport, among the headers of HTTP; it is not sent."""
_STAMPED: Final = ("Action", "MessageID", "To", "ReplyTo", "FaultTo", "From")
_OWN_WAITS: Final = 5
"""The first waits between sendings, which a WSDL may state; those behind them are the usual ones."""
Take = Callable[[bytes, str, bool], Any]
"""Takes the envelope of a request, its address, and whether it wants a reply; answers what its operation answers."""
_take: ContextVar[Take | None] = ContextVar("take", default=None)
"""The function that takes the request of this thread's operation, in place of sending it and waiting for its reply."""


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
    """The wsa:Action of an operation, as its WSDL gives it: by itself, as its SOAPAction, or by its name."""
    namespace = operation.binding.port_name.namespace.rstrip("/")
    default = f"{namespace}/{operation.binding.port_name.localname}/{operation.name}"
    return operation.abstract.wsa_action or operation.soapaction or default


class ReliableTransport:
    """A transport of zeep's that posts by ``source``, and does all else as ``inner`` does. ``timeout``: for so many
    seconds a reply is waited for; ``None``: for as long as it takes."""

    def __init__(self, source: RMSource, inner: Transport | None = None, timeout: float | None = 30.0) -> None:
        self._source = source
        self._inner = Transport() if inner is None else inner
        self._timeout = timeout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def post_xml(self, address: str, envelope: Any, headers: Any) -> Any:
        wanted = headers.pop(_WANTS_REPLY, None)
        if wanted is None:
            raise ConfigurationError("A ReliableTransport needs a ReliablePlugin, as the last of the client's plugins.")
        content, wants_reply, take = etree_to_string(envelope), wanted == "yes", _take.get()
        if take is not None:
            raise _Taken(take(content, address, wants_reply))
        return self._exchange(content, address, wants_reply)

    def _exchange(self, content: bytes, to: str, wants_reply: bool) -> Any:
        if not wants_reply:
            self._source.send(content, to=to)
            return response(202, "", b"")
        return answered(self._source.reply(self._source.ask(content, to=to), self._timeout))


def answered(reply: Reply) -> requests.Response:
    """A reply as zeep expects it of HTTP."""
    return response(reply.status, reply.content_type, reply.content)


def response(status: int, content_type: str, content: bytes) -> requests.Response:
    made = requests.Response()
    made.status_code, made._content = status, content
    made.headers["Content-Type"] = content_type
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
        """What the operation returns, or raises; ``None`` once it is acknowledged, where it has no output. Raises
        ``Pending`` after ``timeout`` seconds."""
        if not self._wants_reply:
            return self._client.source.wait(self.sent, timeout)
        return self._client.read(self._operation, self._client.source.reply(self.sent, timeout))


class _Operations:
    """The operations of a client, whose requests ``take`` takes; its first argument is the operation's name."""

    def __init__(self, client: ReliableClient, take: Callable[[str, bytes, str, bool], Any]) -> None:
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
        """``rm`` and ``addressing`` as for ``RMSource``; without ``rm``, the newest that the WSDL announces, else 1.1.
        When requests are sent again is what that says of timing (1.0 alone can), unless ``source`` has a ``resend``.
        ``timeout``: for so many seconds a reply is waited for. ``source``: more options of ``RMSource``; the others are
        zeep's. WS-Security (``wsse``) is refused: what it signs and encrypts would be stored with its secrets."""
        refuse_security(options.get("wsse"))
        inner = Transport() if transport is None else transport
        policy = asserted(inner.load(wsdl))
        timing = {"resend": resend_of(policy)} if rm in (None, policy.rm.label) else {}
        self.source = RMSource(store, rm=rm or policy.rm.label, addressing=addressing, **{**timing, **(source or {})})
        try:
            reliable = self._transport(self.source, inner, timeout)
            egress = [*(plugins or []), ReliablePlugin(self.source)]
            super().__init__(wsdl, transport=reliable, plugins=egress, **options)  # type: ignore[no-untyped-call]
        except BaseException:
            self.source.close()
            raise
        self.source.offers = _has_replies(self)
        self.later = _Operations(self, self._later)
        """Its operations answer a ``Later`` as soon as their requests are stored."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: Any) -> None:
        self.source.close()

    def _later(self, operation: str, content: bytes, to: str, wants_reply: bool) -> Any:
        sent = self.source.ask(content, to=to) if wants_reply else self.source.send(content, to=to)
        return Later(self, operation, sent, wants_reply=wants_reply)

    def enqueue(self, connection: object) -> _Operations:
        """Operations that write their requests by ``connection`` into the program's own database, in its transaction,
        and answer the MessageID: see ``RMSource.enqueue``. ``client.source.relay`` moves them on."""

        def take(_operation: str, content: bytes, to: str, wants_reply: bool) -> str:
            return self.source.enqueue(connection, content, to=to, wants_reply=wants_reply)

        return _Operations(self, take)

    def replies(self, message_id: str) -> Any:
        """What the operation of this MessageID has returned, whichever process has called it; ``None`` where there is
        no reply yet. Raises what it raises, and ``NotFound``."""
        reply, action = self.source.replies(message_id), self.source.action_of(message_id)
        if reply is None:
            return None
        binding = self.service._binding
        for name, operation in binding.all().items():
            if action_of(operation) == action:
                return self.read(name, reply)
        raise NotFound(f"{message_id}: no operation of this WSDL has the action {action}.")

    def read(self, operation: str, reply: Reply) -> Any:
        """What an operation returns for a reply."""
        binding = self.service._binding
        return binding.process_reply(self, binding.get(operation), answered(reply))


def reliable(client: zeep.Client, source: RMSource, timeout: float | None = 30.0) -> zeep.Client:
    """Have a client that is there already send by ``source``."""
    refuse_security(client.wsse)
    source.offers = source.offers or _has_replies(client)
    client.transport = ReliableTransport(source, client.transport, timeout)
    client.plugins = [*client.plugins, ReliablePlugin(source)]
    return client


def _has_replies(client: zeep.Client) -> bool:
    """Whether an operation has an output. WCF refuses a sequence that offers none for replies then, and one that does
    where there are none."""
    operations = (operation for binding in client.wsdl.bindings.values() for operation in binding.all().values())
    return any(operation.abstract.output_message is not None for operation in operations)


def refuse_security(wsse: object) -> None:
    if wsse is not None:
        raise ConfigurationError(
            "wsse: a request that WS-Security has signed or given a password is stored as it is, and sent again as it "
            "was, with an old Timestamp. Have a proxy sign, or send by TLS with certificate=."
        )


def resend_of(policy: Asserted) -> Resend:
    """How to send again to a service of this policy: nothing before it may have acknowledged (POL-002)."""
    usual = RESEND
    if policy.retransmission is None and policy.acknowledgement is None:
        return usual
    first = max(policy.retransmission or usual.ladder[0], policy.acknowledgement or 0)
    own = tuple(first << step if policy.is_exponential else first for step in range(_OWN_WAITS))
    return replace(usual, ladder=(*own, *(wait for wait in usual.ladder if wait > own[-1])))
