"""What is remembered is bounded in number, and each of it is small."""

from __future__ import annotations

from wsrm_mq.remembered import Memory, are_small, remembered, size_of_values

LARGE = "x" * 100_000


def test_what_is_small_is_made_once_and_what_is_large_each_time() -> None:
    made: list[str] = []

    @remembered(10, len)
    def upper(text: str) -> str:
        made.append(text)
        return text.upper()

    assert [upper("a"), upper("a"), upper(LARGE), upper(LARGE)] == ["A", "A", LARGE.upper(), LARGE.upper()]
    assert made == ["a", LARGE, LARGE]


def test_the_size_of_items_is_that_of_their_values() -> None:
    assert size_of_values((("name", b"12345"), ("other", "123"))) == 8


def test_many_items_of_a_few_bytes_are_not_small_nor_is_a_long_name() -> None:
    assert are_small([("HTTP_HOST", "localhost")] * 30)
    assert not are_small([("a", "")] * 1_000)
    assert not are_small([(LARGE, "")])


def test_a_memory_that_is_full_begins_anew() -> None:
    memory: Memory[int, str] = Memory(2)
    for key in range(3):
        memory.keep(key, str(key))
    assert memory == {2: "2"}
