"""A store that has a little of everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.queue.build import Instance, sender
from wsrm_mq.queue.arrival import Body, Receipt
from wsrm_mq.queue.outbound import acknowledged_with
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.store.sqlite import schema
from wsrm_mq.testing import EnvelopeFactory, ManualClock

WSSE = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd"
SECURITY = f'<o:Security xmlns:o="{WSSE}"><o:BinarySecurityToken>MIIsecret</o:BinarySecurityToken></o:Security>'
SPEAK = EnvelopeFactory()
REQUEST = {
    "REQUEST_METHOD": "POST",
    "PATH_INFO": "/orders",
    "CONTENT_TYPE": SPEAK.content_type,
    "HTTP_SOAPACTION": '"urn:put"',
    "HTTP_USER_AGENT": "CXF",
    "REMOTE_ADDR": "192.0.2.1",
}
ODD = 'a "quoted", line\r\nand another: \u20ac \u2028 \\ \U0001f600'
"""Text that a format could trip over."""


class Filled:
    """Sequence ``first`` got 1, 2, 3 and 6; 1 was delivered and answered, in the offered
    sequence, and acknowledged, 2 failed; ``second`` got 1, signed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock(1_767_225_600_123)
        self.instance = one = Instance(path, self.clock, "one")
        self.first = one.create(offer="urn:example:offered").terms.identifier
        self.second = one.create().terms.identifier
        self.plain = SPEAK.message(self.first, 1, f"<put>{ODD}</put>".replace("\r\n", " "), message_id="urn:m")
        self.signed = SPEAK.message(self.second, 1, "<put/>", headers=SECURITY, message_id="urn:m")
        environ = json.dumps(REQUEST)
        for number in (1, 2, 3, 6):
            one.take(self.first, number, body=Body(self.plain), environ=environ, wants_reply=number == 1, action=ODD)
        one.take(self.second, 1, body=Body(self.signed), environ=environ)
        record = one.record(self.first)
        claim = Claim(record.id, record.fence)
        reply = ServiceReply(
            "200 OK", (("Content-Type", "text/xml"), ("Set-Cookie", "id=secret")), b"<ok/>", (0, "utf-8")
        )
        one.settle(claim, 1, reply=reply)
        said = (SequenceAcknowledgement("urn:example:offered", ((1, 1),)),)
        one.run(lambda tx: acknowledged_with(tx, lambda _tx: Receipt(), sender(), said))
        self.clock.advance(60_000)
        one.fail(claim, 2, QueuePolicy(retry=(60_000,)), f"OSError: {ODD}")

    def deliver(self, *numbers: int) -> None:
        """Messages of the first sequence."""
        for number in numbers:
            record = self.instance.record(self.first)
            claim = self.instance.claim(record.id) or Claim(record.id, record.fence)
            self.instance.settle(claim, number)

    def take(self, *numbers: int) -> None:
        """More messages of the first sequence."""
        for number in numbers:
            self.instance.take(self.first, number, body=Body(self.plain), environ=json.dumps(REQUEST))


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Filled]:
    path = tmp_path / "wsrm.db"
    schema.ensure(path)
    filled = Filled(path)
    yield filled
    filled.instance.close()
