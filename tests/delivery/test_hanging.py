"""A host that hangs is tried by one thread at a time, and what goes to others is not kept by it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from wsrm_mq.delivery.hanging import STRANGERS, Patient
from wsrm_mq.errors import LeftAlone, NotAllowed, NotAnswered
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
        with pytest.raises(LeftAlone, match=rf"^{url}: its host is left alone for 30 s: Read timed out\.$") as left:
            patient(url, {}, b"")
        assert left.value.seconds == 30
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


def left_alone(patient: Patient, url: str) -> float:
    """Seconds for which nothing is sent there."""
    with pytest.raises(LeftAlone) as left:
        patient(url, {}, b"")
    return left.value.seconds


def test_a_host_of_which_nothing_is_known_gets_one_at_a_time_until_it_answered_once(
    network: Network, patient: Patient
) -> None:
    waits: list[float] = []
    real = network.post

    def meanwhile(url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Others come while the first one is under way: each is asked to wait for as long as that has taken."""
        for seconds in (0.0, 0.01, 3.0):
            network.now += seconds
            waits.append(left_alone(patient, BESIDE))
        return real(url, headers, body)

    patient._post = meanwhile
    assert patient(SLOW, {}, b"") is TAKEN
    assert waits == [0.05, 0.05, pytest.approx(3.01)]

    def at_once(url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if url == SLOW:
            assert patient(BESIDE, {}, b"") is TAKEN, "it has answered: any number of threads"
        return real(url, headers, body)

    patient._post = at_once
    assert patient(SLOW, {}, b"") is TAKEN


@pytest.mark.spec("SEC-018", versions="all")
def test_hosts_that_have_not_answered_have_few_threads_among_them_and_those_that_have_are_not_kept(
    network: Network, patient: Patient
) -> None:
    """Whoever may name hosts can name any number that hang."""
    assert patient(OTHER, {}, b"") is TAKEN
    *strangers, one_more = [f"http://{number}.example/" for number in range(STRANGERS + 1)]
    waits: list[float] = []
    real = network.post

    def meanwhile(url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The next stranger is asked while this one is under way."""
        if url in strangers:
            network.now += 0.5
            assert patient(OTHER, {}, b"") is TAKEN
            if url == strangers[-1]:
                waits.append(left_alone(patient, one_more))
            else:
                assert patient(strangers[strangers.index(url) + 1], {}, b"") is TAKEN
        return real(url, headers, body)

    patient._post = meanwhile
    assert patient(strangers[0], {}, b"") is TAKEN
    assert waits == [pytest.approx(0.51)], "as long as the newest of them has been under way"
    assert patient(one_more, {}, b"") is TAKEN


def test_a_host_is_the_same_however_its_name_is_spelled(network: Network, patient: Patient) -> None:
    network.takes = {SLOW: 99}
    with pytest.raises(NotAnswered, match="timed out"):
        patient(SLOW, {}, b"")
    assert left_alone(patient, "http://SLOW.Example/c") == 30


def test_a_refusal_is_no_answer_so_a_host_that_hung_and_refuses_is_still_tried_by_one(
    network: Network, patient: Patient
) -> None:
    network.takes = {SLOW: 99}
    with pytest.raises(NotAnswered, match="timed out"):
        patient(SLOW, {}, b"")
    network.takes, network.refuses = {}, {SLOW}
    network.now += 30
    with pytest.raises(NotAnswered, match="refused"):
        patient(SLOW, {}, b"")
    real = network.post

    def meanwhile(url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        assert left_alone(patient, BESIDE) == 0.05, "it hangs no more: the wait is short again"
        return real(url, headers, body)

    patient._post = meanwhile
    with pytest.raises(NotAnswered, match="refused"):
        patient(SLOW, {}, b"")


def test_what_may_not_be_sent_there_says_nothing_of_a_host(network: Network, patient: Patient) -> None:
    def forbidden(url: str, _headers: Mapping[str, str], _body: bytes) -> Answer:
        raise NotAllowed(f"{url}: leads inside")

    patient._post = forbidden
    for _ in range(2):
        with pytest.raises(NotAllowed):
            patient(SLOW, {}, b"")
    patient._post = network.post
    assert patient(SLOW, {}, b"") is TAKEN
