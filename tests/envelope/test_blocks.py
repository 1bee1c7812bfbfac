"""The header blocks of an envelope, for eyes."""

from __future__ import annotations

import pytest

from tests.envelope.test_forms import RELATED, multipart
from wsrm_mq.envelope.rewrite import Block, blocks
from wsrm_mq.testing import EnvelopeFactory

PLAIN = EnvelopeFactory()
NOTE = '<q:note xmlns:q="urn:q"\n  q:a="1">gr\u00fc\u00df\n dich</q:note>'
MESSAGE = PLAIN.envelope("urn:act", headers=NOTE, message_id=None)
FOUND = [
    Block(PLAIN.addressing.namespace, "Action", "<wsa:Action>urn:act</wsa:Action>"),
    Block(PLAIN.addressing.namespace, "To", f"<wsa:To>{PLAIN.to}</wsa:To>"),
    Block("urn:q", "note", '<q:note xmlns:q="urn:q" q:a="1">gr\u00fc\u00df dich</q:note>'),
]


def test_each_block_is_one_line_as_it_was_sent() -> None:
    assert blocks(MESSAGE, PLAIN.content_type) == FOUND
    assert blocks(multipart(MESSAGE), RELATED) == FOUND


def test_an_envelope_that_breaks_off_behind_its_header_has_them_all() -> None:
    assert blocks(MESSAGE.partition(b"<p:put")[0], PLAIN.content_type) == FOUND
    assert blocks(MESSAGE.partition(b"</q:note>")[0], PLAIN.content_type) == FOUND[:2]


@pytest.mark.parametrize("content_type", ["text/xml", "multipart/related", RELATED])
def test_what_cannot_be_read_has_none(content_type: str) -> None:
    assert blocks(b"\x00 no envelope", content_type) == []
