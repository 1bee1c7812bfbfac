"""How many examples Hypothesis makes for the tests that need a store for each: fewer in a plain run.

``tests/conftest.py`` says whether all are made, before the tests are imported: with ``--long``, ``--ci`` and
``--conformance``.
"""

from __future__ import annotations

from typing import Final

PLAIN_SHARE: Final = 4
are_all = True


def examples(count: int) -> int:
    """``count``, or a quarter of it in a plain run."""
    return count if are_all else count // PLAIN_SHARE
