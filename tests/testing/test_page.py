"""The page on testing a service: its tests pass, and fail where the service is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pages import DOCS, Shell, blocks, session

PAGE = DOCS / "howto" / "testing.md"
WRONG = {
    "an operation that asks nobody whether it is new": ("if once(connection, ctx.transport.req_env):", "if True:", 1),
    "one that loses an order": ('connection.execute("INSERT', 'text == "order 4" or connection.execute("INSERT', 1),
}
"""What may be wrong with a service: what stands there instead, and how many tests say so at least."""


def write(directory: Path) -> None:
    for block in blocks(PAGE):
        named = re.match(r"# (\w+\.py)\n", block.text)
        if block.kind == "python" and named is not None:
            (directory / named[1]).write_text(block.text)


def test_the_tests_of_the_page_pass_as_it_says(shell: Shell, tmp_path: Path) -> None:
    write(tmp_path)
    for typed in (typed for block in blocks(PAGE) if block.kind == "console" for typed in session(block.text)):
        shell.follow(typed)


@pytest.mark.parametrize("fault", WRONG)
def test_the_tests_of_the_page_fail_where_the_service_is_wrong(shell: Shell, tmp_path: Path, fault: str) -> None:
    write(tmp_path)
    right, wrong, least = WRONG[fault]
    service = (tmp_path / "orders.py").read_text()
    assert right in service
    (tmp_path / "orders.py").write_text(service.replace(right, wrong))
    said = shell.type(
        "timeout 50 python -m pytest -q -p no:cacheprovider test_orders.py | grep -E '^[0-9]+ (passed|failed)'"
    )
    failed = re.search(r"(\d+) failed", said)
    assert failed is not None, said
    assert int(failed[1]) >= least, said
