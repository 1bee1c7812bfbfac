"""The disk is full while replies wait to be sent and are acknowledged: nothing is lost, and it is told."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from tests.conftest import Mount
from tests.protocol.test_answers_of_endpoints import outcomes
from tests.protocol.test_decoupled import created, is_empty_202
from tests.support.disk import Disk
from tests.support.endpoint import ALLOWED, Endpoint
from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source, each_rm_at_length
from wsrm_mq.cli import program
from wsrm_mq.testing import HTTPAnswer, Reply

ROOM: Final = "size=24m"
REPLIES: Final = 6
LARGE: Final = "x" * 200_000
"""No disk that is full has room for it."""


@pytest.fixture
def disk(mount: Mount) -> Disk:
    return Disk(mount("-t", "tmpfs", "-o", ROOM, "tmpfs"))


@pytest.fixture
def server(tmp_path: Path, disk: Disk) -> Iterator[OrdersServer]:
    """Its store, and nothing else, is on the small disk."""
    server = OrdersServer(tmp_path, decoupled=ALLOWED, resend=[0.2] * 200, retry=[0.2])
    server.store = disk.point / "store.db"
    server.start()
    yield server
    server.kill()


def answered(source: Source, envelope: bytes, seconds: float = 20) -> HTTPAnswer:
    """The answer to a request that comes again until it is not turned away."""
    return within(seconds, lambda: source.post(envelope), lambda answer: answer.status != 503)


@each_rm_at_length
@pytest.mark.scenario("Q-111")
@pytest.mark.spec("SEC-031", "D-DUR-003", "H-007")
def test_replies_that_wait_while_the_disk_is_full_are_all_sent_and_acknowledgements_all_taken(
    source: Source, endpoint: Endpoint, speak: Orders, disk: Disk
) -> None:
    offered = uuid.uuid4().urn
    identifier = created(source, endpoint, offer=offered, offer_endpoint=endpoint.url)
    endpoint.says = lambda received: (503, b"") if received.sequence else None
    for number in range(1, REPLIES + 1):
        assert is_empty_202(source.echo(identifier, number, "text", reply_to=endpoint.url))
    within(10, lambda: outcomes(source, endpoint), lambda rows: len(rows) == REPLIES)
    disk.fill()
    refused = source.put(identifier, REPLIES + 1, LARGE)
    assert (refused.status, b"Acknowledgement" in refused.body) == (503, False)
    status = CliRunner().invoke(program, ["status", "--store", str(source.server.store)], prog_name="wsrm-mq")
    assert "full" in status.output, status.output
    tried = len(endpoint.saying("echoResponse"))
    endpoint.soon(lambda: endpoint.saying("echoResponse"), tried + REPLIES)

    # Acknowledgements come in, in requests and on answers: each is taken, or its sender is told to come again.
    said = source.post(speak.acknowledgement(offered, (1, 2)))
    assert said.status in (202, 503)
    endpoint.says = lambda received: _acknowledged(speak, offered, received)
    time.sleep(1)
    assert [outcome for _number, outcome, _reason in outcomes(source, endpoint) if outcome == "dead"] == []

    disk.make_room()
    if said.status == 503:
        assert is_empty_202(answered(source, speak.acknowledgement(offered, (1, 2))))
    taken = [(number, "delivered", None) for number in range(1, REPLIES + 1)]
    assert within(20, lambda: outcomes(source, endpoint), lambda rows: rows == taken) == taken
    replies = endpoint.saying("echoResponse")
    assert {one.sequence.number for one in replies if one.sequence} == set(range(1, REPLIES + 1))
    assert len({one.message_id for one in replies}) == REPLIES, "what leaves again is the same message"
    assert is_empty_202(answered(source, speak.put(identifier, REPLIES + 1, LARGE)))
    assert source.delivered(identifier)[-1] == REPLIES + 1
    assert endpoint.acknowledged(identifier, (1, REPLIES + 1))


def _acknowledged(speak: Orders, offered: str, received: Reply) -> tuple[int, bytes] | None:
    """From the third reply on, on the answer to it."""
    place = received.sequence
    if place is None or place.number <= 2:
        return None
    return 200, speak.acknowledgement(offered, (place.number, place.number))
