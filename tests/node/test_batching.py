"""Acknowledgements that wait to be sent together."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, cast

import pytest

from wsrm_mq.node.batching import Batch, batch_size

pytestmark = pytest.mark.local("tests a part of the local node by itself")


@dataclass
class Message:
    leased_until: int | None = None


def filled(batch: Batch, count: int, now: int, until: int | None = None) -> None:
    for _ in range(count):
        batch.add(cast(Any, Message(until)), now)


@pytest.mark.scenario("Q-058")
@pytest.mark.parametrize(("granted", "size"), [(1, 1), (2, 1), (3, 1), (10, 3), (30, 10), (100, 33)])
def test_a_batch_is_a_third_of_the_backlog(granted: int, size: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert batch_size(None, granted) == size


@pytest.mark.scenario("Q-060")
def test_a_batch_above_the_backlog_is_as_large_as_that_and_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="`ack_batch` is 50 and the granted backlog 10: batches have 10"):
        assert batch_size(50, 10) == 10


def test_a_batch_above_the_half_is_warned_of_and_one_of_the_half_is_not() -> None:
    with pytest.warns(UserWarning, match="3 is a good size"):
        assert batch_size(6, 10) == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert batch_size(5, 10) == 5
        assert batch_size(1, 1) == 1
        assert batch_size(0, 1) == 1


@pytest.mark.scenario("Q-058")
def test_a_batch_is_due_when_it_is_full() -> None:
    batch = Batch(10, 1_000)
    filled(batch, 9, now=0)
    assert not batch.is_due(999)
    filled(batch, 1, now=999)
    assert batch.is_due(999)
    assert len(batch.take()) == 10
    assert (len(batch), batch.due_at, batch.is_due(5_000)) == (0, None, False)


@pytest.mark.scenario("Q-059")
def test_what_is_not_full_is_due_by_the_age_of_the_oldest() -> None:
    batch = Batch(10, 1_000)
    filled(batch, 1, now=100)
    filled(batch, 3, now=1_000)
    assert not batch.is_due(1_099)
    assert batch.is_due(1_100)
    batch.take()
    filled(batch, 1, now=2_000)
    assert not batch.is_due(2_999)


def test_no_acknowledgement_waits_for_the_end_of_its_lease() -> None:
    batch = Batch(10, 1_000)
    filled(batch, 1, now=0, until=300)
    assert not batch.is_due(149)
    assert batch.is_due(150)
    batch.take()
    filled(batch, 1, now=400, until=300)
    assert batch.is_due(400)
