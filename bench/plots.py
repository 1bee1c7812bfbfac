"""The tables as pictures: bars, one group for each case and one colour for each subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.parts import PARTS
from bench.report import Measured
from bench.samples import Sample, medians, per_round

__all__ = ["draw"]

_WIDTH = 0.8
"""Of a group, where the next one is 1 away."""


def draw(measured: Measured, directory: Path) -> None:
    """One SVG for each part that has something to draw."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "wsrm-mq"  # the same figures give the same file
    from matplotlib import pyplot

    directory.mkdir(parents=True, exist_ok=True)
    for letter, samples in measured.items():
        part = PARTS[letter]
        if not part.plotted:
            continue
        figure, axes = pyplot.subplots(
            len(part.plotted), 1, figsize=(9, 3.6 * len(part.plotted)), squeeze=False, layout="constrained"
        )
        subjects = dict.fromkeys(sample.subject for sample in samples)
        colours = {subject: f"C{index}" for index, subject in enumerate(subjects)}
        for axis, (key, label) in zip(axes[:, 0], part.plotted, strict=True):
            _bars(axis, samples, key, label, colours)
        figure.suptitle(part.title)
        figure.savefig(directory / f"{letter}.svg", metadata={"Date": None})
        pyplot.close(figure)


def _bars(axis: Any, samples: Sequence[Sample], key: str, label: str, colours: Mapping[str, str]) -> None:
    shown = [sample for sample in samples if key in sample.values]
    cases = list(dict.fromkeys(sample.case for sample in shown))
    subjects = list(dict.fromkeys(sample.subject for sample in shown))
    width = _WIDTH / max(1, len(subjects))
    for index, subject in enumerate(subjects):
        of_subject = [(place, case) for place, case in enumerate(cases) if per_round(shown, case, subject, key)]
        places = [place + (index - (len(subjects) - 1) / 2) * width for place, _ in of_subject]
        values = [medians(shown, case, subject)[key] for _, case in of_subject]
        rounds = [per_round(shown, case, subject, key) for _, case in of_subject]
        spread = [
            [v - min(r) for v, r in zip(values, rounds, strict=True)],
            [max(r) - v for v, r in zip(values, rounds, strict=True)],
        ]
        axis.bar(places, values, width, yerr=spread, label=subject, color=colours[subject], error_kw={"linewidth": 0.8})
    axis.set_xticks(range(len(cases)), cases)
    axis.set_ylabel(label)
    axis.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
