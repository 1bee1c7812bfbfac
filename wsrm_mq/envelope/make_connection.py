"""MakeConnection as it arrives: which messages it asks for (WS-MakeConnection 1.1 §3.2)."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from wsrm_mq.envelope.lexical import simple_text
from wsrm_mq.envelope.outline import NAME_SEPARATOR, split_name
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.sequence.elements import MakeConnection
from wsrm_mq.sequence.faults import MalformedMessage
from wsrm_mq.versions import MAKE_CONNECTION_NAMESPACE

_ADDRESS: Final = f"{MAKE_CONNECTION_NAMESPACE}{NAME_SEPARATOR}Address"
_MOST_NAMED: Final = 16
"""Selections that a fault names: the sender chooses how many there are."""


def read_make_connection(element: Element) -> MakeConnection:
    """An Address without text counts as none; whatever else is there selects messages by what is not known here.
    Raises ``EnvelopeError`` for more than one Address."""
    addresses = [simple_text(child) for child in element if child.tag == _ADDRESS]
    if len(addresses) > 1:
        raise EnvelopeError(MalformedMessage("MakeConnection has more than one Address."))
    others = dict.fromkeys(split_name(child.tag) for child in element if child.tag != _ADDRESS)
    return MakeConnection(addresses[0] or None if addresses else None, tuple(others)[:_MOST_NAMED])
