"""The parts of the bench, by the letter under which one is chosen."""

from __future__ import annotations

from typing import Final

from bench.parts import floors, held_memory, in_order, mix, open_sequences, profile, slow_application, two_way
from bench.samples import Part

__all__ = ["PARTS"]

PARTS: Final[dict[str, Part]] = {
    "a": in_order.PART,
    "b": slow_application.PART,
    "c": two_way.PART,
    "d": open_sequences.PART,
    "e": held_memory.PART,
    "f": mix.PART,
    "g": profile.PART,
    "h": floors.PART,
}
