"""``wsrm-mq pipeline`` where PySpark is not installed; what it does with it is in ``tests/spark``."""

from __future__ import annotations

import sys

import pytest

from tests.support.commands import Wsrm


def test_without_pyspark_the_command_says_what_to_install(wsrm: Wsrm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("pyspark", "wsrm_mq.spark"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    done = wsrm("pipeline", "audit", "wsrm.db", "--out", "out")
    assert (done.exit_code, done.stderr) == (2, "wsrm-mq: PySpark is not installed: pip install 'wsrm-mq[spark]'.\n")
