"""XML as a person reads it, whatever a peer has sent."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Service
from tests.cli.test_terminal import typed
from wsrm_mq.cli.message import indented
from wsrm_mq.queue.arrival import Body

LAID_OUT = {
    "<a><b>text</b><c/><d></d></a>": "<a>\n  <b>text</b>\n  <c/>\n  <d></d>\n</a>",
    "\ufeff<?xml version='1.0'?>\n<a>\n\n <b x='1>2'/>\n</a>\n": "<?xml version='1.0'?>\n<a>\n  <b x='1>2'/>\n</a>",
    "<a>one <b>two</b> three</a>": "<a>one \n  <b>two</b>\n  three\n</a>",
    "<a><!-- <b> --><![CDATA[<c>]]></a>": "<a>\n  <!-- <b> -->\n  <![CDATA[<c>]]>\n</a>",
    "<a> x </a>": "<a> x </a>",
    "<a><b>cut of": "<a>\n  <b>cut of",
    "</a></b><c>": "</a>\n</b>\n<c>",
    "--boundary\r\n<a><b/></a>": "--boundary\r\n<a><b/></a>",
    "": "",
}


@pytest.mark.parametrize("text", LAID_OUT)
def test_each_element_has_a_line_and_one_with_only_text_is_one(text: str) -> None:
    assert indented(text) == LAID_OUT[text]


@given(st.text("<>/ab \"'![]CDAT-?&;\n", max_size=60))
def test_nothing_is_lost_but_blanks(text: str) -> None:
    assert "".join(indented(f"<{text}").split()) == "".join(f"<{text}".split())


@pytest.mark.parametrize("piece", ["<", '<"', "<a ", "<a/", "<!--", "<a b='", "</", "<a>", "<![CDATA["])
def test_what_is_meant_to_be_slow_is_not(piece: str) -> None:
    began = time.process_time()
    indented(piece * (65_536 // len(piece)))
    assert time.process_time() - began < 2


def test_a_body_is_indented_on_a_terminal_and_without_effect_there(service: Service) -> None:
    service.sequence(1, body=Body(b"<a><b>\x1b[2J</b><c/></a>"))
    assert typed("message", "body", 1) == (0, "<a>\r\n  <b>\\x1b[2J</b>\r\n  <c/>\r\n</a>\r\n")
