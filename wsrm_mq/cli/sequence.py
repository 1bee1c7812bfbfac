"""``wsrm-mq sequence``: why one is stuck, and the two repairs."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from wsrm_mq.cli.acts import ask, careful, login, reason_given, rehearse, signed
from wsrm_mq.cli.ledger import show_ledger
from wsrm_mq.cli.output import as_json, fields, say, table, write
from wsrm_mq.cli.place import POSITION, Place, in_store, json_option, looking, one_look

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction
    from wsrm_mq.views.reading import SequenceView
    from wsrm_mq.views.verdict import Verdict

__all__ = ["sequence"]

UNSHOWN = ("key", "owner", "held", "delivery")
"""Of a sequence's row: what is not for people, or is told in other words."""
SCANNED = 5_000
"""So many sequences are judged at most for a list with ``--verdict``."""


@click.group()
def sequence() -> None:
    """Find out why a sequence is stuck, and repair it. SEQUENCE is an identifier, or six characters or more of its
    beginning or end."""


@sequence.command("list")
@in_store
@json_option
@click.option("--queue", metavar="NAME", help="Only those of this queue.")
@click.option("--state", type=click.Choice(["created", "closed", "ended"]), help="Only those in this protocol state.")
@click.option("--verdict", metavar="WORD", help="Only those with this verdict: ok, running, blocked, faulted, …")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
def list_(place: Place, is_json: bool, queue: str | None, state: str | None, verdict: str | None, limit: int) -> None:
    """List sequences, newest first, with the verdict on each."""
    from wsrm_mq.views import reading
    from wsrm_mq.views.sentences import moment
    from wsrm_mq.views.verdict import WORDS, judge

    if verdict is not None and verdict not in WORDS:
        raise click.BadParameter(f"{verdict} is none of {', '.join(WORDS)}.", param_hint="--verdict")
    now = _now()
    with one_look(place) as db:
        judged = (
            (view, found)
            for view in islice(reading.sequences(db, queue=queue, state=state), SCANNED)
            if (found := judge(db, view, now)).word == verdict or verdict is None
        )
        rows = list(islice(judged, limit))
    if is_json:
        as_json(sequences=[_document(view, found) for view, found in rows])
        return
    table(
        ("sequence", "queue", "state", "verdict", "received", "held", "cursor", "expected", "active", "from"),
        [
            (
                view.identifier,
                view.queue,
                view.state,
                found.word,
                view.received.count(),
                view.held,
                view.cursor,
                view.expected,
                moment(view.active_at),
                view.principal or view.peer,
            )
            for view, found in rows
        ],
    )
    if len(rows) == limit:
        say(f"There may be more: --limit {limit * 2}")


@sequence.command()
@in_store
@json_option
@click.argument("part", metavar="SEQUENCE")
def show(place: Place, is_json: bool, part: str) -> None:
    """Show all that is known of a sequence. The last events of its life are there too."""
    from wsrm_mq.views import reading
    from wsrm_mq.views.sentences import explanation, moment
    from wsrm_mq.views.verdict import judge

    with one_look(place) as db:
        view = reading.sequence(db, reading.find_sequence(db, part))
        found = judge(db, view, _now())
        events = reading.ledger(db, view.identifier)
    if is_json:
        as_json(sequence=_document(view, found), ledger=[event._asdict() for event in events])
        return
    times = {"created_at", "expires_at", "active_at", "due_at", "ended_at", "running_since", "retry_from", "retry_at"}
    fields(
        (name, moment(value) if name in times and value is not None else value)
        for name, value in view._asdict().items()
        if name not in UNSHOWN
    )
    write("")
    why = explanation(found)
    next_step = place.command(why.next_step)
    fields([("verdict", found.word), ("", why.sentence), *([("next", next_step)] if next_step else [])])
    show_ledger(events)


