"""Four worker processes over one store, as the page on gunicorn has them."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from tests.deploy.client import Client
from tests.deploy.page import Page
from tests.support.orders_server import within

FOUR = {"workers = 1": "workers = 4", "threads = 8": "threads = 4"}


@pytest.mark.timeout(300)
@pytest.mark.scenario("Q-041")
@pytest.mark.parametrize("name", ["gunicorn-gthread", pytest.param("nginx", marks=pytest.mark.long)])
def test_a_shuffled_sequence_over_four_workers_is_seen_in_order_once(name: str, tmp_path: Path) -> None:
    changes = {"workers = 2": "workers = 4", "threads = 8": "threads = 4"} if name == "nginx" else FOUR
    numbers = random.Random(41).sample(range(1, 201), 200)
    with Page(f"deploy-{name}", tmp_path, changes) as page:
        page.wait_for(4)
        with Client(page.url_port) as client:
            identifier = client.create()
        lost: list[int] = []

        def send(mine: list[int]) -> None:
            with Client(page.url_port, identifier=identifier) as own:
                for number in mine:
                    answer = own.send(number)
                    if answer.status != 200 or not any(a <= number <= b for a, b in answer.reply.ack.ranges):
                        lost.append(number)

        senders = [threading.Thread(target=send, args=(numbers[at::8],)) for at in range(8)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        assert lost == []
        seen = within(20, lambda: page.numbers(identifier), lambda found: len(found) >= 200)
        assert seen == list(range(1, 201))
        received = page.store.rows("SELECT DISTINCT connection FROM message")
        assert len(received) == 8
        assert len(page.store.rows("SELECT 1 FROM instance WHERE ended_at IS NULL")) == 4
    assert page.numbers(identifier) == list(range(1, 201))
