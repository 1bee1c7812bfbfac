"""A host that hangs is tried by one thread at a time, and what goes to others is not kept by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from wsrm_mq.delivery.hanging import GIVEN_UP_SECONDS, KNOWN, LATE, LATE_SECONDS, STRANGERS, Patient
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

    def post(self, url: str, _headers: Mapping[str, str], _body: bytes, _who: object = None) -> Answer:
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

    def meanwhile(url: str, headers: Mapping[str, str], body: bytes, _who: object = None) -> Answer:
        with pytest.raises(NotAnswered, match="left alone") as refused:
            patient(BESIDE, {}, b"")
        met.append(str(refused.value))
        return real(url, headers, body)

    patient._post = meanwhile
    with pytest.raises(NotAnswered, match="timed out"):
        patient(SLOW, {}, b"")
    assert len(met) == 1


def test_two_threads_that_meet_a_host_at_once_are_one_try() -> None:
    meet, let_go = threading.Barrier(2), threading.Event()
    asked: list[str] = []

    def knows(_origin: str) -> bool:
        meet.wait(10)  # neither has found it yet
        return False

    def post(url: str, _headers: Mapping[str, str], _body: bytes, _who: object = None) -> Answer:
        asked.append(url)
        let_go.wait(2)
        return TAKEN

    patient = Patient(post, knows=knows)

    def send() -> None:
        with suppress(LeftAlone):
            patient(SLOW, {}, b"")
        let_go.set()

    both = [threading.Thread(target=send) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert asked == [SLOW]


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

    def meanwhile(url: str, headers: Mapping[str, str], body: bytes, _who: object = None) -> Answer:
        """Others come while the first one is under way: each is asked to wait for as long as that has taken."""
        for seconds in (0.0, 0.01, 3.0):
            network.now += seconds
            waits.append(left_alone(patient, BESIDE))
        return real(url, headers, body)

    patient._post = meanwhile
    assert patient(SLOW, {}, b"") is TAKEN
    assert waits == [0.05, 0.05, pytest.approx(3.01)]

    def at_once(url: str, headers: Mapping[str, str], body: bytes, _who: object = None) -> Answer:
        if url == SLOW:
            assert patient(BESIDE, {}, b"") is TAKEN, "it has answered: any number of threads"
        return real(url, headers, body)

    patient._post = at_once
    assert patient(SLOW, {}, b"") is TAKEN


def under_way(
    patient: Patient,
    urls: list[str],
    who: str | None = None,
    waited: float = 0.0,
    then: Callable[[], None] = lambda: None,
) -> list[str]:
    """Which of these are posted to at the same time, none of them answering meanwhile; ``then``, and each does. Without
    ``who`` each comes from a sender of its own."""
    met: list[str] = []
    real = patient._post

    def meanwhile(url: str, _headers: Mapping[str, str], _body: bytes, _who: object = None) -> Answer:
        met.append(url)
        go_on()
        return TAKEN

    def go_on() -> None:
        while urls:
            url = urls.pop(0)
            with suppress(LeftAlone):
                patient(url, {}, b"", who or f"of {len(urls)}", waited)
                return
        then()

    patient._post = meanwhile
    go_on()
    patient._post = real
    return met


def hosts(count: int) -> list[str]:
    return [f"http://{number}.example/" for number in range(count)]


@pytest.mark.spec("SEC-018", versions="all")
def test_no_number_of_strangers_takes_a_thread_from_who_has_answered(network: Network, patient: Patient) -> None:
    """Nor makes that forgotten."""
    assert patient(OTHER, {}, b"") is TAKEN
    assert len(under_way(patient, [*hosts(200), OTHER], "stranger")) == STRANGERS // 2 + 1
    network.takes = dict.fromkeys(hosts(5_000), 99.0)
    for url in network.takes:
        with pytest.raises(NotAnswered):
            patient(url, {}, b"", "stranger")
    assert patient.left_alone(OTHER, "stranger", beside=KNOWN // 2) is None


@pytest.mark.spec("SEC-018", versions="all")
def test_the_hosts_of_one_sender_leave_room_to_those_of_the_next(patient: Patient) -> None:
    def others() -> None:
        assert patient.left_alone("http://one-more.example/", "a") is not None
        assert patient.left_alone("http://one-more.example/", "b") is None

    assert len(under_way(patient, hosts(1_500), "a", then=others)) == STRANGERS // 2


@pytest.mark.spec("SEC-018", versions="all")
def test_the_ports_of_one_host_that_has_not_answered_are_counted_together(patient: Patient) -> None:
    def others() -> None:
        assert patient.left_alone("http://slow.example:3000/", "any") is not None
        assert patient.left_alone("http://elsewhere.example/", "any") is None

    ports = [f"http://slow.example:{port}/" for port in range(1_024, 2_000)]
    assert len(under_way(patient, ports, then=others)) == STRANGERS // 2


@pytest.mark.spec("SEC-018", versions="all")
def test_a_host_that_begins_to_hang_leaves_others_room(patient: Patient) -> None:
    assert patient(SLOW, {}, b"") is TAKEN
    assert patient(OTHER, {}, b"") is TAKEN
    assert under_way(patient, [*[SLOW] * 100, OTHER]) == [*[SLOW] * (KNOWN // 2), OTHER]


def test_what_has_waited_long_has_a_small_part_of_what_strangers_have(patient: Patient) -> None:
    assert len(under_way(patient, hosts(200), "a", LATE_SECONDS + 1)) == LATE // 2


def test_what_was_known_before_the_process_began_is_no_stranger(network: Network) -> None:
    patient = Patient(network.post, lambda: network.now, lambda origin: origin == "http://slow.example")
    network.takes = {SLOW: 99}
    assert under_way(patient, [SLOW, BESIDE]) == [SLOW, BESIDE]
    with pytest.raises(NotAnswered, match="timed out"):
        patient(SLOW, {}, b"")
    assert left_alone(patient, BESIDE) == 30


def test_a_host_that_has_never_answered_is_tried_later_each_time_and_what_waits_for_it_given_up(
    network: Network, patient: Patient
) -> None:
    network.takes = {SLOW: 99}
    waits = []
    for _ in range(10):
        with pytest.raises(NotAnswered, match="timed out"):
            patient(SLOW, {}, b"")
        waits.append(left_alone(patient, BESIDE))
        network.now += waits[-1]
    assert waits == [30, 60, 120, 240, 480, 960, 1_920, *[3_600] * 3]
    with pytest.raises(NotAnswered, match="timed out"):
        patient(SLOW, {}, b"")
    waiting, over = (patient.left_alone(BESIDE, None, seconds) for seconds in (60.0, GIVEN_UP_SECONDS + 1))
    assert waiting is not None
    assert over is not None
    assert (waiting.is_given_up, over.is_given_up) == (False, True)
    network.takes = {}
    network.now += 3_600
    assert patient(SLOW, {}, b"") is TAKEN
    assert patient.left_alone(SLOW, None, GIVEN_UP_SECONDS + 1) is None


def test_who_waits_for_room_is_told_that_there_is_some(network: Network) -> None:
    told: list[float] = []
    patient = Patient(network.post, lambda: network.now, on_room=lambda: told.append(network.now))
    assert patient(SLOW, {}, b"") is TAKEN
    assert told == []
    assert under_way(patient, ["http://new.example/a", "http://new.example/b"]) == ["http://new.example/a"]
    assert len(told) == 1


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

    def meanwhile(url: str, headers: Mapping[str, str], body: bytes, _who: object = None) -> Answer:
        assert left_alone(patient, BESIDE) == 0.05, "it hangs no more: the wait is short again"
        return real(url, headers, body)

    patient._post = meanwhile
    with pytest.raises(NotAnswered, match="refused"):
        patient(SLOW, {}, b"")


def test_what_may_not_be_sent_there_says_nothing_of_a_host(network: Network, patient: Patient) -> None:
    def forbidden(url: str, _headers: Mapping[str, str], _body: bytes, _who: object = None) -> Answer:
        raise NotAllowed(f"{url}: leads inside")

    patient._post = forbidden
    for _ in range(2):
        with pytest.raises(NotAllowed):
            patient(SLOW, {}, b"")
    patient._post = network.post
    assert patient(SLOW, {}, b"") is TAKEN