@sequence.command()
@in_store
@json_option
@click.argument("part", metavar="SEQUENCE")
def explain(place: Place, is_json: bool, part: str) -> None:
    """Say why a sequence moves or does not. One sentence, and the command to run next."""
    from wsrm_mq.views.reading import find_sequence, sequence
    from wsrm_mq.views.sentences import explanation
    from wsrm_mq.views.verdict import judge

    with one_look(place) as db:
        view = sequence(db, find_sequence(db, part))
        found = judge(db, view, _now())
    why = explanation(found)
    next_step = place.command(why.next_step)
    if is_json:
        as_json(
            sequence=view.identifier,
            verdict=found.word,
            sentence=why.sentence,
            next_step=next_step or None,
            facts=found.facts,
        )
        return
    write(f"{found.word}: {why.sentence}")
    if next_step:
        write(f"next: {next_step}")


# repairs


@sequence.command()
@in_store
@json_option
@careful
@signed
@click.argument("part", metavar="SEQUENCE")
def resume(place: Place, part: str, is_json: bool, **act: Any) -> None:
    """Try a blocked sequence again. Now, or when the service starts if it is stopped; and from the first step of its
    ladder of waits."""
    from wsrm_mq.queue import operate

    def verb(tx: Transaction, identifier: str, **why: str) -> dict[str, int]:
        return {"number": operate.resume(tx, identifier, **why)}

    _act(place, part, verb, "try number {number} of {sequence} again {when}", is_json, **act)


@sequence.command()
@in_store
@json_option
@careful
@signed
@click.argument("part", metavar="SEQUENCE")
@click.argument("number", type=POSITION)
def skip(place: Place, part: str, number: int, is_json: bool, **act: Any) -> None:
    """Give up the message that stops a sequence. NUMBER goes to the dead letters, the sequence goes on, if the service
    is stopped when it starts."""
    from wsrm_mq.queue import operate

    def verb(tx: Transaction, identifier: str, **why: str) -> dict[str, int]:
        return {"number": number, "position": operate.skip(tx, identifier, number, **why)}

    _act(place, part, verb, "move number {number} of {sequence} to the dead letters{later}", is_json, **act)


def _act(
    place: Place,
    part: str,
    verb: Callable[..., dict[str, int]],
    consequence: str,
    is_json: bool,
    *,
    dry_run: bool,
    yes: bool,
    actor: str | None,
    reason: str | None,
) -> None:
    """Try the verb and take it back; say what it does, ask, and do it."""
    from wsrm_mq.store.store import run_once
    from wsrm_mq.views.instances import live_instances
    from wsrm_mq.views.reading import find_sequence

    why = {"reason": reason_given(reason, dry_run), "actor": actor or login()}
    with looking(place) as db:
        identifier = find_sequence(db, part)
        is_served = bool(live_instances(db))
    when, later = ("now", "") if is_served else ("when the service starts", "; it goes on when the service starts")
    rehearsed = rehearse(place, lambda tx: verb(tx, identifier, **why))
    text = consequence.format(sequence=identifier, when=when, later=later, **rehearsed)
    if dry_run:
        result = rehearsed
        say(f"This would {text}. Nothing was changed.")
    else:
        ask(f"This will {text}.", yes)
        result = run_once(place.path, lambda tx: verb(tx, identifier, **why))
        say(f"Done: {consequence.format(sequence=identifier, when=when, later=later, **result)}.")
    document = {"sequence": identifier, **result, "dry_run": dry_run}
    if is_json:
        as_json(**document)
    else:
        fields(document.items())


# documents


def _document(view: SequenceView, found: Verdict) -> dict[str, Any]:
    from wsrm_mq.views.sentences import explanation

    row = {name: value for name, value in view._asdict().items() if name not in UNSHOWN}
    return {
        **row,
        "received": [list(one) for one in view.received],
        "held": view.held,
        "owner": view.owner,
        "verdict": found.word,
        "sentence": explanation(found).sentence,
    }


def _now() -> int:
    return time.time_ns() // 1_000_000
