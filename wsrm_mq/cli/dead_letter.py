"""``wsrm-mq dead-letter``: what was given up, and what becomes of it."""

from __future__ import annotations

from typing import Any, BinaryIO

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.act_commands import add_acts
from wsrm_mq.cli.acts import Care, acting, carry_out, will
from wsrm_mq.cli.asking import Asking, query_argument
from wsrm_mq.cli.audit import show_ledger
from wsrm_mq.cli.explain import show_steps
from wsrm_mq.cli.output import as_json, end_of, fields, key, known, result, say, table, when, write
from wsrm_mq.cli.place import BEHIND, POSITION, Place, in_store, looking, one_look
from wsrm_mq.cli.queue_messages import message_options
from wsrm_mq.views.words import moment


@click.group("dead-letter")
def dead_letter() -> None:
    """Look at dead letters: deliver them again, give them up, or confirm that they are known."""


@dead_letter.command("list", cls=Asking)
@in_store
@click.option("--after", metavar="POSITION", type=BEHIND, default=0, help="Begin behind this position.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@query_argument
def list_(place: Place, query: str, after: int, limit: int) -> None:
    """List dead letters in the order of receipt. Those that alarm are not confirmed.

    QUERY says which: words such as queue:/orders reason:skipped age:1h confirmed:no, and all of them have to hold.

    \b
    Example: wsrm-mq dead-letter list confirmed:no
    """
    from wsrm_mq.views.dead_letters import letters
    from wsrm_mq.views.naming import shortened

    with one_look(place) as db:
        found = letters(db, place.query(query), after=after, limit=limit)
        shorter = shortened(db, (one.sequence for one in found))
    is_full = len(found) == limit
    if place.is_json:
        as_json(dead_letters=[one._asdict() for one in found], next=found[-1].position if is_full else None)
        return
    table(
        (
            *(key("position"), known("sequence", shorter), "number", end_of("action"), "reason"),
            *(when("died"), when("confirmed", rank=1), end_of("queue", rank=2)),
        ),
        [
            (
                *(one.position, one.sequence, one.number, one.action, one.reason),
                *(one.died_at, one.confirmed_at, one.queue),
            )
            for one in found
        ],
    )
    if is_full:
        say(f"There may be more: --after {found[-1].position}")


@dead_letter.command()
@in_store
@click.argument("position", type=POSITION, shell_complete=completing.positions("dead"))
def show(place: Place, position: int) -> None:
    """Show a dead letter, and what can be done with it.

    \b
    Example: wsrm-mq dead-letter show 42
    """
    from wsrm_mq.acts import messages, others
    from wsrm_mq.views import reading
    from wsrm_mq.views.dead_letters import letter

    with one_look(place) as db:
        found = letter(db, position)
        events = reading.ledger(db, position)
    steps = [
        others.BODY.step("its envelope", str(position)),
        messages.REDRIVE.step("deliver it again", str(position)),
        messages.DISCARD_LETTER.step("give it up", str(position)),
        messages.CONFIRM_LETTER.step("let it be, without an alarm", str(position)),
    ]
    if found.confirmed_at is not None:
        steps.pop()
    if place.is_json:
        next_steps = [step._asdict() for step in place.offered(steps)]
        as_json(dead_letter=found._asdict(), ledger=[one._asdict() for one in events], next_steps=next_steps)
        return
    times = {name: moment(at) for name, at in found._asdict().items() if name.endswith("_at") and at is not None}
    lines = {"last_error": (found.last_error or "").rstrip("\n").split("\n")}
    fields({**found._asdict(), **times, **lines}.items())
    show_ledger(events)
    write("")
    show_steps(place, steps, {})


@dead_letter.command()
@in_store
@acting
@click.argument("position", type=POSITION, shell_complete=completing.positions("dead"))
@click.argument("file", type=click.File("rb"), required=False)
@click.option("--to", metavar="QUEUE", help="Into this queue, in place of the one that it came from.")
@message_options
def edit(place: Place, care: Care, position: int, file: BinaryIO | None, to: str | None, **options: Any) -> None:
    """Deliver a dead letter again with another body, or other facts.

    FILE is the body, - for standard input; without it that stays, as all else that is not named. Messages of programs
    only: what a partner has sent stays as it is. The edited message has a position of its own.

    \b
    Example: wsrm-mq dead-letter edit 42 mended.xml --reason "had a comma"
             wsrm-mq dead-letter edit 42 --type Order --reason "ticket 17"
    """
    from wsrm_mq.node.apart import edited
    from wsrm_mq.node.queues import looked_at
    from wsrm_mq.queue import browsing, dead_letters, declaring
    from wsrm_mq.store.clock import wall_clock
    from wsrm_mq.store.outside import run_once
    from wsrm_mq.views.dead_letters import letter

    why, now = care.why(), wall_clock()
    with looking(place) as db:
        letters = declaring.read(db, declaring.letters_named(letter(db, position).queue))
        found = browsing.get(db, letters, now, position)
    assert found is not None  # it is shown, whatever its state
    given = {name: value for name, value in options.items() if value not in (None, {})}
    body = None if file is None else file.read()
    one = edited(looked_at(letters, found), body, given, now=now, client=why["actor"])

    def act(is_dry: bool) -> int:
        return run_once(
            place.path, lambda tx: dead_letters.edit_and_redrive(tx, position, one, to=to, **why), dry_run=is_dry
        )

    def tell(_added: int | None) -> None:
        will(f"deliver the dead letter at position {position} again, edited", care.dry_run)

    added = carry_out(place, care, act, tell)
    result(place.is_json, {"edited": position, "position": added, "dry_run": care.dry_run})


add_acts(dead_letter)
