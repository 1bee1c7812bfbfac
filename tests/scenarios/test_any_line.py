"""Whatever a line does to a conversation, it ends with what the behavior of its queue promises.

A plan says what becomes of each transmission: it arrives, is lost before or behind the service, comes twice, or comes
later. Meanwhile the service is stopped and started anew, and the sequence is closed. Store and middleware are the real
ones; the clock passes by plan.
"""

from __future__ import annotations

import enum
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from tests.support.examples import examples
from tests.support.in_process import until
from tests.support.stored import Stored, empty_store
from wsrm_mq import WSRMMiddleware
from wsrm_mq.delivery import watch
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.testing import EnvelopeFactory, HTTPAnswer, ManualClock, RMSender, WSGIWire
from wsrm_mq.versions import WSRM_1_0, WSRM_1_1, RMVersion, SOAPVersion

NO_DISCARD, ENTIRE, FOLLOWING = IncompleteSequenceBehavior
_LIFE_MS: Final = 600_000
_LAST: Final = 6
REPLY: Final = '<p:answer xmlns:p="urn:example:orders">{}</p:answer>'


class Fate(enum.Enum):
    ARRIVES = enum.auto()
    COMES_TWICE = enum.auto()
    COMES_LATER = enum.auto()
    REQUEST_LOST = enum.auto()
    ANSWER_LOST = enum.auto()


class Act(enum.Enum):
    ASK = "AckRequested"
    CLOSE = "CloseSequence"
    RESTART = "the service stops and starts"
    CATCH_UP = "what is on its way arrives, the last first"


class End(enum.Enum):
    TERMINATE = enum.auto()
    CLOSE = enum.auto()
    EXPIRE = enum.auto()


@dataclass(frozen=True)
class Plan:
    rm: RMVersion
    behavior: IncompleteSequenceBehavior
    two_way: frozenset[int]
    """The numbers of the requests that have a reply."""
    steps: tuple[tuple[int, Fate] | Act, ...]
    states_last: bool
    end: End

    @property
    def last(self) -> int:
        """The highest number that the source has given, 0 for none."""
        return max((step[0] for step in self.steps if isinstance(step, tuple)), default=0)


SENDS = st.tuples(st.integers(1, _LAST), st.sampled_from(Fate))
STEPS = st.lists(st.one_of(SENDS, SENDS, SENDS, st.sampled_from(Act)), max_size=24).map(tuple)
PLANS = st.builds(
    Plan,
    st.sampled_from([WSRM_1_0, WSRM_1_1]),
    st.sampled_from([NO_DISCARD, ENTIRE, FOLLOWING]),
    st.frozensets(st.integers(1, _LAST)),
    STEPS,
    st.booleans(),
    st.sampled_from(End),
)


class Line:
    """The wire of a plan: ``fate`` is that of the next transmission."""

    def __init__(self, service: Service) -> None:
        self.fate = Fate.ARRIVES
        self.on_its_way: list[tuple[bytes, Mapping[str, str]]] = []
        self._service = service

    def post(self, body: bytes, fields: Mapping[str, str]) -> HTTPAnswer:
        fate, self.fate = self.fate, Fate.ARRIVES
        wire = WSGIWire(self._service.middleware, "/orders")
        if fate is Fate.COMES_LATER:
            self.on_its_way.append((body, fields))
        elif fate is Fate.REQUEST_LOST:
            wire.post_half(body, fields)
        elif fate is Fate.COMES_TWICE:
            wire.post(body, fields)
        if fate in (Fate.COMES_LATER, Fate.REQUEST_LOST):
            raise ConnectionError("nothing comes back")
        answer = wire.post(body, fields)
        if fate is Fate.ANSWER_LOST:
            raise ConnectionError("the line lost the answer")
        return answer

    def post_half(self, body: bytes, fields: Mapping[str, str]) -> None: ...

    def close(self) -> None: ...


