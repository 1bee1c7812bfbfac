"""Which messages MakeConnection asks for."""

from __future__ import annotations

import pytest

from tests.envelope.conftest import read, refusal
from wsrm_mq.sequence.elements import MakeConnection
from wsrm_mq.sequence.faults import MalformedMessage
from wsrm_mq.testing import EnvelopeFactory
from wsrm_mq.versions import MAKE_CONNECTION

PLAIN = EnvelopeFactory()
ADDRESS = f"{MAKE_CONNECTION.anonymous}one"


def poll(selection: str) -> bytes:
    body = f'<m:MakeConnection xmlns:m="{MAKE_CONNECTION.namespace}">{selection}</m:MakeConnection>'
    return PLAIN.envelope(MAKE_CONNECTION.action, body)


@pytest.mark.parametrize(
    ("selection", "asked"),
    [
        (f"<m:Address> {ADDRESS}\n</m:Address>", MakeConnection(ADDRESS)),
        ("<m:Address/>", MakeConnection(None)),
        ("", MakeConnection(None)),
        (
            f'<m:Address>{ADDRESS}</m:Address><q:x xmlns:q="urn:q"/><q:x xmlns:q="urn:q"/><y xmlns=""/>',
            MakeConnection(ADDRESS, (("urn:q", "x"), ("", "y"))),
        ),
        (f"<wsrm:Identifier>{ADDRESS}</wsrm:Identifier>", MakeConnection(None, ((PLAIN.rm.namespace, "Identifier"),))),
    ],
    ids=["an address", "an empty one", "nothing", "more than it", "a sequence"],
)
def test_it_is_read_with_what_is_not_known_here(selection: str, asked: MakeConnection) -> None:
    assert read(PLAIN, poll(selection)).body == asked


def test_of_what_is_not_known_only_so_much_is_kept() -> None:
    body = read(PLAIN, poll("".join(f'<q:x{n} xmlns:q="urn:q"/>' for n in range(50)))).body
    assert isinstance(body, MakeConnection)
    assert len(body.unsupported) == 16


def test_two_addresses_are_malformed() -> None:
    two = f"<m:Address>{ADDRESS}</m:Address>" * 2
    assert isinstance(refusal(PLAIN, poll(two)).fault, MalformedMessage)
