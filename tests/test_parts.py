"""Several messages in one body, whatever its pieces are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsrm_mq.parts import (
    HEAD_BYTES,
    Malformed,
    Part,
    Reader,
    TooLarge,
    boundary_of,
    content_type,
    new_boundary,
    written,
)

BODIES = st.lists(st.one_of(st.binary(max_size=50), st.sampled_from([b"\r\n--", b"\r\n--b\r\n", b"--b--", b"\r\n"])))


def read(raw: bytes, boundary: str, step: int = 1, most_bytes: int = 100, most_parts: int = 1000) -> list[Part]:
    reader = Reader(boundary, most_bytes, most_parts)
    found = [part for at in range(0, len(raw), step) for part in reader.feed(raw[at : at + step])]
    assert reader.has_ended
    return found


@given(BODIES, st.integers(1, 200))
def test_what_is_written_is_read(bodies: list[bytes], step: int) -> None:
    boundary = new_boundary()
    parts = [({"Content-Type": "a/b", "Message": f'{{"n": {n}}}'}, body) for n, body in enumerate(bodies)]
    found = read(b"".join(written(boundary, parts)), boundary, step)
    assert found == [Part({"content-type": "a/b", "message": head["Message"]}, body) for head, body in parts]


def test_a_body_of_another_sender_is_read() -> None:
    raw = b"preamble\r\n--x\r\n\r\nno headers\r\n--x  \r\ncontent-TYPE:text/plain\r\n\r\n\r\n--x--\r\nepilogue"
    assert read(b"--x\r\n\r\n\r\n--x--", "x") == [Part({}, b"")]
    assert read(raw.replace(b"preamble", b""), "x") == [
        Part({}, b"no headers"),
        Part({"content-type": "text/plain"}, b""),
    ]
    assert read(raw, "x", step=1000)[0].body == b"no headers"


@pytest.mark.parametrize(
    "raw",
    [
        b"--x\r\nno colon\r\n\r\n\r\n--x--",
        b"--x\r\na: 1\r\nA: 2\r\n\r\n\r\n--x--",
        b"--xy\r\n\r\n\r\n--x--",
        b"--x\r\n--x--",
    ],
)
def test_what_is_no_part_is_refused(raw: bytes) -> None:
    with pytest.raises(Malformed):
        read(raw, "x")


def test_a_part_that_is_too_large_is_refused_before_it_is_whole() -> None:
    reader = Reader("x", 100, 10)
    reader.feed(b"--x\r\n\r\n")
    reader.feed(b"y" * HEAD_BYTES)
    with pytest.raises(TooLarge):
        reader.feed(b"y" * 200)
    with pytest.raises(TooLarge):
        read(b"--x\r\n\r\n" + b"y" * 101 + b"\r\n--x--", "x", 1000)


def test_there_are_so_many_parts_and_not_more() -> None:
    raw = b"".join(written("x", [({}, b"y")] * 3))
    assert len(read(raw, "x", most_parts=3)) == 3
    with pytest.raises(TooLarge):
        read(raw, "x", most_parts=2)


@pytest.mark.parametrize(
    ("text", "boundary"),
    [
        (content_type("abc"), "abc"),
        ('Multipart/Mixed; charset=x; boundary="a b"', "a b"),
        ("multipart/mixed;boundary=q", "q"),
        ("multipart/mixed", None),
        ("multipart/related; boundary=x", None),
        ("", None),
    ],
)
def test_a_content_type_names_its_boundary(text: str, boundary: str | None) -> None:
    assert boundary_of(text) == boundary
