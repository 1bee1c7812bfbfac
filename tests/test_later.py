"""Names of a package whose modules are imported when a name is first asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

PACKAGE = """
from wsrm_mq.later import later
__getattr__ = later(__name__, {"VALUE": ".far", "LOST": ".nowhere"})
"""


def test_a_module_is_imported_when_a_name_of_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_rooms").mkdir()
    (tmp_path / "some_rooms" / "__init__.py").write_text(PACKAGE)
    (tmp_path / "some_rooms" / "far.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import some_rooms

    assert "some_rooms.far" not in sys.modules
    assert some_rooms.VALUE == 1
    assert vars(some_rooms)["VALUE"] == 1
    with pytest.raises(ImportError):
        some_rooms.LOST  # noqa: B018 - it is asked for
    with pytest.raises(AttributeError, match="'some_rooms' has no attribute 'NONE'"):
        some_rooms.NONE  # noqa: B018 - it is asked for
