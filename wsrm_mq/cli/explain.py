"""``wsrm-mq sequence explain``: why a sequence moves or does not, who sends it, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.asking import Asking
from wsrm_mq.cli.output import as_json, prose, say, write
from wsrm_mq.cli.place import Place, in_store, now_ms, one_look, shorter_names
from wsrm_mq.views.words import counted, moment

if TYPE_CHECKING:
    from wsrm_mq.acts import Step
    from wsrm_mq.store.port import Database
    from wsrm_mq.views.outgoing import OutgoingView, SentView
    from wsrm_mq.views.query import Query
    from wsrm_mq.views.rows import SequenceView
    from wsrm_mq.views.sentences import Together
    from wsrm_mq.views.verdict import Verdict

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
    from wsrm_mq.views.query import parse
    from wsrm_mq.views.reading import is_sequence, named_alone

    text = " ".join(words)
    with one_look(place) as db:
        asked = None if is_sequence(db, text) else parse(text)
        name = text if asked is None else named_alone(db, asked)
        if name is not None:
            _explain_one(place, db, name, for_partner=for_partner)
        elif for_partner:
            raise click.UsageError("--for-partner is about one sequence: name it.")
        elif asked is not None:
            _explain_many(place, db, asked)


def _explain_one(place: Place, db: Database, name: str, *, for_partner: bool) -> None:
    from wsrm_mq.acts import others
    from wsrm_mq.views.outgoing import outgoing, sent_about
    from wsrm_mq.views.partner_report import partner_report
    from wsrm_mq.views.reading import sequence
    from wsrm_mq.views.sentences import explanation
    from wsrm_mq.views.verdict import judge

    view = sequence(db, name)
    found = judge(db, view, now_ms())
    shorter, replies, sent = (
        shorter_names(db, [view.identifier]),
        outgoing(db, view.identifier),
        sent_about(db, view.key),
    )
    why, source = explanation(found), source_of(place, view)
    offered = place.offered(why.steps)
    if for_partner:
        text = partner_report(found, replies)
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
            next_steps=[one._asdict() for one in offered],
            source=source,
            target=found.at.target,
            replies=replies._asdict() if replies is not None else None,
            sent=[one._asdict() for one in sent],
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
        show_steps(place, steps, {})


def _explain_many(place: Place, db: Database, query: Query) -> None:
    from wsrm_mq.views.sentences import LOOKED_AT, together

    groups = together(db, query)
    is_whole = sum(one.sequences for one in groups) < LOOKED_AT
    if place.is_json:
        as_json(verdicts=[_group_document(place, one) for one in groups], all_looked_at=is_whole)
        return
    shorter = shorter_names(db, (name for one in groups for name in one.examples))
    for one in groups:
        named = ", ".join(shorter.get(name, name) for name in one.examples)
        act = ", …" if one.sequences > len(one.examples) else ""
        prose(f"{one.verdict}: {counted(one.sequences, 'sequence')}: {named}{act}. The newest: {one.sentence}")
        show_steps(place, one.steps, {})
    if not is_whole:
        say(f"Only the newest {LOOKED_AT} that fit were looked at.")


def _group_document(place: Place, one: Together) -> dict[str, Any]:
    return {
        **{name: getattr(one, name) for name in ("verdict", "sequences", "held", "examples", "sentence")},
        "next_steps": [step._asdict() for step in place.offered(one.steps)],
    }


def told_replies(replies: OutgoingView) -> str:
    """``replies: 12 sent in urn:…, 3 of them not acknowledged since …``"""

    since = "" if replies.waiting_since is None else f" since {moment(replies.waiting_since)}"
    word = replies.state if replies.ended is None else f"{replies.state} ({_ENDED.get(replies.ended, replies.ended)})"
    left = f"{replies.unacknowledged} of them not acknowledged{since}" if replies.unacknowledged else "all acknowledged"
    return f"replies: {replies.sent} sent in {replies.sequence}, which is {word}; {left}"


def told_sent(sent: SentView) -> str:
    """``sent: to http://…: 3 messages wait, the first as 'http://…: answered 503'; 2 were given up``"""

    waits = f"{counted(sent.waiting, 'message waits', 'messages wait')}" if sent.waiting else "nothing waits"
    why = "" if sent.error is None else f", the first as '{sent.error}'"
    dead = f"; {counted(sent.dead, 'was', 'were')} given up, the source has not got that" if sent.dead else ""
    return f"sent: to {sent.to}: {waits}{why}{dead}"


def renamed(command: str, shorter: Mapping[str, str]) -> str:
    """A command with the names by which an operator may call sequences."""
    for identifier, name in shorter.items():
        command = command.replace(identifier, name)
    return command


def source_of(place: Place, view: SequenceView) -> dict[str, Any]:
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


def show_verdict(place: Place, found: Verdict, shorter: Mapping[str, str]) -> None:
    """Show what the sequence is at, who sends it, and the commands that there are to choose from."""
    from wsrm_mq.views.sentences import explanation

    why = explanation(found)
    prose(f"{found.word}: {why.sentence}")
    target = found.at.target
    whence = (
        f"queue: {found.at.view.queue}"
        if found.at.view.kind == "group"
        else f"source: {told_source(source_of(place, found.at.view))}"
    )
    prose(f"target: {target}" if target else whence)
    show_steps(place, why.steps, shorter)


def show_steps(place: Place, steps: Iterable[Step], shorter: Mapping[str, str]) -> None:
    for count, step in enumerate(place.offered(steps)):
        write(f"{'or:  ' if count else 'next:'} {renamed(step.command, shorter)}")
        write(f"      {step.effect}")
