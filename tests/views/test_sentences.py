"""Each verdict has its sentence; the words of both are told by the tests of `sequence explain`."""

from __future__ import annotations

from wsrm_mq.views import proposals, sentences, verdict


def test_each_cause_has_one_rule_or_more_one_sentence_and_its_steps() -> None:
    assert set(sentences._SENTENCES) == set(verdict.Cause) == {rule.cause for rule in verdict._RULES}
    assert set(proposals._CHOICES) == set(verdict.Cause)


def test_the_words_of_the_rules_are_those_that_may_be_asked_for() -> None:
    assert {rule.word for rule in verdict._RULES} | {"incomplete"} == set(verdict.WORDS)


def test_of_an_error_its_first_line_that_says_something_is_told() -> None:
    assert sentences.first_line("\n  \nno disk\nTraceback") == "no disk"
    assert sentences.first_line("x" * 300, 10) == "x" * 9 + "…"


def test_a_moment_that_no_calendar_has_is_told_in_ms() -> None:
    assert sentences.moment(0) == "1970-01-01 00:00:00 UTC"
    assert sentences.moment(10**20) == f"{10**20} ms"


def test_a_length_of_time_is_told_in_the_largest_unit_that_is_not_coarse() -> None:
    lengths = (-5, 0, 999, 1_000, 90_000, 120_000, 7_200_000, 2 * 86_400_000)
    assert [sentences.span(ms) for ms in lengths] == ["0 s", "0 s", "999 ms", "1 s", "90 s", "2 min", "2 h", "2 days"]
