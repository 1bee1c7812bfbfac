from __future__ import annotations

import pytest

from wsrm_mq.events.telling import Events
from wsrm_mq.store.lasting import Repeated

EVENTS = Events()


def test_an_error_that_stays_is_told_whole_once_and_again_after_it_was_over(caplog: pytest.LogCaptureFixture) -> None:
    repeated = Repeated()
    for _ in range(3):
        repeated.tell(EVENTS, "store.write_failed", OSError("no space. Make room."))
    repeated.tell(EVENTS, "store.write_failed", OSError("another"))
    repeated.over()
    repeated.tell(EVENTS, "store.write_failed", OSError("another"))
    assert [record.getMessage() for record in caplog.records] == [
        'store.write_failed error="no space. Make room."',
        "store.write_failed error=another",
        "store.write_failed error=another",
    ]
