"""A host that hangs is tried by one thread at a time, and what goes to others is not kept by it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from wsrm_mq.delivery.hanging import Patient
from wsrm_mq.errors import NotAnswered
from wsrm_mq.outbound.posting import Answer

TAKEN = Answer(202, "Accepted", [], b"")


class Network:
    """Hosts that take as many seconds as ``takes`` says: more than ``PATIENCE`` is no answer."""

    PATIENCE = 30.0

    def __init__(self) -> None:
        self.now = 0.0
        self.takes: dict[str, float] = {}
        self.refuses: set[str] = set()
        self.asked: list[str] = []

    def post(self, url: str, _headers: Mapping[str, str], _body: bytes) -> Answer:
        self.asked.append(url)
        seconds = self.takes.get(url, 0.01)
        self.now += min(seconds, self.PATIENCE)
        if seconds > self.PATIENCE:
            raise NotAnswered(f"{url}: Read timed out.")
        if url in self.refuses:
            raise NotAnswered(f"{url}: Connection refused")
        return TAKEN


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def patient(network: Network) -> Patient:
    return Patient(network.post, lambda: network.now)


SLOW, BESIDE, OTHER = "http://slow.example/a", "http://slow.example/b", "http://other.example/"


def test_a_host_that_hung_is_left_alone_for_as_long_and_others_are_not(network: Network, patient: Patient) -> None:
    network.takes = {SLOW: 99}
    with pytest.raises(NotAnswered, match=r"^http://slow.example/a: Read timed out\.$"):
        patient(SLOW, {}, b"")
    for url in (SLOW, BESIDE):
        with pytest.raises(NotAnswered, match=rf"^{url}: its host hung a moment ago.*: Read timed out\.$"):
            patient(url, {}, b"")
    assert patient(OTHER, {}, b"") is TAKEN
    assert network.asked == [SLOW, OTHER]
    network.now += 30
    assert patient(BESIDE, {}, b"") is TAKEN
    network.takes = {}
    assert patient(SLOW, {}, b"") is TAKEN


def test_it_is_tried_by_one_at_a_time_until_it_answers(network: Network, patient: Patient) -> None:
    network.takes = {SLOW: 99}
    with pytest.raises(NotAnswered):
        patient(SLOW, {}, b"")
    network.now += 30
    met: list[str] = []
    real = network.post

    def meanwhile(url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        with pytest.raises(NotAnswered, match="left alone") as refused:
            patient(BESIDE, {}, b"")
        met.append(str(refused.value))
        return real(url, headers, body)

    patient._post = meanwhile
    with pytest.raises(NotAnswered, match="timed out"):
        patient(SLOW, {}, b"")
    assert len(met) == 1


def test_a_host_that_refuses_at_once_is_tried_each_time(network: Network, patient: Patient) -> None:
    network.refuses = {SLOW}
    for _ in range(3):
        with pytest.raises(NotAnswered, match="refused"):
            patient(SLOW, {}, b"")
    assert network.asked == [SLOW] * 3
