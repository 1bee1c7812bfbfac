"""Bounds of the package that no option sets, as low as a test needs them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module


def lower(given: Mapping[str, object]) -> None:
    """``given`` is by dotted name: another value for a constant, or a mapping of arguments that a call then has."""
    for name, value in given.items():
        module, _, attribute = name.rpartition(".")
        place = import_module(module)
        found = getattr(place, attribute)
        setattr(place, attribute, partial(found, **value) if isinstance(value, Mapping) else value)