class Service:
    """The middleware over an operation that notes each call, and answers each with something else."""

    def __init__(self, directory: Path, plan: Plan, speak: EnvelopeFactory) -> None:
        self.clock = ManualClock()
        self.calls: list[int] = []
        self._path = directory / "store.db"
        self._plan, self._speak = plan, speak
        self._path.touch(0o600)
        self._path.write_bytes(empty_store())
        self.stored = Stored(self._path)
        self.start()

    def start(self) -> None:
        options = {"behavior": self._plan.behavior.value, "hold_wait": 0.0, "clock": self.clock}
        self.middleware = WSRMMiddleware(self._run, self._path, **options)

    def stop(self) -> None:
        assert self.middleware.close(20)

    def _run(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        number = environ["wsrm.message_number"]
        self.calls.append(number)
        if number not in self._plan.two_way:
            start_response("202 Accepted", [("Content-Length", "0")])
            return []
        body = self._speak.envelope("urn:example:orders/answer", REPLY.format(f"{number}, call {len(self.calls)}"))
        start_response("200 OK", [("Content-Type", self._speak.content_type)])
        return [body]


class Source:
    """The RM Source of a plan. What a destination says to it is held against what it has said before."""

    def __init__(self, plan: Plan, service: Service, speak: EnvelopeFactory) -> None:
        self._plan, self._service, self._speak = plan, service, speak
        self._line = Line(service)
        self.sender = RMSender(lambda: self._line, speak, write=self._message, offer="urn:the-replies", expires="PT10M")
        self.replies: dict[int, tuple[int, str | None, bytes]] = {}
        """Of each request: its reply's number, MessageID and Body."""
        self.stated: int | None = None
        """The last number, where the destination has been told."""
        self.is_closed = False

    def _message(self, identifier: str, number: int, **options: Any) -> bytes:
        plan = self._plan
        return self._speak.message(
            identifier,
            number,
            last=plan.states_last and plan.rm.has_last_message and number == plan.last,
            reply_to="" if number in plan.two_way else "none",
            message_id=f"urn:request:{number}",
            **options,
        )

    def send(self, number: int, fate: Fate = Fate.ARRIVES) -> None:
        self._line.fate = fate
        with suppress(ConnectionError):
            self._hear(number, self.sender.post(self.sender.message(number)))

    def _hear(self, number: int, answer: HTTPAnswer) -> None:
        if self._is_named_too_early():
            raise AssertionError(f"request {number} is acknowledged, and has no reply")
        if not answer.is_soap or answer.reply.body is None or answer.reply.body_name != "answer":
            return
        reply = answer.reply
        assert reply.relates_to == f"urn:request:{number}"
        place = reply.sequence.number if reply.sequence is not None else 0
        said = (place, reply.message_id, etree.tostring(reply.body))
        assert self.replies.setdefault(number, said) == said, "a reply that is sent again is another one"

    def _is_named_too_early(self) -> bool:
        """A source does not send again what is acknowledged: its reply would never come."""
        wait_for_replies = self.sender.acknowledged & self._plan.two_way if not self.is_closed else set()
        return not wait_for_replies <= set(self._service.calls)

    def act(self, act: Act) -> None:
        match act:
            case Act.ASK:
                self.sender.ask()
            case Act.CLOSE if self._plan.rm.has_close:
                self.close()
            case Act.RESTART:
                self._service.stop()
                self._service.start()
            case Act.CATCH_UP:
                while self._line.on_its_way:
                    self._line.post(*self._line.on_its_way.pop())

    def close(self) -> None:
        said = self._end(self.sender.close)
        assert said.reply.ack.final
        assert list(said.reply.ack.ranges) == self._service.stored.received(self.sender.identifier)

    def terminate(self) -> None:
        self._end(self.sender.terminate)

    def _end(self, verb: Callable[..., HTTPAnswer]) -> HTTPAnswer:
        self.is_closed = True
        if self._plan.states_last and self._plan.rm.has_close and self._plan.last:
            self.stated = self._plan.last
        return verb(self.stated)

    def fetch(self) -> None:
        """Send again the requests whose replies are there, until all have come; then acknowledge the replies."""
        for number in sorted(set(self._service.calls) & self._plan.two_way):
            self.send(number)
            assert number in self.replies, f"the reply to {number} was not kept"
        if self.sender.offered is not None:
            assert sorted(place for place, _id, _body in self.replies.values()) == list(range(1, len(self.replies) + 1))
            numbers = AckRanges.of(self.sender.replies).ranges
            self.sender.post(self._speak.acknowledgement(self.sender.offered, *numbers))
            left = "SELECT given, unacknowledged FROM outbound_sequence"
            assert self._service.stored.rows(left) == [(len(self.replies), 0)]


def expected(plan: Plan, received: set[int], stated: int | None) -> list[int]:
    """What the behavior promises of a sequence that has ended."""
    prefix = [n for n in sorted(received) if set(range(1, n)) <= received]
    is_complete = prefix == sorted(received) and stated in (None, max(received, default=0))
    match plan.behavior:
        case IncompleteSequenceBehavior.NO_DISCARD:
            return sorted(received)
        case IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP:
            return prefix
        case IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE:
            return prefix if is_complete else []


@pytest.fixture(scope="module", autouse=True)
def quick_watch() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "POLL_SECONDS", 0.02)
        yield


@pytest.mark.spec("D-DEL-001", "D-DEL-018", "D-DEL-020", "D-DEL-021", "D-DUR-006", versions=("1.0", "1.1"))
@settings(max_examples=examples(80), deadline=None)
@given(PLANS)
def test_any_conversation_ends_with_what_the_behavior_promises(plan: Plan) -> None:
    if plan.behavior is ENTIRE:
        plan = replace(plan, two_way=frozenset())
    with tempfile.TemporaryDirectory() as directory:
        speak = EnvelopeFactory(plan.rm, SOAPVersion.SOAP_1_1, plan.rm.addressings[0])
        service = Service(Path(directory), plan, speak)
        try:
            converse(plan, service, Source(plan, service, speak))
        finally:
            service.stop()


def converse(plan: Plan, service: Service, source: Source) -> None:
    sender, stored = source.sender, service.stored
    for step in plan.steps:
        source.act(step) if isinstance(step, Act) else source.send(*step)

    def is_settled() -> bool:
        return stored.unsettled(sender.identifier) == 0

    def is_done() -> bool:
        return None not in stored.outcomes(sender.identifier).values()

    if plan.end is End.CLOSE and plan.rm.has_close:
        source.close()
    assert until(is_settled)
    source.fetch()
    if plan.end is End.EXPIRE:
        service.clock.advance(_LIFE_MS + 1)
        assert until(lambda: stored.sequence(sender.identifier)["ended"])
    else:
        source.terminate()
    assert until(is_done)
    source.act(Act.CATCH_UP)
    hold(plan, service, source)


def hold(plan: Plan, service: Service, source: Source) -> None:
    identifier, stored = source.sender.identifier, service.stored
    received = {n for low, high in stored.received(identifier) for n in range(low, high + 1)}
    stated = plan.last if plan.states_last and plan.rm.has_last_message and plan.last in received else source.stated
    assert source.sender.acknowledged <= received, "what was acknowledged is lost"
    assert service.calls == expected(plan, received, stated)
    outcomes = {n: "delivered" if n in service.calls else "dead" for n in received}
    assert stored.outcomes(identifier) == outcomes
