"""A short run of the fuzzer finds nothing, and finds every mistake that is planted in it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.fuzz.failed import Failed
from tests.fuzz.readers import READERS, fuzz_readers
from tests.fuzz.run import PLANTS, fuzz
from tests.fuzz.stomp import PLANTS as STOMP_PLANTS
from tests.fuzz.stomp import fuzz_stomp

SAID = {
    "raise": "the middleware raised",
    "store": "something was stored",
    "scan": "warm and cold scan differ",
    "verify": "the store does not verify",
}


def test_mutated_messages_break_nothing(tmp_path: Path) -> None:
    assert fuzz(tmp_path, seconds=4, seed=1) > 100


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_mistake_is_found_and_the_fuzzer_ends(tmp_path: Path, plant: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(Failed, match=SAID[plant]):
        fuzz(tmp_path, seconds=0.1, seed=2, plant=plant)
    assert not set(threading.enumerate()) - before, "`make fuzz` would wait a minute for them before it ends"


def test_what_reads_mutated_messages_answers_or_raises_what_it_may() -> None:
    assert fuzz_readers(seconds=2, seed=1) > 10


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_that_raises_anything_else_is_found(reader: str) -> None:
    with pytest.raises(Failed, match=f"{reader}: RuntimeError"):
        fuzz_readers(seconds=0.1, seed=2, plant=reader)


def test_mutated_frames_of_stomp_are_read_or_refused() -> None:
    assert fuzz_stomp(seconds=2, seed=1) > 10


@pytest.mark.parametrize("plant", STOMP_PLANTS)
def test_a_conversation_of_stomp_that_is_wrong_is_found(plant: str) -> None:
    with pytest.raises(Failed, match="STOMP: "):
        fuzz_stomp(seconds=0.5, seed=2, plant=plant)
