"""A source as others see it: by the read view of its sequences, an export of that, and its metrics."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from werkzeug.test import Client

from tests.observe.test_metrics import Numbers, numbers, of
from tests.source.conftest import Open, Source
from tests.source.partner import ACTION, LOST, THERE, Partner, envelope
from tests.source.test_acknowledgements import ONE
from wsrm_mq.export import Asked, export
from wsrm_mq.observe import ObserveApp
from wsrm_mq.testing import WSRM_1_1

pytestmark = pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm1.1"])

ENDPOINT = f"send/source/{THERE}"
OF_EACH = """
SELECT r.sequence, m.number, m.state FROM request_sequences AS r JOIN messages AS m ON m.sequence = r.lane
WHERE r.sends_to = ? ORDER BY r.key, m.number
"""


def send(source: Source, count: int) -> None:
    for _ in range(count):
        source.send(envelope(source.partner.speak), to=THERE, action=ACTION)


def test_the_view_has_the_sequences_of_requests_and_leads_to_each_of_them(
    source: Source, partner: Partner, tmp_path: Path
) -> None:
    partner.takes = lambda received: received.sequence is not None and received.sequence.number != 2
    source.create_sequence(THERE, soap=partner.speak.soap.label)
    assert source.rows("SELECT sends_to, sent, lane FROM request_sequences") == [(THERE, 0, None)]
    send(source, 3)
    assert partner.within(lambda: source.states() == [("created", 3, "1,3")])
    assert source.rows(OF_EACH, THERE) == [(ONE, 1, "delivered"), (ONE, 2, "ready"), (ONE, 3, "delivered")]
    export(source.path, tmp_path / "out", Asked(tables=("request_sequences",)))
    [file] = (tmp_path / "out" / "request_sequences").iterdir()
    row = json.loads(gzip.decompress(file.read_bytes()))
    told = ("sequence", "queue", "rm", "state", "sent", "acknowledged", "unacknowledged", "offered", "acks_to")
    assert [row[name] for name in told] == [ONE, f"source/{THERE}", "1.1", "created", 3, "1,3", 1, None, None]


def test_metrics_tell_what_waits_since_when_and_how_often_it_was_tried(open_source: Open, partner: Partner) -> None:
    def scraped() -> Numbers:
        source.nudge()  # counts are written within a second
        return numbers(Client(ObserveApp(source)).get("/metrics").text)

    def told(name: str) -> float | None:
        return of(scraped(), f"wsrm_{name}", endpoint=ENDPOINT)

    partner.says = lambda received: LOST if received.sequence is not None else None
    source = open_source()
    send(source, 2)
    assert partner.within(lambda: told("posts_unanswered_total"))
    source.clock.advance(5_000)
    assert (told("requests_waiting"), told("requests_in_vain")) == (2, 1)
    assert (told("requests_oldest_age_seconds") or 0) >= 5
    partner.says, partner.takes = lambda _received: None, lambda _received: False

    def has_repeated() -> bool:
        source.pass_time(20)
        return source.at_rest() and bool(told("posts_repeated_total"))

    assert partner.within(has_repeated, 20)
    partner.takes = lambda _received: True
    assert source.in_time(step=30)
    assert partner.within(lambda: told("requests_waiting") == 0)
    assert told("requests_in_vain") == 0
