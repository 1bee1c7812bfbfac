"""What the scenarios share."""

from __future__ import annotations

import pytest

from tests.support.orders import Orders


@pytest.fixture
def speak() -> Orders:
    """Envelopes in one combination of versions: the scenarios depend on none."""
    return Orders()
