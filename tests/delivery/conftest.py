from __future__ import annotations

import pytest

from wsrm_mq.delivery import watch


@pytest.fixture
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> float:
    """The watch looks so often, in seconds, in tests to which the time between two looks says nothing."""
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.1)
    return watch.POLL_SECONDS
