"""``wsrm-mq dead-letter``: look at dead letters, deliver them again, give them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import click

from wsrm_mq.acts import messages, others
from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import Care, acting, add_acts, committed
from wsrm_mq.cli.history import show_ledger
from wsrm_mq.cli.output import (
    as_json,
    end_of,
    facts,
    key,
    known,
    when,
    write,
)
from wsrm_mq.cli.place import (
    POSITION,
    Asking,
    Place,
    in_store,
    paged,
    query_argument,
    shorter_names,
)
from wsrm_mq.cli.queue import message_options
from wsrm_mq.cli.queue_acts import given

if TYPE_CHECKING:
    from wsrm_mq.store import transaction


@click.group("dead-letter")
def dead_letter() -> None:
    """Look at dead letters: deliver them again, give them up, or confirm that they are known."""


@dead_letter.command("list", cls=Asking)
@in_store
@paged
@query_argument
def letters(place: Place, query: str, after: int, limit: int) -> None:
    """List dead letters in the order of receipt. Those that alarm are not confirmed.

    QUERY says which: words such as queue:/orders reason:skipped age:1h confirmed:no, and all of them have to hold.

    \b
    Example: wsrm-mq dead-letter list confirmed:no
    """
    from wsrm_mq.views import reading

    with place.one_look() as db:
        found = reading.letters(db, place.query(query), after=after, limit=limit)
        shorter = shorter_names(db, (one.sequence for one in found))
    columns = (
        *(key("position"), known("sequence", shorter), "number", end_of("action"), "reason"),
        *(when("died", "died_at"), when("confirmed", "confirmed_at", rank=1), end_of("queue", rank=2)),
    )
    place.listing("dead_letters", found, columns, limit=limit)


@dead_letter.command("show")
@in_store
@click.argument("position", type=POSITION, shell_complete=completing.values("a dead letter"))
def show_letter(place: Place, position: int) -> None:
    """Show a dead letter, and what can be done with it.

    \b
    Example: wsrm-mq dead-letter show 42
    """
    from wsrm_mq.views import reading

    with place.one_look() as db:
        found = reading.letter(db, position)
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
        as_json(dead_letter=found, ledger=events, next_steps=place.offered(steps))
        return
    facts(found._asdict())
    show_ledger(events)
    write("")
    place.show_steps(steps)


@dead_letter.command()
@in_store
@acting
@click.argument("position", type=POSITION, shell_complete=completing.values("a dead letter"))
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
    from wsrm_mq.node import apart, queues
    from wsrm_mq.queue import browsing, declaring
    from wsrm_mq.queue import dead_letters as redriving
    from wsrm_mq.store import clock
    from wsrm_mq.views import reading

    why, now = care.why(), clock.wall_clock()
    with place.looking() as db:
        letters = declaring.read(db, declaring.letters_named(reading.letter(db, position).queue))
        found = browsing.get(db, letters, now, position)
    assert found is not None  # it is shown, whatever its state
    body = None if file is None else file.read()
    one = apart.edited(queues.looked_at(letters, found), body, given(options), now=now, client=why["actor"])

    def verb(tx: transaction.Transaction) -> int:
        return redriving.edit_and_redrive(tx, position, one, to=to, **why)

    added = committed(place, care, verb, lambda _: f"deliver the dead letter at position {position} again, edited")
    place.result({"edited": position, "position": added, "dry_run": care.dry_run})


add_acts(dead_letter)
