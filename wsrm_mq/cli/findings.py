"""What needs attention, on the screen and as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from wsrm_mq.cli.explain import renamed, source_of, told_source
from wsrm_mq.cli.output import is_terminal, prose, write
from wsrm_mq.cli.place import Place

if TYPE_CHECKING:
    from wsrm_mq.store.port import Database
    from wsrm_mq.views.attention import Finding

SHOWN: Final = 3
"""Findings of a kind on the screen."""
TOLD: Final = 100
"""Findings of a kind in JSON."""
MARGIN: Final = 10
STYLES: Final = {"critical": "bold red", "warning": "yellow", "notice": "cyan"}


def _first(findings: Iterable[Finding], most: int) -> dict[str, list[Finding]]:
    """The first of each kind, in the order of the kinds."""
    kinds: dict[str, list[Finding]] = defaultdict(list)
    for one in findings:
        if len(kinds[one.kind]) < most:
            kinds[one.kind].append(one)
    return kinds


def shorter_names(db: Database, findings: list[Finding]) -> dict[str, str]:
    """Identifiers of sequences on the screen, by which commands know them; none in a pipe."""
    from wsrm_mq.views.naming import shortened

    shown = (one for few in _first(findings, SHOWN).values() for one in few)
    return shortened(db, (one.fact.view.identifier for one in shown if one.fact.view)) if is_terminal() else {}


def show_findings(place: Place, findings: list[Finding], shorter: Mapping[str, str]) -> None:
    from wsrm_mq.views.attention import MEASURES

    if not findings:
        prose("Nothing needs attention.", "OK", margin=MARGIN, style="green")
    counts = {kind: sum(one.kind == kind for one in findings) for kind in MEASURES}
    for kind, few in _first(findings, SHOWN).items():
        for one in few:
            _show(place, one, shorter)
        if counts[kind] > len(few):
            listing = MEASURES[kind].listing
            command = "" if listing is None else f": {place.line(listing)}"
            write(f"{'':<{MARGIN}}and {counts[kind] - len(few)} more{command}")


def _show(place: Place, finding: Finding, shorter: Mapping[str, str]) -> None:
    fact, word = finding.fact, finding.severity.name.lower()
    text = fact.sentence
    if fact.view is not None:
        name = shorter.get(fact.view.identifier, fact.view.identifier)
        whence = f"to {fact.target}" if fact.target else f"from {told_source(source_of(place, fact.view))}"
        whence = f"of {fact.view.queue}" if fact.view.kind == "group" else whence
        text = f"{name} {whence}: {fact.verdict}. {text}"
    prose(text, word.upper(), margin=MARGIN, style=STYLES[word])
    for step in place.offered(fact.steps[:1]):
        write(f"{'':<{MARGIN}}next: {renamed(step.command, shorter)}")


def as_documents(place: Place, findings: list[Finding]) -> list[dict[str, Any]]:
    return [_document(place, one) for few in _first(findings, TOLD).values() for one in few]


def _document(place: Place, finding: Finding) -> dict[str, Any]:
    fact = finding.fact
    return {
        "kind": finding.kind,
        "severity": finding.severity.name.lower(),
        "sentence": fact.sentence,
        "messages": fact.messages,
        "since": fact.since,
        "queue": fact.view.queue if fact.view is not None else fact.queue,
        "sequence": fact.view.identifier if fact.view is not None else None,
        "verdict": fact.verdict,
        "source": source_of(place, fact.view) if fact.view is not None else None,
        "target": fact.target,
        "next_steps": [one._asdict() for one in place.offered(fact.steps)],
    }
