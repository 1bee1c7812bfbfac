"""What is kept of an exception: where in the application it comes from, whatever raised it in the end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from wsrm_mq.delivery.service_reply import Raised, raised
from wsrm_mq.errors import WSRMError

HERE = re.escape(__file__)


class NoStock(Exception):
    def __str__(self) -> str:
        return "no stock"


def caught(call: Callable[[], object]) -> Raised:
    try:
        call()
    except BaseException as error:
        return raised(error)
    raise AssertionError("nothing was raised")


def put() -> None:
    raise NoStock


def load() -> None:
    json.loads("{")


def test_the_place_is_the_line_that_raised() -> None:
    found = caught(put)
    assert re.fullmatch(rf"{HERE}:\d+ put", found.place or "")
    assert (found.type, found.said) == (f"{__name__}.NoStock", "NoStock: no stock")
    assert found.text.startswith("NoStock: no stock\nTraceback (most recent call last):\n")


def test_the_place_of_what_a_library_raises_is_the_line_of_the_application_that_called_it() -> None:
    found = caught(load)
    assert re.fullmatch(rf"{HERE}:\d+ load", found.place or "")
    assert found.type == "json.decoder.JSONDecodeError"


def test_pythons_own_exceptions_go_by_their_name() -> None:
    assert caught(lambda: {}["x"]).type == "KeyError"


def test_what_is_raised_in_libraries_alone_has_its_innermost_line() -> None:
    error = OSError("away")
    with pytest.raises(OSError, match="away"):
        exec(compile("raise error", "/usr/lib/site-packages/database.py", "exec"), {"error": error})
    while error.__traceback__ is not None and error.__traceback__.tb_next is not None:
        error.__traceback__ = error.__traceback__.tb_next
    assert raised(error).place == "/usr/lib/site-packages/database.py:1 <module>"


def test_what_was_never_raised_has_no_place() -> None:
    assert raised(WSRMError("x"))[:3] == ("wsrm_mq.errors.WSRMError", None, "WSRMError: x")


def test_a_deep_recursion_has_a_place_and_a_short_text() -> None:
    def endless() -> None:
        endless()

    found = caught(endless)
    assert found.type == "RecursionError"
    assert re.fullmatch(rf"{HERE}:\d+ .*endless", found.place or "")
    assert len(found.text) < 10_000


@pytest.mark.parametrize("text", ["\udcff", "\0", "x" * 100_000])
def test_whatever_it_says_can_be_stored(text: str) -> None:
    found = raised(OSError(text))
    assert len(found.text) < 10_000
    assert found.text.encode()
    assert "\0" not in found.text
