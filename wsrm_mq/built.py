"""How this package was built: a wheel may have its hot modules compiled, from the same source.

What is compiled behaves alike, but a profile, a traceback's locals and a patched global do not: who reports a problem
is asked for ``wsrm-mq --version``.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final

__all__ = ["build", "is_compiled"]

_A_HOT_MODULE: Final = "wsrm_mq.sequence.ranges"
"""Any of those that pyproject.toml names would do; they are compiled together."""


def is_compiled() -> bool:
    found = find_spec(_A_HOT_MODULE)  # it is not imported: the command line stays quick
    return found is not None and (found.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def build() -> str:
    return "compiled" if is_compiled() else "pure Python"
