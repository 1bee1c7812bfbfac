"""Modules that are loaded when they are first used, and not before."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest

from wsrm_mq.later import on_use


def test_a_module_is_imported_when_something_of_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_rooms").mkdir()
    (tmp_path / "some_rooms" / "later.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with on_use():
        from some_rooms import later as unread
    assert "some_rooms" not in sys.modules
    assert unread.VALUE == 1
    from some_rooms import later

    later.VALUE = 2
    assert unread.VALUE == 2


def test_what_is_not_there_is_told_when_it_is_asked_for() -> None:
    with on_use():
        from no_such_rooms import nowhere
    with pytest.raises(ImportError):
        nowhere.VALUE  # noqa: B018 - it is asked for


def test_another_thread_imports_as_ever_meanwhile() -> None:
    found = []

    def read() -> None:
        from wsrm_mq import versions

        found.append(versions)

    with on_use():
        other = Thread(target=read)
        other.start()
        other.join()
    assert isinstance(found[0], ModuleType)
