"""Requests as an RM Source writes them, in one combination of versions, and the operations that they call.

The factory writes whatever it is told: ``None`` leaves a part out, a string stands where a number is due, and
``headers`` is put into the Header as it is. The prefixes ``soap``, ``wsa`` and ``wsrm`` are declared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape, unescape
from typing import Any, Final, Self
from uuid import uuid4

from wsrm_mq.versions import MAKE_CONNECTION, WSA_2005, WSRM_1_1, AddressingVersion, RMVersion, SOAPVersion

FRESH: Final = "fresh"
"""The value of ``message_id`` for a new one."""
_PUT: Final = '<p:put xmlns:p="urn:example:orders"><p:text>hello</p:text></p:put>'
_ACTION: Final = re.compile(rb"<wsa:Action>([^<]*)<")
OF_BODY: Final = "of the body"
"""The value of ``action`` for the action of the operation."""


class Operation(str):
    """The Body of a message that calls an operation: ``Operation("{urn:example:orders}put", text="two seats")``.

    A parameter is an element in the namespace of the operation. It is text or a number, a mapping for an element with
    children, a list for one that is repeated, ``None`` for one that is not there. ``action`` is the namespace, a slash
    and the name; a service that reads another one gets it by ``send(…, action="…")``.
    """

    action: str

    def __new__(cls, name: str, /, **parameters: Any) -> Self:
        namespace, _, local = name.rpartition("}")
        namespace = namespace.removeprefix("{")
        made = super().__new__(cls, f'<{local} xmlns="{escape(namespace)}">{_children(parameters)}</{local}>')
        made.action = f"{namespace}/{local}"
        return made


def _children(parameters: Mapping[str, Any]) -> str:
    repeated = ((name, value if isinstance(value, list) else [value]) for name, value in parameters.items())
    each = ((name, one) for name, values in repeated for one in values if one is not None)
    return "".join(f"<{name}>{_content(one)}</{name}>" for name, one in each)


def _content(value: Any) -> str:
    if isinstance(value, Mapping):
        return _children(value)
    return escape(str(value).lower() if isinstance(value, bool) else str(value), quote=False)


@dataclass(frozen=True)
class EnvelopeFactory:
    """Writes requests in one combination of versions. Every method answers the bytes of an envelope."""

    rm: RMVersion = WSRM_1_1
    soap: SOAPVersion = SOAPVersion.SOAP_1_2
    addressing: AddressingVersion = WSA_2005
    to: str | None = "http://service.example/orders"

    @property
    def content_type(self) -> str:
        """For the Content-Type field; it names no action."""
        return f"{self.soap.media_type}; charset=utf-8"

    def fields(self, envelope: bytes) -> dict[str, str]:
        """The header fields of a request with an envelope of this factory: SOAP 1.1 has SOAPAction."""
        found = _ACTION.search(envelope)
        if self.soap is not SOAPVersion.SOAP_1_1 or found is None:
            return {"Content-Type": self.content_type}
        return {"Content-Type": self.content_type, "SOAPAction": f'"{unescape(found[1].decode())}"'}

    @property
    def anonymous(self) -> str:
        return self.addressing.anonymous

    @property
    def none(self) -> str:
        """The none address; 2004/08 has none of its own and gets that of 1.0."""
        return self.addressing.none or WSA_2005.none

    def having(self, **changes: Any) -> Self:
        """The same factory with other versions or another ``to``."""
        return replace(self, **changes)

    def create_sequence(
        self,
        *,
        acks_to: str | None = "",
        expires: str | None = None,
        offer: str | None = None,
        offer_endpoint: str | None = "",
        offer_more: str = "",
        message_id: str | None = FRESH,
        reply_to: str | None = "",
        headers: str = "",
        extra: str = "",
    ) -> bytes:
        """``acks_to``, ``offer_endpoint`` and ``reply_to``: an address, XML of an endpoint reference, ``""``
        for anonymous. ``offer`` is the identifier offered, ``offer_more`` more children of Offer, ``extra`` of
        CreateSequence."""
        parts = []
        if acks_to is not None:
            parts.append(f"<wsrm:AcksTo>{self.endpoint(acks_to)}</wsrm:AcksTo>")
        if expires is not None:
            parts.append(f"<wsrm:Expires>{expires}</wsrm:Expires>")
        if offer is not None:
            parts.append(f"<wsrm:Offer><wsrm:Identifier>{offer}</wsrm:Identifier>")
            if offer_endpoint is not None and self.rm.has_incomplete_behavior:
                parts.append(f"<wsrm:Endpoint>{self.endpoint(offer_endpoint)}</wsrm:Endpoint>")
            parts.append(f"{offer_more}</wsrm:Offer>")
        body = f"<wsrm:CreateSequence>{''.join(parts)}{extra}</wsrm:CreateSequence>"
        return self.envelope(
            self.rm.action("CreateSequence"), body, message_id=message_id, reply_to=reply_to, headers=headers
        )

    def message(
        self,
        identifier: str | None,
        number: int | str | None,
        body: str = _PUT,
        *,
        action: str | None = OF_BODY,
        last: bool | str = False,
        ack_requested: bool = False,
        must_understand: bool = True,
        message_id: str | None = FRESH,
        reply_to: str | None = "none",
        headers: str = "",
    ) -> bytes:
        """A message of a sequence. ``body`` is an ``Operation``, or XML. ``last`` is the 1.0 marker; as a string, its
        content.

        ``reply_to`` is an address, ``"none"`` for one-way, ``""`` for anonymous.
        """
        if action == OF_BODY:
            action = body.action if isinstance(body, Operation) else "urn:example:orders/put"
        sequence = self.sequence_header(identifier, number, last=last, must_understand=must_understand)
        if ack_requested:
            sequence += self.ack_requested_header(identifier)
        return self.envelope(action, body, message_id=message_id, reply_to=reply_to, headers=sequence + headers)

    def last_message(self, identifier: str, number: int, **options: Any) -> bytes:
        """The empty message of its own that ends a 1.0 sequence."""
        return self.message(identifier, number, "", action=self.rm.action("LastMessage"), last=True, **options)

    def ack_requested(self, *identifiers: str, **options: Any) -> bytes:
        """A stand-alone request for an acknowledgement."""
        blocks = "".join(self.ack_requested_header(identifier) for identifier in identifiers)
        options = {"reply_to": "none", **options, "headers": blocks + options.get("headers", "")}
        return self.envelope(self.rm.action("AckRequested"), "", **options)

    def acknowledgement(self, identifier: str, *ranges: tuple[int, int], **options: Any) -> bytes:
        """A stand-alone acknowledgement, as ``acknowledgement_header`` writes it."""
        said = {name: options.pop(name) for name in ("nacks", "final") if name in options}
        block = self.acknowledgement_header(identifier, *ranges, **said)
        options.setdefault("reply_to", "none")
        return self.envelope(self.rm.action("SequenceAcknowledgement"), "", headers=block, **options)

    def close(self, identifier: str | None, last_number: int | str | None = None, **options: Any) -> bytes:
        return self._ending("CloseSequence", identifier, last_number, **options)

    def terminate(self, identifier: str | None, last_number: int | str | None = None, **options: Any) -> bytes:
        return self._ending("TerminateSequence", identifier, last_number, **options)

    def make_connection(self, *addresses: str, selections: str = "", **options: Any) -> bytes:
        """A request for a message to one of ``addresses``; the protocol allows one. ``selections``: XML of further
        elements of the request."""
        children = "".join(f"<wsmc:Address>{address}</wsmc:Address>" for address in addresses) + selections
        body = f'<wsmc:MakeConnection xmlns:wsmc="{MAKE_CONNECTION.namespace}">{children}</wsmc:MakeConnection>'
        return self.envelope(MAKE_CONNECTION.action, body, **options)

    def _ending(self, local: str, identifier: str | None, last_number: int | str | None, **options: Any) -> bytes:
        children = "" if identifier is None else f"<wsrm:Identifier>{identifier}</wsrm:Identifier>"
        if last_number is not None:
            children += f"<wsrm:LastMsgNumber>{last_number}</wsrm:LastMsgNumber>"
        options.setdefault("reply_to", "")
        return self.envelope(self.rm.action(local), f"<wsrm:{local}>{children}</wsrm:{local}>", **options)

    def envelope(
        self,
        action: str | None,
        body: str = _PUT,
        *,
        message_id: str | None = FRESH,
        reply_to: str | None = None,
        headers: str = "",
        to: str | None = "",
        encoding: str = "utf-8",
    ) -> bytes:
        """Any message. ``to``: ``""`` is the factory's. An ``encoding`` other than UTF-8 is declared."""
        to = self.to if to == "" else to
        addressing = [
            f"<wsa:{local}>{value}</wsa:{local}>"
            for local, value in (
                ("Action", action),
                ("MessageID", uuid4().urn if message_id == FRESH else message_id),
                ("To", to),
                ("ReplyTo", None if reply_to is None else self.endpoint(reply_to)),
            )
            if value is not None
        ]
        declaration = "" if encoding == "utf-8" else f'<?xml version="1.0" encoding="{encoding}"?>'
        return (
            f'{declaration}<soap:Envelope xmlns:soap="{self.soap.namespace}"'
            f' xmlns:wsa="{self.addressing.namespace}" xmlns:wsrm="{self.rm.namespace}">'
            f"<soap:Header>{''.join(addressing)}{headers}</soap:Header>"
            f"<soap:Body>{body}</soap:Body></soap:Envelope>"
        ).encode(encoding)

    def sequence_header(
        self,
        identifier: str | None,
        number: int | str | None,
        *,
        last: bool | str = False,
        must_understand: bool = True,
    ) -> str:
        children = "" if identifier is None else f"<wsrm:Identifier>{identifier}</wsrm:Identifier>"
        if number is not None:
            children += f"<wsrm:MessageNumber>{number}</wsrm:MessageNumber>"
        if last is not False:
            children += f"<wsrm:LastMessage>{'' if last is True else last}</wsrm:LastMessage>"
        mandatory = ' soap:mustUnderstand="1"' if must_understand else ""
        return f"<wsrm:Sequence{mandatory}>{children}</wsrm:Sequence>"

    def ack_requested_header(self, identifier: str | None) -> str:
        child = "" if identifier is None else f"<wsrm:Identifier>{identifier}</wsrm:Identifier>"
        return f"<wsrm:AckRequested>{child}</wsrm:AckRequested>"

    def acknowledgement_header(
        self, identifier: str, *ranges: tuple[int, int], nacks: tuple[int, ...] = (), final: bool = False
    ) -> str:
        """A SequenceAcknowledgement for ``headers``; of nothing without ``ranges`` and ``nacks``."""
        said = "".join(f'<wsrm:AcknowledgementRange Lower="{low}" Upper="{high}"/>' for low, high in ranges)
        said += "".join(f"<wsrm:Nack>{number}</wsrm:Nack>" for number in nacks)
        said = (said or "<wsrm:None/>") + "<wsrm:Final/>" * final
        return (
            f"<wsrm:SequenceAcknowledgement><wsrm:Identifier>{identifier}</wsrm:Identifier>{said}"
            "</wsrm:SequenceAcknowledgement>"
        )

    def endpoint(self, address: str) -> str:
        """The content of an endpoint reference; text that begins with a tag is taken as it is."""
        if address.startswith("<"):
            return address
        address = {"": self.anonymous, "none": self.none}.get(address, address)
        return f"<wsa:Address>{address}</wsa:Address>"
