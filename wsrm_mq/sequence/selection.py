"""Which ranges an answer tells, where there are too many for one: a short request is not to get a huge answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wsrm_mq.sequence.elements import SequenceAcknowledgement

MOST_RANGES: Final = 512
"""Of all acknowledgements in one answer."""


def within(
    acknowledgements: Sequence[SequenceAcknowledgement], number: int | None, most: int = MOST_RANGES
) -> Sequence[SequenceAcknowledgement]:
    """``acknowledgements`` with at most ``most`` ranges in all, each as it was: what is left out is not acknowledged
    yet, and the source asks or sends again.

    Of the first one, which is about the request itself, the range that holds ``number`` is told, or a source would
    resend for ever what it has just sent; then, from the lowest on, those that let its window move. A final one is told
    whole: what it leaves out was lost for good. Of those behind the first, what finds no room is left out altogether.
    """
    if len(acknowledgements) == 1 and len(acknowledgements[0].ranges) <= most:  # nearly every answer
        return acknowledgements
    if sum(len(told.ranges) for told in acknowledgements) <= most:
        return acknowledgements
    chosen: list[SequenceAcknowledgement] = []
    left = most
    for told in acknowledgements:
        is_first = not chosen
        if len(told.ranges) > left and not told.final:
            told = told._replace(ranges=_chosen(told.ranges, number if is_first else None, max(left, 1)))
        if is_first or (told.ranges and len(told.ranges) <= left):
            chosen.append(told)
            left -= len(told.ranges)
        if left <= 0:
            break
    return chosen


def _chosen(ranges: tuple[tuple[int, int], ...], number: int | None, most: int) -> tuple[tuple[int, int], ...]:
    own = [one for one in ranges[most - 1 :] if number is not None and one[0] <= number <= one[1]]
    return (*ranges[: most - 1], *(own or ranges[most - 1 : most]))
