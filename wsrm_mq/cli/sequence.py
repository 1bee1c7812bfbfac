"""``wsrm-mq sequence``: which there are, why one moves or does not, who sends it, and what to do; ``acts`` has what
changes them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.acts import others
from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import add_acts
from wsrm_mq.cli.history import show_ledger
from wsrm_mq.cli.output import Column, as_json, facts, known, prose, say, table, when, word, write
from wsrm_mq.cli.place import (
    Asking,
    Place,
    in_store,
    limit_option,
    now_ms,
    query_argument,
    shorter_names,
    tell_unseen,
    term_option,
)
from wsrm_mq.views.words import counted, moment

if TYPE_CHECKING:
    from wsrm_mq.store import port
    from wsrm_mq.views import outgoing, query, rows, verdict

_ENDED: Final = {"failed": "failed: the other side says that it does not know it"}
"""The meaning of an offered sequence's end, where the word does not say it."""


@click.command(cls=Asking)
@in_store
@click.option("--for-partner", is_flag=True, help="Write what to send to the partner: numbers, times, identifiers.")
@click.argument("words", nargs=-1, required=True, metavar="SEQUENCE...", shell_complete=completing.query)
def explain(place: Place, for_partner: bool, words: tuple[str, ...]) -> None:
    """Say why a sequence moves or does not, and what to do.

    Who sends it is named, and the commands that may be run next. Of all that fit a query, by their verdicts: how many,
    and commands for all of them.

    \b
    Example: wsrm-mq sequence explain 242f14a4
             wsrm-mq sequence explain 242f14a4 --for-partner > mail.txt
             wsrm-mq sequence explain partner:acme
    """
    from wsrm_mq.views import naming, query

    text = " ".join(words)
    with place.one_look() as db:
        asked = None if naming.is_sequence(db, text) else query.parse(text)
        name = text if asked is None else naming.named_alone(db, asked)
        if name is not None:
            _explain_one(place, db, name, for_partner=for_partner)
        elif for_partner:
            raise click.UsageError("--for-partner is about one sequence: name it.")
        elif asked is not None:
            _explain_many(place, db, asked)


def _explain_one(place: Place, db: port.Database, name: str, *, for_partner: bool) -> None:
    from wsrm_mq.views import outgoing, partner_report, reading, sentences, verdict

    view = reading.sequence(db, name)
    found = verdict.judge(db, view, now_ms())
    shorter, replies, sent = (
        shorter_names(db, [view.identifier]),
        outgoing.outgoing(db, view.identifier),
        outgoing.sent_about(db, view.key),
    )
    why, source = sentences.explanation(found), source_of(place, view)
    offered = place.offered(why.steps)
    if for_partner:
        text = partner_report.partner_report(found, replies)
        if place.is_json:
            as_json(sequence=view.identifier, text=text)
        else:
            write(text, keep="\n")
        return
    if place.is_json:
        as_json(
            sequence=view.identifier,
            verdict=found.word,
            sentence=why.sentence,
            next_step=offered[0].command if offered else None,
            next_steps=offered,
            source=source,
            target=found.at.target,
            replies=replies,
            sent=sent,
            facts=found.facts,
        )
        return
    show_verdict(place, found, shorter)
    if replies is not None:
        prose(told_replies(replies))
    for one in sent:
        prose(told_sent(one))
        steps = []
        if one.error is not None:
            steps.append(others.EXPLAIN.step("why it has not left, and when it is tried next", one.sequence))
        if one.dead:
            steps.append(others.LETTERS.step("what was given up, and why", f"seq:{one.sequence}"))
        place.show_steps(steps)


def _explain_many(place: Place, db: port.Database, asked: query.Query) -> None:
    from wsrm_mq.views import sentences

    groups = sentences.together(db, asked)
    is_whole = sum(one.sequences for one in groups) < sentences.LOOKED_AT
    shorter = shorter_names(db, (name for one in groups for name in one.examples))
    told = []
    for one in groups:
        named = ", ".join(shorter.get(name, name) for name in one.examples)
        more = ", …" if one.sequences > len(one.examples) else ""
        text = f"{one.verdict}: {counted(one.sequences, 'sequence')}: {named}{more}. The newest: {one.sentence}"
        its = {name: getattr(one, name) for name in ("verdict", "sequences", "held", "examples", "sentence")}
        told.append((its, text, one.steps))
    place.explain("verdicts", told, all_looked_at=is_whole)
    if not (is_whole or place.is_json):
        say(f"Only the newest {sentences.LOOKED_AT} that fit were looked at.")


