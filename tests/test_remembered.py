"""What is remembered is bounded in number, and each of it is small."""

from __future__ import annotations

from wsrm_mq.remembered import Recent, are_small

LARGE = "x" * 100_000


def test_many_items_of_a_few_bytes_are_not_small_nor_is_a_long_name() -> None:
    assert are_small([("HTTP_HOST", "localhost")] * 30)
    assert not are_small([("a", "")] * 1_000)
    assert not are_small([(LARGE, "")])


def test_what_was_not_asked_for_longest_is_forgotten_first() -> None:
    recent: Recent[int, str] = Recent(2)
    for key in (1, 2):
        recent.keep(key, str(key))
    assert recent.get(1) == "1"
    recent.keep(3, "3")
    assert [recent.get(key) for key in (1, 2, 3)] == ["1", None, "3"]
    assert len(recent._values) == 2
