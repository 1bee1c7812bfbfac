"""A message as it goes from node to node: a SOAP envelope with one header block of ours, and the body byte for byte.

::

    <r:Route xmlns:r="urn:wsrm-mq:route:1" target="orders" node="east" incarnation="5f1c" position="17" maxHops="15"
        priority="4" type="Order" messageId="o-1" contentType="text/plain" client="web" group="g" asks="3"
        reportTo="admin" timeLeft="59873" reachWithin="1000" delay="0" express="1">
      <r:Via>east</r:Via>
      <r:Properties>{"region": "eu"}</r:Properties>
    </r:Route>
    …
    <soap:Body><r:Content xmlns:r="urn:wsrm-mq:route:1">SGVsbG8=</r:Content></soap:Body>

``node``, ``incarnation`` and ``position`` say where it was put; each ``Via`` names a node that has had it. Times are in
milliseconds, and are what is left when it leaves: the next node counts from when it has received it, so clocks may
differ. An attribute without a value is left out. The content is in base64.
"""

from __future__ import annotations

import json
from binascii import Error, a2b_base64, b2a_base64
from typing import Any, Final, NamedTuple
from xml.parsers import expat

from wsrm_mq.envelope.lexical import escape, escape_attribute
from wsrm_mq.envelope.render import addressing_headers, envelope
from wsrm_mq.errors import BadRequest
from wsrm_mq.node.payload import LONGEST
from wsrm_mq.queue.adding import MAX_HOPS, Header, Put
from wsrm_mq.queue.hopping import Origin, message_id_of, via_of
from wsrm_mq.queue.reporting import Asks
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.store import routing
from wsrm_mq.store.port import Database
from wsrm_mq.store.words import DEFAULT_PRIORITY
from wsrm_mq.versions import ADDRESSING_OF_LABEL, SOAP_OF_LABEL

NAMESPACE: Final = "urn:wsrm-mq:route:1"
ACTION: Final = "urn:wsrm-mq:route:put"
_SOAP, _ADDRESSING = SOAP_OF_LABEL["1.2"], ADDRESSING_OF_LABEL["1.0"]
CONTENT_TYPE: Final = f'{_SOAP.media_type}; charset=utf-8; action="{ACTION}"'
_NUMBERS: Final = ("position", "maxHops", "priority", "asks", "timeLeft", "reachWithin", "delay")
_TEXTS: Final = ("type", "messageId", "contentType", "group", "reportTo")


class Carried(NamedTuple):
    """A message that has come from another node. Its times are of this node's clock."""

    target: str
    origin: Origin
    one: Put
    is_express: bool


def leaving(db: Database, position: int, to: str, type_: str | None, message_id: str | None, now: int) -> Leaving:
    """The facts that go with the message at ``position``, whose envelope is written from them."""
    row = db.execute(routing.LEAVING, {"key": position}).fetchone()
    target, node, incarnation, number, via, max_hops, priority, group, asks, deliver_at, expires, reach, *header = row
    properties, content_type, client, report_to, queue = header
    said = {
        "target": target,
        "node": node,
        "incarnation": incarnation,
        "position": number,
        "maxHops": max_hops,
        "priority": priority,
        "type": type_ or None,
        "messageId": message_id or None,
        "contentType": content_type,
        "client": client,
        "group": group,
        "asks": asks & ~Asks.RECORD or None,
        "reportTo": report_to,
        "timeLeft": _left(expires, now),
        "reachWithin": _left(reach, now),
        "delay": _left(deliver_at, now),
        "express": 1 if "#" in queue else None,
    }
    return Leaving(to, said, via_of(via), properties)


class Leaving(NamedTuple):
    """``to``: the address of the next node; ``said``: the attributes of the header block."""

    to: str
    said: dict[str, Any]
    via: tuple[str, ...]
    properties: str | None

    @property
    def message_id(self) -> str:
        return message_id_of(Origin(*(self.said[name] for name in ("node", "incarnation", "position"))))

    def envelope(self, body: bytes) -> bytes:
        said = "".join(
            f' {name}="{escape_attribute(str(value))}"' for name, value in self.said.items() if value is not None
        )
        parts = "".join(f"<r:Via>{escape(name)}</r:Via>" for name in self.via)
        if self.properties is not None:
            parts += f"<r:Properties>{escape(self.properties)}</r:Properties>"
        headers = addressing_headers(_ADDRESSING, ACTION, None, EndpointReference(self.to), self.message_id)
        block = f'<r:Route xmlns:r="{NAMESPACE}"{said}>{parts}</r:Route>'
        content = b2a_base64(body, newline=False).decode()
        return envelope(_SOAP, headers + block, f'<r:Content xmlns:r="{NAMESPACE}">{content}</r:Content>')


def _left(end: int | None, now: int) -> int | None:
    return None if end is None else max(0, end - now)


class _Pass:
    """Collects the header block and the content."""

    def __init__(self) -> None:
        self.said: dict[str, str] | None = None
        self.texts: dict[str, list[str]] = {}
        self._text: list[str] | None = None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.removeprefix(f"{NAMESPACE} ")
        if local == "Route":
            self.said = attributes
        self._text = None if local == name else []

    def text(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def end(self, name: str) -> None:
        if self._text is not None:
            self.texts.setdefault(name.removeprefix(f"{NAMESPACE} "), []).append("".join(self._text))
            self._text = None


def carried(envelope: bytes, received_at: int) -> Carried:
    """Read the message that ``envelope`` brings. Raises ``BadRequest`` where it brings none."""
    found = _Pass()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = found.start, found.end
    parser.CharacterDataHandler = found.text
    try:
        parser.Parse(envelope, True)
        if found.said is None:
            raise BadRequest(f"It has no header block Route of {NAMESPACE}: this is the way of messages between nodes.")
        body = a2b_base64(found.texts["Content"][0], strict_mode=True)
        return _carried(found.said, found.texts, body, received_at)
    except (expat.ExpatError, Error, KeyError, ValueError) as error:
        raise BadRequest(f"Its header block or its content cannot be read: {type(error).__name__}: {error}.") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _carried(said: dict[str, str], texts: dict[str, list[str]], body: bytes, received_at: int) -> Carried:
    number = {name: int(said[name]) for name in _NUMBERS if name in said}
    if any(value < 0 or value >= 2**53 for value in number.values()):
        raise ValueError("a number is out of range")

    def at(name: str) -> int | None:
        return received_at + number[name] if name in number else None

    origin = Origin(said["node"], said["incarnation"], number["position"], tuple(texts.get("Via", ())))
    (properties,) = texts.get("Properties", (None,))
    if properties is not None and not isinstance(json.loads(properties, parse_constant=_refuse), dict):
        raise ValueError("Properties are no JSON object")
    if any(len(said.get(name, "")) > LONGEST for name in _TEXTS):
        raise ValueError(f"one of {', '.join(_TEXTS)} has more than {LONGEST} characters")
    if said.get("messageId", "").startswith("#"):
        raise ValueError("messageId begins with #")
    header = Header(None, properties, said.get("contentType"), at("timeLeft"), said.get("client"), said.get("reportTo"))
    one = Put(
        body,
        said.get("type"),
        said.get("messageId"),
        priority=min(9, number.get("priority", DEFAULT_PRIORITY)),
        deliver_at=at("delay"),
        group=said.get("group"),
        header=header,
        asks=number.get("asks", 0) & 7,
        reach_by=at("reachWithin"),
        max_hops=number.get("maxHops", MAX_HOPS),
    )
    return Carried(said["target"], origin, one, "express" in said)
