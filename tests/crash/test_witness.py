"""What is taken for a kill has to be one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.crash.witness import Witness
from tests.support.orders_server import OrdersServer, within


def test_a_server_that_ends_by_itself_was_not_killed(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    witness.start()
    os.kill(witness.pid, signal.SIGTERM)
    with pytest.raises(AssertionError, match="it was not killed, it ended with 0"):
        witness.wait()


def test_a_server_that_has_ended_cannot_be_killed(tmp_path: Path) -> None:
    witness, orders = Witness(tmp_path / "witness"), OrdersServer(tmp_path)
    for server in (witness, orders):
        server.store.parent.mkdir(exist_ok=True)
        server.start()
        os.kill(server.pid, signal.SIGTERM)
        assert within(10, lambda: server.is_alive, lambda lives: not lives) is False  # noqa: B023
        with pytest.raises(AssertionError, match=r"had ended (already|before it was killed)"):
            server.kill()
