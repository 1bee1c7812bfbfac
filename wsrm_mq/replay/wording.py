"""What a plan says in words about what will happen."""

from __future__ import annotations

from collections import Counter

from wsrm_mq.replay.plan import BREAKS_ORDER, COPIED, DUPLICATE, KEY_HEADER, OLD

_DAY = 86_400_000
_UNSETTLED = ("held", "ready", "leased", "dead")


def warnings(
    target: str, as_new: bool, counts: Counter[str], age: int, marks_kept: int | None, *, is_copied: bool = False
) -> tuple[str, ...]:
    """``counts``: of states and flags; ``age``: of the oldest message, in ms. ``is_copied``: what is replayed stays in
    its queue as it is."""
    unsettled = sum(counts[state] for state in _UNSETTLED)
    known = counts[DUPLICATE]
    texts = []
    if as_new:
        texts.append(
            "Effects repeat: every message has this plan's id as replay id, so the inbox (`once`) takes it for new."
            f" Delivered before, and to be done again: {known}."
        )
    elif known:
        texts.append(
            f"Delivered before: {known}. A service that marks what it has done (`once`) knows them again; any other"
            " does its work again."
        )
        texts += _of_forgotten(counts, age, marks_kept)
    if counts[BREAKS_ORDER]:
        texts.append(
            f"Out of the order of their sequences: {counts[BREAKS_ORDER]}. Messages that this plan leaves out should"
            " come before them, or were delivered after them."
        )
    if counts[COPIED]:
        texts.append(
            f"In more than one store: {counts[COPIED]}. One of them was put back from a copy (`wsrm-mq store adopt`);"
            " the plan has each of these messages once."
        )
    if unsettled and is_copied:
        texts.append(
            f"Dead letters: {unsettled}. They stay in the queues of their nodes, and a redrive there would deliver them"
            " once more."
        )
    elif unsettled:
        texts.append(
            f"Undelivered, or dead letters: {unsettled}. The run takes them out of their queues; they are delivered by"
            " it alone. It holds the sequences of undelivered ones until it has ended: what else they have waits."
        )
    if "://" in target:
        texts.append(
            "At least once there: a message whose answer is lost is sent again. Its key goes along in the header"
            f" {KEY_HEADER}, so that the target can know it again."
        )
    return tuple(texts)


def _of_forgotten(counts: Counter[str], age: int, marks_kept: int | None) -> list[str]:
    if marks_kept is None and age < _DAY:
        return []
    if marks_kept is None:
        return [
            f"The oldest message is {age / _DAY:.1f} days old. A service that forgets its marks (`forget`) sooner takes"
            " it for new; --marks-kept says how long it keeps them, and which messages are older."
        ]
    if not counts[OLD]:
        return []
    return [
        f"Older than the {marks_kept / _DAY:g} days for which the service keeps its marks: {counts[OLD]}. It takes them"
        " for new."
    ]
