"""What a request may cost that is refused: little time, little memory, a short answer, whatever it holds."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.protocol.conftest import Servers
from tests.support.in_process import FACTORY, InProcess, taken
from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer
from tests.support.source import Source, each_rm, in_one_version
from wsrm_mq.destination.answers import MOST_RANGES
from wsrm_mq.testing import HTTPAnswer, Reply

UNKNOWN = "urn:uuid:00000000-0000-4000-8000-000000000000"
ASK = FACTORY.rm.action("AckRequested")
MEGABYTE = 2**20
DEEP = 30 * MEGABYTE
"""Of open tags: 1.2 GB and 6 s where the parser keeps each of them."""


@contextmanager
def cheaply(server: OrdersServer, seconds: float, megabytes: int) -> Iterator[None]:
    status = Path(f"/proc/{server.pid}/status")
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # the peak begins anew

    def peak() -> int:
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))

    before, begun, used = peak(), time.monotonic(), server.cpu()
    yield
    assert min(time.monotonic() - begun, server.cpu() - used) < seconds
    assert peak() - before < megabytes * 1024


def deep(source: Source, identifier: str, number: int = 1) -> bytes:
    envelope = source.speak.put(identifier, number)
    return envelope[: envelope.index(b"</t:put_order>")] + b"<a>" * (DEEP // 3)


def fault_of(answer: HTTPAnswer) -> tuple[str, str]:
    fault = answer.reply.fault
    assert fault is not None
    return fault.subcode, fault.reason


@each_rm
def test_a_deep_body_is_not_read_for_a_sequence_that_takes_nothing(servers: Servers, speak: Orders) -> None:
    server = servers()
    with Source(server, speak) as source, Source(server, speak, fields=("X-User: mallory",)) as mallory:
        ended, open_one = source.create(), source.create()
        source.terminate(ended)
        cases = ((source, UNKNOWN), (source, ended), (mallory, open_one))
        with cheaply(server, 3, 100):
            for who, identifier in cases:
                assert fault_of(who.post(deep(who, identifier)))[0] == "UnknownSequence"
        before = source.store.everything()
        with cheaply(server, 3, 100):
            assert "nested more than 1000 deep" in fault_of(source.post(deep(source, open_one)))[1]
        assert source.store.everything() == before
        assert source.put(open_one, 1).acked == [(1, 1)]


@in_one_version
@pytest.mark.parametrize("options", [{}, {"verify_body": True}], ids=str)
def test_a_sequence_is_looked_up_before_a_body_is_expanded_or_checked(
    servers: Servers, speak: Orders, options: dict[str, bool]
) -> None:
    """What is wrong with the body is not even seen."""
    with Source(servers(**options), speak) as source:
        good = source.speak.put(UNKNOWN, 1)
        bomb = good.replace(b"</t:put_order>", b" " * 20 * MEGABYTE + b"</t:put_order>")
        related = 'multipart/related; type="application/soap+xml"; boundary=edge'
        cases: list[tuple[bytes, str, str | None]] = [
            (gzip.compress(bomb), "Content-Encoding: gzip", None),
            (good[:-10], "X-Cut: off", None),
            (b"--edge\r\n\r\n" + good, "X-Cut: off", related),
        ]
        for body, field, content_type in cases:
            assert fault_of(source.post(body, field, content_type=content_type))[0] == "UnknownSequence"


HUNGRY: dict[str, tuple[Callable[[], bytes], str]] = {
    "names": (lambda: b"".join(b"<n%x/>" % n for n in range(2_000_000)), "different names"),
    "attributes": (lambda: b"<a " + b" ".join(b'n%x=""' % n for n in range(1_500_000)) + b"/>", "a tag or comment"),
    "a comment": (lambda: b"<!--" + b"x" * 20 * MEGABYTE + b"-->", "a tag or comment"),
}


@in_one_version
@pytest.mark.parametrize("hungry", HUNGRY.values(), ids=HUNGRY.keys())
def test_a_body_that_is_checked_makes_the_parser_remember_little(
    servers: Servers, speak: Orders, hungry: tuple[Callable[[], bytes], str]
) -> None:
    make, reason = hungry
    server = servers(verify_body=True)
    with Source(server, speak) as source:
        identifier = source.create()
        body = source.speak.put(identifier, 1).replace(b"</t:put_order>", make() + b"</t:put_order>")
        with cheaply(server, 4, 100):
            assert reason in fault_of(source.post(body))[1]
        text = "word " * MEGABYTE
        assert source.put(identifier, 1, text).acked == [(1, 1)], "a long text is no burden"


@in_one_version
def test_a_great_many_empty_parts_are_not_gone_through(source: Source) -> None:
    """27 MB of them took 35 s."""
    parts = b"--b\r\n\r\n" * 1_500_000
    for start in ("", "; start=root"):
        with cheaply(source.server, 4, 100):
            answer = source.post(parts, content_type=f"multipart/related; boundary=b{start}")
        assert answer.reply.fault is not None
    assert "among the first 1000 parts" in fault_of(answer)[1]


@in_one_version
def test_the_closing_boundary_of_a_large_message_is_found_in_little_time(servers: Servers, speak: Orders) -> None:
    """Of 50 MB, with an epilogue: it is not where it is looked for first."""
    server = servers()
    with Source(server, speak) as source:
        root = b"--edge\r\nContent-Type: application/soap+xml\r\n\r\n" + source.speak.put(source.create(), 1)
        whole = root + b"\r\n--edge\r\n\r\n" + bytes(50 * MEGABYTE) + b"\r\n--edge--\r\n" + b"epilogue" * 1_000
        related = 'multipart/related; type="application/soap+xml"; boundary=edge'
        with cheaply(server, 6, 150):
            assert source.post(whole, content_type=related).acked == [(1, 1)]


# answers


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InProcess]:
    service = InProcess(tmp_path, lambda _environ, start_response: taken(start_response))
    yield service
    service.middleware.close(5)


def with_gaps(service: InProcess, count: int) -> str:
    """A sequence that has received 2, 4, 6, …: as many ranges."""
    identifier = service.create()
    [(key,)] = service.rows("SELECT id FROM lane WHERE identifier = ?", identifier)
    values = ",".join(f"({key}, {2 * n}, {2 * n})" for n in range(1, count + 1))
    service.rows(f"INSERT INTO range (lane, lower, upper) VALUES {values}")
    return identifier


def asking(*identifiers: str) -> str:
    asked = "<wsrm:AckRequested><wsrm:Identifier>{}</wsrm:Identifier></wsrm:AckRequested>"
    return "".join(asked.format(identifier) for identifier in identifiers)


def test_a_short_request_gets_no_huge_answer(service: InProcess) -> None:
    """1 KB that asks for six sequences of 4,096 ranges each got 1.3 MB."""
    identifiers = [with_gaps(service, 4_096) for _ in range(6)]
    status, content = service.post(FACTORY.envelope(ASK, "", headers=asking(*identifiers)))
    assert status.startswith("200")
    acks = Reply.parse(content).acks
    assert sum(len(ack.ranges) for ack in acks) == MOST_RANGES
    assert acks[0].identifier == identifiers[0]
    assert acks[0].ranges[0] == (2, 2)
    assert all(low == high and low % 2 == 0 and low <= 8_192 for ack in acks for low, high in ack.ranges)
    assert len(content) < 64 * 1024


def test_an_answer_that_leaves_ranges_out_covers_the_message_that_it_answers(service: InProcess) -> None:
    identifier = with_gaps(service, 4_096)
    for number in (8_192, 5_001, 1):
        _status, content = service.post(FACTORY.message(identifier, number))
        ranges = Reply.parse(content).ack.ranges
        assert any(low <= number <= high for low, high in ranges), "a source would send it for ever"
        assert len(ranges) <= MOST_RANGES


def test_sixteen_acknowledgements_are_answered_and_no_more(service: InProcess) -> None:
    identifiers = [service.create() for _ in range(17)]
    _status, content = service.post(FACTORY.envelope(ASK, "", headers=asking(*identifiers[:16])))
    assert [ack.identifier for ack in Reply.parse(content).acks] == identifiers[:16]
    _status, content = service.post(FACTORY.envelope(ASK, "", headers=asking(*identifiers)))
    fault = Reply.parse(content).fault
    assert fault is not None
    assert "17 AckRequested headers; 16 are answered" in fault.reason
    status, content = service.post(FACTORY.message(identifiers[16], 1, headers=asking(*identifiers)))
    acks = {ack.identifier: ack.ranges for ack in Reply.parse(content).acks}
    assert status.startswith("200")
    assert acks == {identifiers[16]: ((1, 1),), **dict.fromkeys(identifiers[:16], ())}, "what it rides on is taken"
