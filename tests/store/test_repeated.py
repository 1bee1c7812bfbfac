from __future__ import annotations

import logging

import pytest

from wsrm_mq.store.repeated import Repeated

LOG = logging.getLogger("wsrm_mq.test")


def test_an_error_that_stays_is_told_whole_once_and_again_after_it_was_over(caplog: pytest.LogCaptureFixture) -> None:
    repeated = Repeated()
    for _ in range(3):
        repeated.tell(LOG, "store.failed", OSError("no space. Make room."))
    repeated.tell(LOG, "store.failed", OSError("another"))
    repeated.over()
    repeated.tell(LOG, "store.failed", OSError("another"))
    assert [record.getMessage() for record in caplog.records] == [
        "store.failed no space. Make room.",
        "store.failed another",
        "store.failed another",
    ]
