"""The pictures of README and documentation are what the code draws, and can be read in light and dark."""

from __future__ import annotations

import runpy
from itertools import pairwise
from typing import Any

import pytest
from lxml import etree

from tests.support.pages import DOCS, ROOT

DRAWN: dict[str, Any] = runpy.run_path(str(DOCS / "pictures" / "draw.py"))
NAMES = list(DRAWN["PICTURES"])
SVG = "{http://www.w3.org/2000/svg}"
WIDEST = 8.4
"""Pixels of a character, in a wide face of 14 px."""


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_what_the_code_draws_and_is_shown(name: str) -> None:
    assert (DOCS / "pictures" / f"{name}.svg").read_text() == DRAWN["PICTURES"][name](), "make pictures"
    pages = ["ARCHITECTURE.md"] if name == "rooms" else ["README.md", *DOCS.glob("**/*.md")]
    assert any(f"pictures/{name}.svg)" in (ROOT / page).read_text() for page in pages)


@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_wider_than_its_box_or_leaves_the_picture(name: str) -> None:
    root = etree.fromstring(DRAWN["PICTURES"][name]().encode())
    width, height = float(root.get("width")), float(root.get("height"))
    parts = [part for part in root if part.tag in (f"{SVG}rect", f"{SVG}text")]
    for part in (part for part in parts if part.tag == f"{SVG}text"):
        x, length = float(part.get("x")), WIDEST * len(part.text)
        left = (
            x
            if part.get("text-anchor") == "start"
            else x - (length if part.get("text-anchor") == "end" else length / 2)
        )
        assert left >= 4, part.text
        assert left + length <= width, part.text
        assert 0 < float(part.get("y")) < height, part.text
    for rect, said in pairwise(parts):
        if "box" in (rect.get("class") or "") and said.tag == f"{SVG}text":
            assert WIDEST * len(said.text) <= float(rect.get("width")), said.text


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colours", ["LIGHT", "DARK"])
def test_text_stands_out_from_what_it_stands_on(colours: str) -> None:
    """As WCAG 2.1 measures it: 4.5 to 1."""
    of = DRAWN[colours]
    for ink in ("ink", "soft"):
        for ground in set(of) - {"ink", "soft"}:
            dark, light = sorted((luminance(of[ink]), luminance(of[ground])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)
