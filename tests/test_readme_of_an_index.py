"""README.md on a package index: no link there leads to a file that is not there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)#\s][^)\s]*)\)")


@pytest.mark.parametrize("files", ["", "https://files.example/wsrm_mq/blob/v1"])
def test_links_lead_where_the_build_says_that_the_files_are_or_are_paths(tmp_path: Path, files: str) -> None:
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "WSRM_MQ_FILES": files}, check=True, stdout=subprocess.PIPE)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        shown = archive.read(metadata).decode()
    written = LINK.findall((ROOT / "README.md").read_text())
    assert len(written) > 20
    addresses = [f"{files}/{path}{'?raw=true' * bool(picture)}" for picture, path in written]
    assert [path for _, path in LINK.findall(shown)] == (addresses if files else [])
    if not files:
        assert all(f"`{path}`" in shown for picture, path in written if not picture)
