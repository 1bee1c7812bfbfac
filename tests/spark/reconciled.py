"""What ``reconcile`` finds, in plain Python: a loop over what came, and sets of numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import ceil, floor
from typing import Any

Row = dict[str, Any]
Found = dict[str, list[tuple[Any, ...]]]


def of_numbers(messages: list[Row], sequences: list[Row], told: list[Row]) -> Found:
    came: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in sorted(messages, key=lambda one: one["position"]):
        if row["replay_of"] is None:
            came[row["store"], row["sequence"]].append(row["number"])
    found: Found = {name: [] for name in ("ranges", "gaps", "disorder", "repeated", "lacking")}
    for key, numbers in came.items():
        behind = [max(numbers[:place], default=0) - number for place, number in enumerate(numbers)]
        if late := sum(one > 0 for one in behind):
            found["disorder"].append((*key, len(numbers), late, max(behind)))
        found["repeated"] += [(*key, number) for number, times in Counter(numbers).items() if times > 1]
    last = {(one["store"], one["sequence"]): one["last_number"] or 0 for one in sequences if one["kind"] == "rm"}
    had = {key: set(came[key]) for key in last}
    for one in told:
        if (key := (one["store"], one["sequence"])) in had:
            had[key] |= {*range(one["lower"], one["upper"] + 1)}
    for (store, sequence), numbers in had.items():
        key, highest = (store, sequence), max(numbers, default=0)
        found["ranges"] += [(*key, *run) for run in runs(numbers)]
        for lower, upper in runs({*range(1, max(highest, last[key]) + 1)} - numbers):
            place = "last" if lower > highest else "first" if lower == 1 else "middle"
            found["gaps"].append((*key, lower, upper, upper - lower + 1, place))
        for other in had:
            if other[1] == sequence and other[0] != store:
                found["lacking"] += [(*key, *run, other[0]) for run in runs(had[other] - numbers)]
    return found


def runs(numbers: set[int]) -> list[tuple[int, int]]:
    """Consecutive ones, each as its first and its last."""
    firsts = (one for one in numbers if one - 1 not in numbers)
    lasts = (one for one in numbers if one + 1 not in numbers)
    return list(zip(sorted(firsts), sorted(lasts), strict=True))


def of_receipts(messages: list[Row]) -> list[tuple[Any, ...]]:
    """(message id, position, times, stores, deliveries, body) of each row of a message that came more than once."""
    came: dict[str, list[Row]] = defaultdict(list)
    known = set()
    for row in sorted(messages, key=lambda one: one["store"]):
        history = tuple(
            row[name] for name in ("message_id", "sequence", "number", "position", "received_at", "settled_at")
        )
        if row["replay_of"] is None and row["message_id"] is not None and history not in known:
            came[row["message_id"]].append(row)
            known.add(history)
    found = []
    for message_id, rows in came.items():
        digests = {row["body_digest"] for row in rows}
        body = "another" if len(digests - {None}) > 1 else "unknown" if None in digests else "same"
        deliveries = sum(row["outcome"] == "delivered" for row in rows)
        stores = len({row["store"] for row in rows})
        if len(rows) > 1:
            found += [(message_id, row["position"], len(rows), stores, deliveries, body) for row in rows]
    return found


def of_outcomes(messages: list[Row], ledger: list[Row]) -> Found:
    times: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    faults: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    dead: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    codes = {(one["store"], one["position"]): one["fault"] for one in ledger}
    for row in messages:
        queue = row["origin"] or row["queue"]
        if row["outcome"] == "delivered" and row["replay_of"] is None:
            hour = row["received_at"].replace(minute=0, second=0, microsecond=0)
            ms = round((row["settled_at"] - row["received_at"]).total_seconds() * 1_000)
            for key in ((row["queue"], hour), (row["queue"], None), (None, None)):
                times[key].append(ms)
        if row["reason"] == "answered_with_fault":
            code = codes.get((row["store"], row["position"]))
            faults[row["store"], row["queue"], row["outcome"], code].append(row)
        if row["outcome"] == "dead":
            dead[row["store"], queue, row["reason"]].append(row)
    latency = [
        (*key, len(each), *(percentile(sorted(each), share) for share in (0.5, 0.95, 0.99)), max(each))
        for key, each in times.items()
    ]
    return {"latency": latency, "faults": alarms(faults), "dead": alarms(dead)}


def percentile(values: list[float], share: float) -> float:
    """Between its two neighbours, as far as it lies between them."""
    at = (len(values) - 1) * share
    lower, upper = values[floor(at)], values[ceil(at)]
    return round(lower + (upper - lower) * (at - floor(at)), 3)


def alarms(groups: dict[tuple[Any, ...], list[Row]]) -> list[tuple[Any, ...]]:
    return [(*key, len(rows), sum(row["confirmed_at"] is None for row in rows)) for key, rows in groups.items()]
