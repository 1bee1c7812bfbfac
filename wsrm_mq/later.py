"""Names of a package and modules that commands name are loaded when they are first used. What is imported stays
small, and help loads nothing."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import Lock, get_ident
from types import SimpleNamespace
from typing import Any, Final


def later(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package, or of a module. ``homes``: the module that has each name; one that begins with
    a dot is beside this one."""

    def found(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = sys.modules[package]
        value = getattr(import_module(homes[name], module.__package__), name)
        setattr(module, name, value)
        return value

    return found


_ONE_AT_A_TIME: Final = Lock()
_AT_ONCE: Final = builtins.__import__


class _Later:
    """A module, or a class that only annotations name: it is imported when an attribute of it is asked for."""

    def __init__(self, package: str, name: str) -> None:
        self._where = package, name

    def __getattr__(self, attribute: str) -> Any:
        package, name = self._where
        return getattr(getattr(__import__(package, fromlist=[name]), name), attribute)


@contextmanager
def on_use() -> Iterator[None]:
    """Within it ``from PACKAGE import module`` imports nothing yet, as ``lazy from`` of PEP 810 does. Other threads
    import as ever."""
    reader = get_ident()

    def unread(name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] = (), level: int = 0) -> Any:
        if get_ident() != reader:
            return _AT_ONCE(name, globals, locals, fromlist, level)
        return SimpleNamespace(**{one: _Later(name, one) for one in fromlist})

    with _ONE_AT_A_TIME:
        builtins.__import__ = unread  # type: ignore[assignment]
        try:
            yield
        finally:
            builtins.__import__ = _AT_ONCE
