"""Patterns of topics: what they match, and what is none."""

from __future__ import annotations

import pytest

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.topics import check_pattern, check_topic, matches, queue_of


@pytest.mark.parametrize(
    ("pattern", "topic", "is_match"),
    [
        ("db/delete", "db/delete", True),
        ("db/delete", "db/deleted", False),
        ("db/delete", "xdb/delete", False),
        ("db.x/a", "dbyx/a", False),
        ("db/*", "db/add", True),
        ("db/*", "db", False),
        ("db/*", "db/add/row", False),
        ("*/add", "db/add", True),
        ("*/add", "db/x/add", False),
        ("*", "db", True),
        ("*", "db/add", False),
        ("db/#", "db", True),
        ("db/#", "db/add", True),
        ("db/#", "db/add/row", True),
        ("db/#", "dbx", False),
        ("db/#", "dbx/add", False),
        ("*/#", "db", True),
        ("#", "db/add/row", True),
        ("*/add/#", "db/add/row", True),
        ("*/add/#", "db/del/row", False),
    ],
)
def test_a_star_is_one_level_and_a_hash_the_rest(pattern: str, topic: str, is_match: bool) -> None:
    check_pattern(pattern)
    check_topic(topic)
    assert matches(pattern, topic) is is_match


@pytest.mark.parametrize(
    "pattern",
    ["", "/", "db/", "/db", "db//add", "#/db", "db/#/x", "db*/add", "db/a*", "db/a#", "db/\n", " db", "x" * 201],
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is no pattern: .*bucket/event"):
        check_pattern(pattern)


@pytest.mark.parametrize("topic", ["", "db/", "db/*", "db/#", "d*b/add", "db/a#", "x" * 201])
def test_what_is_no_topic_is_refused(topic: str) -> None:
    with pytest.raises(ConfigurationError, match="is no topic"):
        check_topic(topic)


def test_the_queue_of_a_durable_subscription_is_one_of_its_client_and_name() -> None:
    assert queue_of("a", "s") == "a/s"
    assert queue_of("", "s") == "s"
    for name in ("", "b/s"):
        with pytest.raises(ConfigurationError):
            queue_of("a", name)
