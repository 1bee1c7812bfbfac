"""The filter language: what can be written, and what a wrong filter is told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.queue.filter_trees import filters, text_of
from wsrm_mq.errors import FilterError
from wsrm_mq.queue.filters import DEEPEST, LONGEST, MOST, parse
from wsrm_mq.store.filtering import Comparison, Every, Field, Not, Some

ID = Field("id", False)
READ = {
    "id = '7'": Comparison(ID, "=", ("7",)),
    "/id='7'": Comparison(Field("id", True), "=", ("7",)),
    "id = 7": Comparison(ID, "=", (7,)),
    "id = -7.5e1": Comparison(ID, "=", (-75.0,)),
    "id = 9223372036854775808": Comparison(ID, "=", (2.0**63,)),
    "id = TRUE": Comparison(ID, "=", (True,)),
    "id <> 7": Comparison(ID, "!=", (7,)),
    "id like '7%'": Comparison(ID, "like", ("7%",)),
    "id Not Like '7%'": Not(Comparison(ID, "like", ("7%",))),
    "id in ('a', 2)": Comparison(ID, "in", ("a", 2)),
    "id not in ('a')": Not(Comparison(ID, "in", ("a",))),
    "id is null": Comparison(ID, "is null"),
    "id IS NOT NULL": Not(Comparison(ID, "is null")),
    "/and = 'or'": Comparison(Field("and", True), "=", ("or",)),
    "not not id = 1": Not(Not(Comparison(ID, "=", (1,)))),
    "id = 1 or id = 2 and id = 3": Some(
        (Comparison(ID, "=", (1,)), Every((Comparison(ID, "=", (2,)), Comparison(ID, "=", (3,)))))
    ),
    "(id = 1 or id = 2) and id = 3": Every(
        (Some((Comparison(ID, "=", (1,)), Comparison(ID, "=", (2,)))), Comparison(ID, "=", (3,)))
    ),
    " id = 'O''Hara' ": Comparison(ID, "=", ("O'Hara",)),
    "größe.x-y >= 4": Comparison(Field("größe.x-y", False), ">=", (4,)),
    "/priority = 'high'": Comparison(Field("priority", True), "=", ("high",)),
}


@pytest.mark.parametrize("text", READ)
def test_a_filter_is_read(text: str) -> None:
    assert parse(text) == READ[text]


@given(filters())
def test_every_filter_can_be_written(tree: object) -> None:
    assert parse(text_of(tree)) == tree  # type: ignore[arg-type]


WRONG = {
    "": ("", "A field is expected here, not the end. Write a condition as region = 'eu'"),
    "region": ("", "There is no comparison behind region. Write =, !=, <,"),
    "region =": ("", "A value is expected here, not the end. Write 'a text', a number, true or false."),
    "region = eu": ("eu", "A field is compared with a value. Write 'eu' in quotes if this is a text."),
    "region = /other": ("/other", "A value is expected here, not /other."),
    "region == 'eu'": ("==", "Write = for equal."),
    'region = "eu"': ('"eu"', "Write texts in single quotes, 'eu'."),
    "region = 'eu": ("'", "This text has no end; a quote within it is written twice, 'O''Hara'."),
    "region = 'O'Hara'": ("Hara", "Hara is not expected here. Conditions are joined with and, or."),
    "region = null": ("null", "Nothing is equal to null. Write is null, or is not null."),
    "region is 'eu'": ("'eu'", "Behind is stands null or not null."),
    "region like 5": ("5", "Behind like stands a text, 'eu%'"),
    "region in 'eu'": ("'eu'", "Behind in stand values in brackets, ('a', 'b')."),
    "region in ('eu' 'us')": ("'us'", "Behind a value of in stands a comma or the closing bracket."),
    "region in ()": (")", "A value is expected here, not )."),
    "region not = 'eu'": ("=", "There is no comparison behind region."),
    "(region = 'eu'": ("", "This bracket has no end."),
    "region = 'eu')": (")", ") is not expected here."),
    "region = 'eu' size = 4": ("size", "size is not expected here. Conditions are joined with and, or."),
    "region = 'eu' && size = 4": ("&&", "Write and."),
    "region = 'eu' || size = 4": ("||", "Write or."),
    "!region = 'eu'": ("!", "Write not, or != for not equal."),
    "'eu' = region": ("'eu'", "A field is expected here, not 'eu'."),
    "size = '4'": ("'4'", "size is a number: write it without quotes. /size is the property of this name."),
    "size = true": ("true", "size is a number"),
    "size like '4'": ("'4'", "size is a number"),
    "type = 4": ("4", "type is a text: write it in quotes."),
    "order/id = 4": ("/id", "There is no comparison behind order."),
    "id = 4x": ("4x", "4x is no part of a filter."),
    "id = 4; DROP TABLE entry": (";", "; is no part of a filter."),
    "id = 'a\0'": ("'a '", "No stored text has such a character. Leave it out."),
    "id = '\udc80'": ("' '", "No stored text has such a character."),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_filter_is_told_where_it_is_wrong_and_what_to_write(text: str) -> None:
    word, said = WRONG[text]
    with pytest.raises(FilterError) as raised:
        parse(text)
    line, mark = raised.value.pointed
    assert said in str(raised.value)
    assert line[mark.index("^") :][: len(word)] == word
    assert str(raised.value).endswith(f"(Character {mark.index('^') + 1} of the filter.)")


def test_a_filter_is_bounded() -> None:
    too_large = (
        f"id = '{'x' * LONGEST}'",
        f"id in ({', '.join('1' * (MOST + 1))})",
        " or ".join(["id is null"] * (MOST + 1)),
        "(" * (DEEPEST + 1) + "id = 1" + ")" * (DEEPEST + 1),
        "not " * (DEEPEST + 1) + "id = 1",
    )
    for text in too_large:
        with pytest.raises(FilterError, match=r"may (have|stand)"):
            parse(text)


PIECES = st.sampled_from(
    [
        *("id", "/id", "size", "'a'", "'", "''", "4", "-", "=", "!", "<", ">", "(", ")", ",", "/", '"', "&"),
        *(
            " and ",
            " or ",
            " not ",
            " in ",
            " like ",
            " is ",
            " null ",
            " true ",
            "\n",
            "\0",
            "\ud800",
            "²",
            "٣",
            "1e999",
        ),
    ]
)


@settings(deadline=None)
@given(st.text(max_size=60) | st.lists(PIECES, max_size=12).map(" ".join) | st.lists(PIECES, max_size=20).map("".join))
def test_whatever_is_written_is_a_filter_or_an_error_that_points_into_it(text: str) -> None:
    try:
        parse(text)
    except FilterError as error:
        line, mark = error.pointed
        assert (len(line), mark.strip("^ ")) == (len(text), "")
        assert len(mark) <= len(line) + 1
        said = str(error)
        assert said.isprintable()
