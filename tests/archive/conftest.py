from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where an archive of ``one``'s store is, or will be."""
    return tmp_path / "archive"
