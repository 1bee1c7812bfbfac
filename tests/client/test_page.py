"""The pages on the Python client, and on queues of other nodes, are followed as they stand."""

from __future__ import annotations

import pytest

from tests.deploy.page import HOWTO
from tests.support.pages import Shell, shell

__all__ = ["shell"]

pytestmark = pytest.mark.timeout(400)


def test_an_order_that_was_put_while_there_was_no_server_is_taken_as_the_page_says(shell: Shell) -> None:
    assert shell.follow_page(HOWTO / "queue-client.md") > 5


def test_a_queue_of_another_node_is_read_and_looked_at_when_that_is_killed_as_the_page_says(shell: Shell) -> None:
    assert shell.follow_page(HOWTO / "queues-of-other-nodes.md") > 12
