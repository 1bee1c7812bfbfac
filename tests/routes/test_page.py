"""The page on sending to other nodes is followed as it stands."""

from __future__ import annotations

import pytest

from tests.deploy.page import HOWTO
from tests.support.pages import Shell, shell

__all__ = ["shell"]


@pytest.mark.timeout(300)
@pytest.mark.timeout(300)
def test_an_order_arrives_over_a_hub_that_was_away_as_the_page_says(shell: Shell) -> None:
    assert shell.follow_page(HOWTO / "send-to-other-nodes.md", 90) > 15
