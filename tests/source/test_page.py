"""The pages on sending requests are followed as they stand."""

from __future__ import annotations

import pytest

from tests.deploy.page import HOWTO
from tests.support.pages import Shell, shell

__all__ = ["shell"]


@pytest.mark.timeout(300)  # they start many programs, one after the other
def test_a_client_of_zeep_s_sends_as_the_page_says(shell: Shell) -> None:
    assert shell.follow_page(HOWTO / "zeep.md") > 5


@pytest.mark.timeout(300)
def test_an_order_that_was_sent_while_there_was_no_partner_arrives_as_the_page_says(shell: Shell) -> None:
    assert shell.follow_page(HOWTO / "source.md") > 5


def test_orders_that_were_enqueued_with_their_work_arrive_once_as_the_page_says(shell: Shell) -> None:
    assert shell.follow_page(HOWTO / "enqueue.md") > 5
