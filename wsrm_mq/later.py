"""Names of a package whose modules are imported when a name of theirs is first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


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
