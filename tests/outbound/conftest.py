from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.support.name_server import NameServer


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    made = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.speaks.set()
