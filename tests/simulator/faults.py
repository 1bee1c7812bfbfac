"""Mistakes that are planted into the product as it is imported: the simulator has to find each by itself."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parents[2]
FAULTS: Final = Path(__file__).parent / "faults.toml"


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``find``, which stands in ``file`` exactly once, becomes ``replace``."""

    name: str
    file: str
    find: str
    replace: str

    def mutated(self) -> str:
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if text.count(self.find) != 1:
            raise ValueError(f"{self.name}: find stands in {self.file} {text.count(self.find)} times instead of once")
        return text.replace(self.find, self.replace)


def all_faults() -> dict[str, Fault]:
    return {
        fault.name: fault for fault in msgspec.toml.decode(FAULTS.read_bytes(), type=dict[str, list[Fault]])["fault"]
    }


class _Planted(importlib.machinery.PathFinder):
    """Finds one module with the mistake in it."""

    fault: Fault

    @classmethod
    def find_spec(cls, fullname: str, path: Sequence[str] | None = None, target: object = None):  # type: ignore[no-untyped-def]
        if fullname != cls.fault.file.removesuffix(".py").replace("/", "."):
            return None
        spec = super().find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        text = cls.fault.mutated()
        spec.loader = _Source(fullname, spec.origin, text)
        return spec


class _Source(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str):  # type: ignore[no-untyped-def]
        return compile(self._text, self.path, "exec")


def plant(name: str | None) -> None:
    """Plant a mistake, or none, in this process, which has not imported the product yet."""
    if name is not None:
        _Planted.fault = all_faults()[name]
        sys.meta_path.insert(0, _Planted)
