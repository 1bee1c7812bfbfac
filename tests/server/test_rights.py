from __future__ import annotations

from pathlib import Path

import pytest

import wsrm_mq
from wsrm_mq.errors import ConfigurationError, RightMissing, UnknownQueue
from wsrm_mq.server.rights import Grant, Principal, check_grant

SHOP = Principal("shop", (Grant("put", "orders*"), Grant("peek", "orders"), Grant("consume", "topic:orders/#")))


@pytest.mark.parametrize(
    ("right", "queue", "may"),
    [
        ("put", "orders", True),
        ("put", "orders/eu", True),
        ("put", "my-orders", False),
        ("put", "Orders", False),
        ("peek", "orders", True),
        ("peek", "orders/eu", False),
        ("consume", "orders", False),
        ("admin", "orders", False),
        ("consume", "topic:orders/placed", False),
    ],
)
def test_a_right_is_to_the_queues_of_its_pattern(right: str, queue: str, may: bool) -> None:
    assert SHOP.may(check_grant(right, "*").right, queue) is may


def test_the_right_to_a_queue_is_one_to_its_dead_letters_and_its_journal() -> None:
    ops = Principal("ops", (Grant("consume", "orders"), Grant("peek", "orders*")))
    assert ops.may("consume", "orders#dead")
    assert ops.may("peek", "orders#journal")
    assert not ops.may("consume", "bills#dead")
    assert not ops.may("peek", "#journal")
    assert Principal("all", (Grant("peek", "*"),)).may("peek", "#journal")


@pytest.mark.parametrize(
    ("granted", "asked", "covers"),
    [
        ("orders/#", "orders/#", True),
        ("orders/#", "orders", True),
        ("orders/#", "orders/*/eu", True),
        ("orders/#", "#", False),
        ("orders/#", "*/placed", False),
        ("#", "#", True),
        ("*", "orders", True),
        ("*", "#", False),
        ("*/placed", "orders/placed", True),
        ("*/placed", "*/placed", True),
        ("orders/placed", "orders/*", False),
        ("orders/placed", "orders/#", False),
        ("orders/*", "orders/#", False),
        ("orders/*", "orders/placed/eu", False),
        ("a/b/#", "a", False),
    ],
)
def test_a_pattern_of_topics_is_covered_where_all_that_it_takes_is(granted: str, asked: str, covers: bool) -> None:
    assert Principal("one", (Grant("consume", f"topic:{granted}"),)).may_topics("consume", asked) is covers


def test_a_queue_without_any_right_is_told_as_one_that_is_not_there(tmp_path: Path) -> None:
    with wsrm_mq.connect(tmp_path / "store.db", auto_create=False) as node:
        node.declare("bills")
        with pytest.raises(UnknownQueue) as not_there:
            node.put("nothing", b"x")
    for queue in ("bills", "nothing"):
        with pytest.raises(UnknownQueue) as hidden:
            SHOP.require("put", queue)
        assert str(hidden.value) == str(not_there.value).replace("nothing", queue)


def test_a_principal_that_may_do_something_else_with_a_queue_is_told_which_right_it_has_not() -> None:
    SHOP.require("put", "orders")
    with pytest.raises(RightMissing, match=r"shop may not take messages from there: orders\. .*token add"):
        SHOP.require("consume", "orders")
    with pytest.raises(RightMissing, match=r"right `put` to the topics orders/placed.*--put 'topic:orders/placed'"):
        SHOP.require_topics("put", "orders/placed")


@pytest.mark.parametrize(
    ("right", "pattern", "said"),
    [
        ("read", "orders", "write put, consume, peek, admin, route"),
        ("put", "", "is no pattern of queues"),
        ("put", "orders#dead", "is no pattern of queues"),
        ("put", "topic:a/#/b", "is no pattern"),
    ],
)
def test_a_grant_that_cannot_be_meant_is_refused(right: str, pattern: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        check_grant(right, pattern)
