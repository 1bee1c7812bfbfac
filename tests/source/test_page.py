"""The page on sending requests is followed as it stands."""

from __future__ import annotations

from tests.deploy.page import HOWTO
from tests.support.pages import Shell, shell

__all__ = ["shell"]


def test_an_order_that_was_sent_while_there_was_no_partner_arrives_as_the_page_says(shell: Shell) -> None:
    assert shell.follow_page(HOWTO / "source.md") > 5
