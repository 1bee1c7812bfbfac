"""Tables on a terminal: a line a row, as wide as that is, with names that commands take."""

from __future__ import annotations

import re
import time

import pytest

from tests.cli.conftest import Service
from tests.cli.test_terminal import typed
from tests.support.commands import Wsrm
from wsrm_mq.cli.output import Column, drawn, end_of, key, known, when, word

NOW = time.time_ns() // 1_000_000


def plain(columns: tuple[Column, ...], rows: list[tuple[object, ...]], width: int) -> list[str]:
    lines, _left_out = drawn(columns, rows, width)
    return [line.plain for line in lines]


def test_what_fits_is_shown_as_it_is() -> None:
    assert plain((key("position"), Column("queue")), [(7, "/orders"), (12, "/a")], 80) == [
        "position  queue",
        "       7  /orders",
        "      12  /a",
    ]


def test_texts_are_cut_where_they_are_too_long_and_keys_are_not() -> None:
    columns = (key("name"), end_of("action"), Column("reason"))
    rows: list[tuple[object, ...]] = [("x" * 20, "urn:example:orders/put_order", "no disk is there")]
    assert plain(columns, rows, 50)[1] == f"{'x' * 20}  …rs/put_order  no disk is t…"
    assert plain(columns, rows, 80)[1] == f"{'x' * 20}  urn:example:orders/put_order  no disk is there"


def test_columns_of_the_highest_rank_go_first_and_are_named() -> None:
    columns = (key("a"), Column("b", None, rank=1), Column("c", None, rank=2), Column("d", None))
    rows: list[tuple[object, ...]] = [("a" * 10, "b" * 10, "c" * 10, "d" * 10)]
    assert [drawn(columns, rows, width)[1] for width in (46, 45, 33, 21)] == [[], ["c"], ["b", "c"], ["b", "c", "d"]]


def test_wide_characters_count_as_two() -> None:
    (_heading, line) = plain((Column("text", 4), key("n")), [("日本日本日本", 1)], 10)
    assert line == "日本日…  1"


def test_a_day_that_is_near_has_no_year_and_a_pipe_has_all() -> None:
    column = when("at")
    assert column.in_pipe(NOW).endswith(" UTC")
    assert column.on_terminal(NOW) == column.in_pipe(NOW)[5:19]
    assert column.on_terminal(0) == "1970-01-01"
    assert column.on_terminal(None) == column.in_pipe(None) == ""


def test_names_are_shorter_on_a_terminal_only() -> None:
    column = known("sequence", {"urn:uuid:1234": "1234"})
    assert (column.on_terminal("urn:uuid:1234"), column.in_pipe("urn:uuid:1234")) == ("1234", "urn:uuid:1234")


def test_a_verdict_has_its_colour() -> None:
    lines, _ = drawn((word("verdict"),), [("blocked",), ("ok",)], 80)
    assert [[str(span.style) for span in line.spans] for line in lines] == [["bold"], ["bold red"], ["green"]]


LISTS = (
    ("message", "list"),
    ("message", "list", "state:held"),
    ("sequence", "list"),
    ("connection", "list"),
    ("connection", "show", "192.0.2.77:65535/0123456789abcdef"),
)


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_every_list_fits_eighty_columns(service: Service, command: tuple[str, ...]) -> None:
    for _ in range(2):
        made = service.sequence(
            1,
            2,
            4,
            action="http://example.com/orders/2026/placeOrderRequest",
            connection="192.0.2.77:65535/0123456789abcdef",
        )
        service.deliver(made, 1)
        service.fail(made, 2, "no disk")
    status, written = typed(*command, columns=80)
    assert status == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", written).splitlines()
    assert len(lines) > 2
    assert [line for line in lines if len(line) > 80] == []


def test_colours_are_left_out_where_the_environment_says_so(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.fail(service.sequence(1), 1, "no disk")
    assert "\x1b[1;31mblocked\x1b[0m" in typed("sequence", "list")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;31m" not in typed("sequence", "list")[1]


def test_a_short_identifier_that_a_list_shows_is_taken_by_every_command(wsrm: Wsrm, service: Service) -> None:
    identifiers = [service.sequence(1).terms.identifier for _ in range(3)]
    lines = typed("sequence", "list", "--store", service.path)[1].splitlines()
    shown = [line.split()[0] for line in lines[1:4]]
    assert [len(one) for one in shown] == [8, 8, 8]
    for identifier, short in zip(reversed(identifiers), shown, strict=True):
        assert identifier in wsrm("sequence", "show", short).stdout
        assert identifier in wsrm("sequence", "show", f"{short}…").stdout
