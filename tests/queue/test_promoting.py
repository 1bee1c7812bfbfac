"""Promoted properties: values that are found in bodies, and bodies that give none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pages import DOCS
from wsrm_mq.errors import ConfigurationError, FilterError
from wsrm_mq.queue.filters import LONGEST, parse
from wsrm_mq.queue.promoting import promote, refuse_unusable
from wsrm_mq.store.filtering import Comparison, Field

ORDER = b"""<?xml version="1.0"?>
<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Header><who xmlns="urn:h">ann</who></s:Header>
<s:Body><o:order xmlns:o="urn:shop" kind="rush"><o:id>7</o:id><o:id>8</o:id><o:amount>12.50</o:amount>
<o:note>two <b>bold<!-- c --></b> words</o:note></o:order></s:Body></s:Envelope>"""
FOUND = {
    "//{urn:shop}id": "7",
    "number(//{urn:shop}id)": 7,
    "number(//{urn:shop}amount)": 12.5,
    "count(//{urn:shop}id) = 2": True,
    "//{urn:shop}order/@kind": "rush",
    "//{urn:shop}note": "two bold words",
    "//{urn:shop}note/text()": "two ",
    "//{urn:h}who": "ann",
    "local-name(//*[@kind])": "order",
}
NOT_FOUND = ("//id", "number(//id)", "1 div 0", "$.id", "//{urn:shop}id[nothing()]", "namespace::*")


@pytest.mark.parametrize("expression", FOUND)
def test_an_xpath_finds_a_property(expression: str) -> None:
    found = promote({"it": expression}, ORDER)
    assert found == {"it": FOUND[expression]}
    assert type(found["it"]) is type(FOUND[expression])


@pytest.mark.parametrize("expression", NOT_FOUND)
def test_an_expression_that_finds_nothing_gives_no_property(expression: str) -> None:
    refuse_unusable({"it": expression})
    assert promote({"it": expression, "who": "//{urn:h}who"}, ORDER) == {"who": "ann"}


def test_a_path_finds_a_property_in_json() -> None:
    body = {"id": "7", "order": {"lines": 3, "urgent": True, "sum": 2.0}, "list": [1], "none": None, "a b": 1}
    paths = ("id", "order.lines", "order.urgent", "order.sum", "order", "list", "none", "id.x", "a b", "//id")
    found = promote({path: f"$.{path}" for path in paths}, json.dumps(body).encode())
    assert found == {"id": "7", "order.lines": 3, "order.urgent": True, "order.sum": 2, "a b": 1}


def test_the_expressions_of_the_page_can_be_declared() -> None:
    page = (DOCS / "reference" / "filters.md").read_text(encoding="utf-8").partition("## Promoted")[2]
    expressions = re.findall(r"^\| `(.+)` \|", page, re.M)
    assert len(expressions) == 5
    for expression in expressions:
        refuse_unusable({"it": expression})
    assert promote(dict(zip("abcde", expressions, strict=True)), ORDER) == {
        "a": "7",
        "b": "rush",
        "c": 12.5,
        "d": False,
    }


def test_xml_is_read_in_the_charset_of_its_request() -> None:
    body = "<a>größe</a>".encode("iso-8859-1")
    assert promote({"a": "/a"}, body, "iso-8859-1") == {"a": "größe"}
    assert promote({"a": "/a"}, body) == {}
    assert promote({"a": "/a"}, b"<a/>", "klingon") == {}


BOMB = (
    b'<!DOCTYPE r [<!ENTITY a "' + b"x" * 1_000 + b'">'
    b'<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">'
    b'<!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;"><!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;">]>'
    b'<r id="&e;">&e;</r>'
)
BROKEN = (b"", b"<r>", b"\0", b"\xff\xfe<", b"{", b"[" * 100_000, b"<r>" * 100_000, BOMB, b"<!DOCTYPE r []><r>1</r>")


@pytest.mark.parametrize("body", BROKEN, ids=range(len(BROKEN)))
def test_a_body_that_cannot_be_read_or_has_a_dtd_gives_no_property(body: bytes) -> None:
    assert promote({"a": "//r", "b": "string(//@id)", "c": "$.id", "d": "count(//*)"}, body) == {}


def test_no_entity_reads_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    body = f'<!DOCTYPE r [<!ENTITY s SYSTEM "{secret.as_uri()}">]><r>&s;</r>'.encode()
    assert promote({"a": "//r"}, body) == {}
    with pytest.raises(ConfigurationError, match="Unregistered function"):
        refuse_unusable({"a": f"document('{secret.as_uri()}')"})


def test_what_no_filter_could_name_or_no_column_has_is_no_property() -> None:
    body = json.dumps(
        {"a": "x" * (LONGEST + 1), "b": "\0", "c": "\ud800", "d": 2**63, "e": float("nan"), "f": 2**63 - 1}
    )
    assert promote({name: f"$.{name}" for name in "abcdef"}, body.encode()) == {"f": 2**63 - 1}


WRONG = {
    "][": "it is no XPath",
    "//p:id": "Undefined namespace prefix",
    "nothing()": "Unregistered function",
    "$": r"a path into JSON is \$.name",
    "$.a[0]": r"a path into JSON is \$.name",
}


@pytest.mark.parametrize("expression", WRONG)
def test_an_expression_that_cannot_be_read_is_refused_when_it_is_declared(expression: str) -> None:
    with pytest.raises(ConfigurationError, match=f"The property id cannot be found by .*{WRONG[expression]}"):
        refuse_unusable({"id": expression})


def test_a_name_that_no_filter_can_say_is_refused_when_it_is_declared() -> None:
    names = ("a b", "1", "", "a'b", "-", "a/b")
    with pytest.raises(ConfigurationError) as raised:
        refuse_unusable(dict.fromkeys((*names, "größe", "_a.b-c"), "//id"))
    assert [problem.partition(" is no name")[0] for problem in raised.value.problems] == [repr(name) for name in names]


def is_named_by_a_filter(name: str) -> bool:
    try:
        return parse(f"/{name} = 1") == Comparison(Field(name, True), "=", (1,))
    except FilterError:
        return False


@given(st.from_regex(r"[\w.-]{1,8}|[a-z/ ']{0,5}", fullmatch=True))
def test_a_name_is_refused_if_and_only_if_no_filter_can_say_it(name: str) -> None:
    try:
        refuse_unusable({name: "//id"})
        is_refused = False
    except ConfigurationError:
        is_refused = True
    assert is_refused is not is_named_by_a_filter(name)


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: f"<a>{text}</a>".encode("utf-8", "replace")))
def test_whatever_a_body_is_it_gives_properties_or_none(body: bytes) -> None:
    found = promote({"a": "//a", "b": "$.id"}, body)
    assert set(found) <= {"a", "b"}