def told_replies(replies: outgoing.OutgoingView) -> str:
    """``replies: 12 sent in urn:…, 3 of them not acknowledged since …``"""
    since = "" if replies.waiting_since is None else f" since {moment(replies.waiting_since)}"
    word = replies.state if replies.ended is None else f"{replies.state} ({_ENDED.get(replies.ended, replies.ended)})"
    left = f"{replies.unacknowledged} of them not acknowledged{since}" if replies.unacknowledged else "all acknowledged"
    return f"replies: {replies.sent} sent in {replies.sequence}, which is {word}; {left}"


def told_sent(sent: outgoing.SentView) -> str:
    """``sent: to http://…: 3 messages wait, the first as 'http://…: answered 503'; 2 were given up``"""
    waits = f"{counted(sent.waiting, 'message waits', 'messages wait')}" if sent.waiting else "nothing waits"
    why = "" if sent.error is None else f", the first as '{sent.error}'"
    dead = f"; {counted(sent.dead, 'was', 'were')} given up, the source has not got that" if sent.dead else ""
    return f"sent: to {sent.to}: {waits}{why}{dead}"


def source_of(place: Place, view: rows.SequenceView) -> dict[str, Any]:
    """Who sends a sequence, and what the configuration says of the partner."""
    partner = place.settings.partners.get(view.partner or "")
    return {
        "partner": view.partner,
        "principal": view.principal,
        "address": view.peer,
        "description": partner.description if partner is not None else None,
        "contact": partner.contact if partner is not None else None,
    }


def told_source(source: dict[str, Any]) -> str:
    """``acme (Acme Ltd, orders), CN=acme, 192.0.2.7; contact: …``"""
    names = [source["partner"], source["principal"], source["address"]]
    if source["partner"] and source["description"]:
        names[0] = f"{source['partner']} ({source['description']})"
    told = ", ".join(name for name in names if name) or "not known"
    return f"{told}; contact: {source['contact']}" if source["contact"] else told


def show_verdict(place: Place, found: verdict.Verdict, shorter: Mapping[str, str]) -> None:
    """Show what the sequence is at, who sends it, and the commands that there are to choose from."""
    from wsrm_mq.views import sentences

    why = sentences.explanation(found)
    prose(f"{found.word}: {why.sentence}")
    target = found.at.target
    whence = (
        f"queue: {found.at.view.queue}"
        if found.at.view.kind == "group"
        else f"source: {told_source(source_of(place, found.at.view))}"
    )
    prose(f"target: {target}" if target else whence)
    place.show_steps(why.steps, shorter)


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
    from wsrm_mq.views import naming, outgoing, reading

    asked = place.query(query).having(**terms)
    with place.one_look() as db:
        behind = naming.find_sequence(db, seq) if seq is not None else None
        rows = list(islice(reading.judged(db, asked, after=behind), limit))
        shorter = shorter_names(db, (view.identifier for view, _found in rows))
        replies = outgoing.outgoing_of(db, [view.identifier for view, _found in rows])
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
    table(columns, [_row(view, found) for view, found in rows])
    if len(rows) == limit:
        say(f"There may be more: --after {rows[-1][0].identifier}")


def _row(view: rows.SequenceView, found: verdict.Verdict) -> dict[str, Any]:
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
    from wsrm_mq.views import naming, outgoing, reading, verdict

    with place.one_look() as db:
        view = reading.sequence(db, naming.find_sequence(db, part))
        found = verdict.judge(db, view, now_ms())
        shorter = shorter_names(db, [view.identifier])
        events, replies = reading.ledger(db, view.identifier), outgoing.outgoing(db, view.identifier)
    if place.is_json:
        as_json(sequence=_document(view, found, replies), ledger=events)
        return
    facts({name: value for name, value in view._asdict().items() if name not in UNSHOWN})
    write("")
    show_verdict(place, found, shorter)
    if replies is not None:
        prose(told_replies(replies))
    show_ledger(events)


add_acts(sequence)


# documents


def _told(replies: outgoing.OutgoingView | None) -> str | None:
    """How many replies were sent in the offered sequence, and how many of them are not acknowledged."""
    if replies is None:
        return None
    return f"{replies.sent} ({replies.unacknowledged} unacknowledged)" if replies.unacknowledged else str(replies.sent)


def _document(view: rows.SequenceView, found: verdict.Verdict, replies: outgoing.OutgoingView | None) -> dict[str, Any]:
    from wsrm_mq.views import sentences

    row = {name: value for name, value in view._asdict().items() if name not in UNSHOWN}
    return {
        **row,
        "held": view.held,
        "owner": view.owner,
        "replies": replies,
        "verdict": found.word,
        "sentence": sentences.explanation(found).sentence,
    }
