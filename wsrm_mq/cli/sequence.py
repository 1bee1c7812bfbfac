"""``wsrm-mq sequence``: which there are, and why one is stuck; ``act_commands`` has what changes them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.act_commands import add_acts
from wsrm_mq.cli.asking import Asking, query_argument, term_option
from wsrm_mq.cli.audit import show_ledger
from wsrm_mq.cli.explain import explain, show_verdict, told_replies
from wsrm_mq.cli.output import Column, as_json, facts, known, prose, rows_of, say, when, word, write
from wsrm_mq.cli.place import Place, in_store, limit_option, now_ms, one_look, shorter_names, tell_unseen

if TYPE_CHECKING:
    from wsrm_mq.views.outgoing import OutgoingView
    from wsrm_mq.views.rows import SequenceView
    from wsrm_mq.views.verdict import Verdict

UNSHOWN = ("key", "owner", "held", "delivery", "consumed")
"""Fields of a sequence's row that are not for people, or are told in other words."""


@click.group()
def sequence() -> None:
    """Find out why a sequence is stuck, and repair it. SEQUENCE is an identifier, or six characters or more of its
    beginning or end."""


sequence.add_command(explain)


@sequence.command("list", cls=Asking)
@in_store
@term_option("--queue", "queue", "NAME", "Only those of this queue.")
@click.option("--state", type=click.Choice(["created", "closed", "ended"]), help="Only those in this protocol state.")
@term_option("--verdict", "verdict", "WORD", "Only those with this verdict: ok, running, blocked, faulted, …")
@term_option("--after", "seq", "SEQUENCE", "Only sequences older than this one.")
@limit_option
@query_argument
def list_(place: Place, query: str, seq: str | None, limit: int, **terms: str | None) -> None:
    """List sequences, newest first, with the verdict on each.

    QUERY says which: words such as partner:acme verdict:blocked op:place -state:ended, and all of them have to hold.

    \b
    Example: wsrm-mq sequence list verdict:blocked,waiting
             wsrm-mq sequence list partner:acme op:place -state:ended
    """
    from wsrm_mq.views import reading
    from wsrm_mq.views.outgoing import outgoing_of
    from wsrm_mq.views.reading import find_sequence

    asked = place.query(query, **terms)
    with one_look(place) as db:
        behind = find_sequence(db, seq) if seq is not None else None
        rows = list(islice(reading.judged(db, asked, after=behind), limit))
        shorter = shorter_names(db, (view.identifier for view, _found in rows))
        replies = outgoing_of(db, [view.identifier for view, _found in rows])
        if not rows:
            tell_unseen(db, asked)
    if place.is_json:
        as_json(sequences=[_document(view, found, replies.get(view.identifier)) for view, found in rows])
        return
    told = [Column("replies", rank=3, of=lambda row: _told(replies.get(row["sequence"])))] if replies else []
    columns = (
        *(known("sequence", shorter), Column("queue"), word("state", rank=2), word("verdict"), Column("received")),
        *(Column("held"), Column("cursor", rank=1), Column("expected", rank=3)),
        *(*told, when("active", "active_at"), Column("from")),
    )
    rows_of(columns, [_row(view, found) for view, found in rows])
    if len(rows) == limit:
        say(f"There may be more: --after {rows[-1][0].identifier}")


def _row(view: SequenceView, found: Verdict) -> dict[str, Any]:
    source = view.partner or view.principal or view.peer
    told = {"sequence": view.identifier, "verdict": found.word, "received": view.received.count(), "from": source}
    return {**view._asdict(), **told}


@sequence.command()
@in_store
@click.argument("part", metavar="SEQUENCE", shell_complete=completing.values("seq"))
def show(place: Place, part: str) -> None:
    """Show all that is known of a sequence. The last events of its life are there too.

    \b
    Example: wsrm-mq sequence show 242f14a4
    """
    from wsrm_mq.views import reading
    from wsrm_mq.views.outgoing import outgoing
    from wsrm_mq.views.reading import find_sequence
    from wsrm_mq.views.verdict import judge

    with one_look(place) as db:
        view = reading.sequence(db, find_sequence(db, part))
        found = judge(db, view, now_ms())
        shorter = shorter_names(db, [view.identifier])
        events, replies = reading.ledger(db, view.identifier), outgoing(db, view.identifier)
    if place.is_json:
        as_json(sequence=_document(view, found, replies), ledger=[event._asdict() for event in events])
        return
    facts({name: value for name, value in view._asdict().items() if name not in UNSHOWN})
    write("")
    show_verdict(place, found, shorter)
    if replies is not None:
        prose(told_replies(replies))
    show_ledger(events)


add_acts(sequence)


# documents


def _told(replies: OutgoingView | None) -> str | None:
    """How many replies were sent in the offered sequence, and how many of them are not acknowledged."""
    if replies is None:
        return None
    return f"{replies.sent} ({replies.unacknowledged} unacknowledged)" if replies.unacknowledged else str(replies.sent)


def _document(view: SequenceView, found: Verdict, replies: OutgoingView | None) -> dict[str, Any]:
    from wsrm_mq.views.sentences import explanation

    row = {name: value for name, value in view._asdict().items() if name not in UNSHOWN}
    return {
        **row,
        "received": [list(one) for one in view.received],
        "held": view.held,
        "owner": view.owner,
        "replies": replies._asdict() if replies is not None else None,
        "verdict": found.word,
        "sentence": explanation(found).sentence,
    }
