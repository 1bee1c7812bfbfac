"""What a fuzzer has found."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fuzz.messages import Case


class Failed(Exception):
    """An invariant does not hold; the case is in ``case``."""

    def __init__(self, reason: str, case: Case | None = None) -> None:
        super().__init__(reason)
        self.case = case


def report(failed: Failed, seed: int, place: Path) -> None:
    sys.stderr.write(f"FAILED (seed {seed}): {failed}\n")
    if failed.case is not None:
        place.mkdir(parents=True, exist_ok=True)
        (place / f"seed-{seed}.bin").write_bytes(failed.case.body)
        sys.stderr.write(f"{failed.case._replace(body=b'')}; its body is in {place / f'seed-{seed}.bin'}\n")
