"""kill -9 around the POST of a reply: before it, between it and its record, behind that."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from tests.crash.test_boundaries import A_LIFE
from tests.crash.witness import Witness
from tests.protocol.test_decoupled import created, is_empty_202
from tests.support.endpoint import ALLOWED, Endpoint, listening
from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer, within
from tests.support.source import Source

LEFT = "select count(*) from entry join channel using (lane) where is_numbered and outcome is null"


def arrived(endpoint: Endpoint) -> dict[str | None, set[tuple[int, str | None]]]:
    """By the request that it answers: number and MessageID of each reply that came, however often."""
    found: dict[str | None, set[tuple[int, str | None]]] = {}
    for one in endpoint.saying("echoResponse"):
        assert one.sequence is not None
        found.setdefault(one.relates_to, set()).add((one.sequence.number, one.message_id))
    return found


@pytest.mark.timeout(240)
@pytest.mark.spec("D-DUR-001", "S-SND-004", "H-007", versions="all")
@pytest.mark.parametrize("lives", [pytest.param(3, marks=pytest.mark.brief), pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("point", ["before_post", "after_post", "after_record"])
def test_a_kill_around_the_post_of_a_reply_has_it_leave_at_least_once_as_the_same_message(
    tmp_path: Path, point: str, lives: int
) -> None:
    """Each reply keeps its number and its MessageID, and the numbers are in the order of the requests."""
    witness = Witness(tmp_path, decoupled=ALLOWED, resend=[1.0] * 200, retry=[0.1] * 200)
    server, speak, sent = cast(OrdersServer, witness), Orders(), 0
    with listening() as endpoint:

        def echo(source: Source, number: int) -> None:
            request = speak.echo(
                identifier, number, f"t{number}", reply_to=endpoint.url, message_id=f"urn:request:{number}"
            )
            assert is_empty_202(source.post(request))

        witness.start()
        offered = uuid.uuid4().urn
        with Source(server, speak) as source:
            identifier = created(source, endpoint, offer=offered, offer_endpoint=endpoint.url)
        for _ in range(lives):
            witness.die_at(point, 2)
            with suppress(OSError), Source(server, speak) as source:
                for number in range(sent + 1, sent + A_LIFE + 1):
                    echo(source, number)
                    sent = number
            witness.wait()
            witness.start()
        with Source(server, speak) as source:
            for number in range(1, sent + 2):  # what the source has no answer to, it sends again
                echo(source, number)
            everything = {f"urn:request:{number}" for number in range(1, sent + 2)}
            replies = within(60, lambda: arrived(endpoint), lambda found: found.keys() == everything)
            assert replies.keys() == everything
            assert {len(places) for places in replies.values()} == {1}
            numbers = {request: number for request, ((number, _message_id),) in replies.items()}
            assert numbers == {f"urn:request:{number}": number for number in range(1, sent + 2)}
            assert is_empty_202(source.post(speak.acknowledgement(offered, (1, sent + 1))))
            assert within(10, lambda: source.store.rows(LEFT), lambda rows: rows == [(0,)]) == [(0,)]
        witness.stop()
    assert witness.lives == lives + 1
