"""Thresholds in Nagios' own notation."""

from __future__ import annotations

import re
from typing import NamedTuple


class Range(NamedTuple):
    """``10`` (0 to 10), ``10:``, ``~:10``, ``10:20``, ``@10:20``. What lies outside alarms; with ``@`` what lies
    inside."""

    text: str
    lower: float
    upper: float
    is_inside: bool

    @classmethod
    def parse(cls, text: str) -> Range:
        """Raises ``ValueError``."""
        found = re.fullmatch(r"(@?)(?:(~|-?[\d.]+)?:)?(-?[\d.]+)?", text)
        if found is None or not text.strip("@"):
            raise ValueError(text)
        inside, start, end = found.groups()
        lower = float("-inf") if start == "~" else float(start or 0)
        return cls(text, lower, float("inf") if end is None else float(end), bool(inside))

    def alarms(self, value: float) -> bool:
        return (self.lower <= value <= self.upper) is self.is_inside
