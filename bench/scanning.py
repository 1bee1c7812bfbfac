"""What reading the headers costs, for a small and a large message."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator

from bench.figures import Bound, Figure
from bench.messages import FACTORY, message
from wsrm_mq.envelope.scan import scan

__all__ = ["measure"]

_CASE = "header scan"
_SMALL, _LARGE = 1_024, 10 * 1_024 * 1_024


def measure(rounds: int, times: int = 2_000) -> Iterator[Figure]:
    """``times`` scans of each kind in every round."""
    small, large = (message("urn:uuid:6ba7b810-9dad-41d1-80b4-00c04fd430c8", 7, size=size) for size in (_SMALL, _LARGE))
    with tempfile.TemporaryFile() as small_file, tempfile.TemporaryFile() as large_file:
        small_file.write(small)
        large_file.write(large)
        small_file.flush()
        large_file.flush()
        kinds: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "in memory": (lambda: _scan(small), lambda: _scan(large)),
            "in a file": (lambda: _scan_file(small_file), lambda: _scan_file(large_file)),
        }
        for where, pair in kinds.items():
            taken = [[_us(scanned, times) for scanned in pair] for _ in range(rounds)]
            yield Figure(_CASE, f"1 KB {where}", [one for one, _ in taken], "µs")
            yield Figure(_CASE, f"10 MB {where}", [other for _, other in taken], "µs")
            ratios = [other / one for one, other in taken]
            yield Figure(_CASE, f"10 MB to 1 KB, {where}", ratios, "×", Bound("<=", 1.2))


def _scan(source: bytes) -> object:
    return scan(source, FACTORY.content_type)


def _scan_file(source: object) -> object:
    source.seek(0)  # type: ignore[attr-defined]
    return scan(source, FACTORY.content_type)  # type: ignore[arg-type]


def _us(call: Callable[[], object], times: int) -> float:
    begun = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begun) / times * 1e6
