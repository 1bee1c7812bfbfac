"""What the scenarios share."""

from __future__ import annotations

import pytest

from wsrm_mq.testing import EnvelopeFactory


@pytest.fixture
def speak() -> EnvelopeFactory:
    """Envelopes in one combination of versions: the scenarios depend on none."""
    return EnvelopeFactory()
