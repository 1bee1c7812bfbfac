"""``wsrm-mq store``: make one, bring it up to date, measure it, verify it, keep it in order, go on with a copy."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wsrm_mq.acts import sequences
from wsrm_mq.cli.acts import PLACEHOLDERS, Care, acting, ask, begun, careful, carry_out, committed
from wsrm_mq.cli.archive import export_store
from wsrm_mq.cli.output import Column, Exit, as_json, fields, say, table
from wsrm_mq.cli.place import Place, in_store, now_ms
from wsrm_mq.cli.status import AGES, INSTANCE, expected, kept_as
from wsrm_mq.errors import NotAllowed, StoreUnconfirmed, store_flag
from wsrm_mq.views.words import counted, moment, span

if TYPE_CHECKING:
    from wsrm_mq.queue import adopt as verbs
    from wsrm_mq.queue import retention
    from wsrm_mq.store import port, transaction


@click.group()
def store() -> None:
    """Make, migrate, measure and verify a store; prune it, copy it, go on with a copy."""


store.add_command(export_store)


class Age(click.ParamType):  # type: ignore[type-arg]
    """A length of time as in the configuration, in ms."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from wsrm_mq.envelope import lexical

        try:
            age = lexical.parse_duration(value) or 0 if str(value).startswith("P") else round(float(value) * 1000)
        except (ValueError, OverflowError):
            age = -1
        if age < 0:
            self.fail(f"{value!r} is not allowed; allowed: seconds from 0 (or PT30S, P7D).", param, ctx)
        return age


@store.command()
@in_store
@acting
@click.option("--older-than", type=Age(), required=True, help="Messages settled longer ago: seconds, or P7D.")
@click.option("--ended-before", type=Age(), help="Forget sequences that ended longer ago too: seconds, or P30D.")
def prune(place: Place, older_than: int, ended_before: int | None, care: Care) -> None:
    """Delete messages that were settled long ago. What is undelivered, dead letters, and replies that may still be
    asked for stay, and with `retain_until_archived` what no archive holds. A service does this by itself, as its
    `retain` says; it may run meanwhile.

    \b
    Example: wsrm-mq store prune --older-than P1D --dry-run
    """
    from wsrm_mq.queue import retention

    now = now_ms()
    asked = retention.Kept(older_than, ended_before)
    kept = kept_as(place, asked)
    with place.looking() as db:
        done = would = expected(db, kept, now)
        stays = expected(db, lambda partner: kept(partner)._replace(until_archived=False), now).minus(would)
        if any(stays):
            say(f"No archive holds {_words(stays)}, which `retain_until_archived` keeps till then.")
        elif not any(would):
            _name_a_shorter_age(db, place, asked, now)
        _warn_of_unarchived(db, asked, now, would)
        why = care.why()
        if care.allows(f"delete {_words(would)}"):
            done = retention.Pruned()
            for count, batch in enumerate(retention.batches(lambda: nullcontext(db), kept, now, **why), 1):
                began = time.monotonic()
                done = done.plus(place.run(batch))
                _let_others_write(db, count, time.monotonic() - began)
            say(f"Deleted {_words(done)}. The space is used again by what comes next; `store vacuum` gives it back.")
    place.result(dict(**done._asdict(), dry_run=care.dry_run))


def _warn_of_unarchived(db: port.Database, asked: retention.Kept, now: int, would: retention.Pruned) -> None:
    """The store does not know what its configuration says, which may stand in another directory."""
    from wsrm_mq.store import pruning

    if not db.execute(pruning.LAST_ARCHIVED).fetchone()[0]:
        return
    alone = would.minus(expected(db, lambda _partner: asked._replace(until_archived=True), now))
    if any(alone):
        say(
            f"Archives hold messages of this store, and not {_words(alone)} of what goes: if its configuration, which "
            "may stand in another directory, says `retain_until_archived`, name that with --config FILE."
        )


def _name_a_shorter_age(db: port.Database, place: Place, kept: retention.Kept, now: int) -> None:
    for text, age in AGES:
        if age >= (kept.settled or 0):
            continue
        would = expected(db, kept_as(place, kept._replace(settled=age)), now)
        if any(would):
            say(f"Nothing was settled so long ago. With --older-than {text} it would be {_words(would)}.")
            return


def _let_others_write(db: port.Connection, count: int, took: float) -> None:
    from wsrm_mq.delivery import janitor

    if count % 50 == 0:
        db.checkpoint()
    time.sleep(janitor.rest_after(took))


def _words(pruned: retention.Pruned) -> str:
    bodies = counted(pruned.bodies, "body", "bodies")
    return (
        f"{counted(pruned.messages, 'message')} and {bodies} of others ({counted(pruned.size, 'byte')}), "
        f"{counted(pruned.sequences, 'ended sequence')} and {counted(pruned.plans, 'ended plan')}"
    )


@store.command()
@in_store
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite the target.")
def backup(place: Place, target: Path, force: bool) -> None:
    """Copy a store to the file TARGET, while services use it. The copy is verified, and marked as a copy: it has to be
    adopted before it can be served.

    \b
    Example: wsrm-mq store backup /backup/wsrm-monday.db
    """
    from wsrm_mq.store import invariants
    from wsrm_mq.store.sqlite import backup as backups

    with place.looking(any_known=True):
        pass
    target = target.absolute()
    size = backups.backup(place.path, target, verify=invariants.first_wrong, now=now_ms(), force=force)
    place.result(dict(path=str(place.path), target=str(target), size=size))
    say(f"{target}: good. Before a service can use it: wsrm-mq store adopt{store_flag(target)}")


@store.command()
@in_store
@careful
def vacuum(place: Place, care: Care) -> None:
    """Give free pages back to the disk, the service stopped. What is in use is written anew: that needs twice its size
    as free space, and time.

    \b
    Example: wsrm-mq store vacuum
    """
    from wsrm_mq.store.sqlite import space

    with place.looking():
        pass
    found = space.refuse(place.path)
    if care.dry_run:
        say(f"This would give back about {found.reclaimable} bytes. Nothing was changed.")
        before, after = found.size, found.used
    else:
        ask(f"This will write {found.used} bytes anew. No service can start meanwhile.", care.yes)
        before, after = space.vacuum(place.path)
    place.result(dict(before=before, after=after, needed=found.needed, dry_run=care.dry_run))


_FORGOTTEN = """\
This store may have forgotten what was acknowledged after it was copied or put back. If you go on:
- Open sequences that end: {ended}. Their sources are told SequenceTerminated (SequenceFault) with their next message.
- Messages that it has not delivered: {undelivered}. They {fate}.
- What came after its time is not in it. Of that, what the service had not taken is lost here: its senders have
  acknowledgements. Tell the partners from when on, and compare with the service's own database.
- Sequences that began after its time are unknown here: their sources get UnknownSequence."""
_CURRENT = """\
You say that this is the newest state of the store: that no service has written to another copy of it since. If that is
wrong, messages are lost and others run twice, without a sign. If you are not sure, leave --current out."""
_NEEDLESS = """\
Nothing says that this store was copied or put back: it can be served as it is. Adopt it only if you know better: a
snapshot of its disk leaves no trace."""
_FATES = {
    True: "are delivered, marked as possible redeliveries: without the inbox, what was done since is done again",
    False: "go to the dead letters (store_adopted): they may have been delivered since; --deliver delivers them",
}


@store.command()
@in_store
@acting
@click.option("--deliver", is_flag=True, help="Deliver what is undelivered, as possible redeliveries.")
@click.option("--current", is_flag=True, help="Nothing was forgotten: it was moved, or only its witness is lost.")
def adopt(place: Place, deliver: bool, current: bool, care: Care) -> None:
    """Let a copy, or a store that was put back, be served. Says first what that means; the service has to be
    stopped.

    \b
    Example: wsrm-mq store adopt --dry-run
    """
    from wsrm_mq.queue import adopt as verbs
    from wsrm_mq.replay import acts
    from wsrm_mq.store import identity
    from wsrm_mq.store.sqlite import presence, witness

    if current and deliver:
        raise click.UsageError("--current goes on with everything as it is; leave --deliver out.")
    why = care.why()
    with place.looking() as db:
        found = identity.identify(db)
        is_confirmed = witness.why_unconfirmed(db, place.path) is None
    if current and witness.is_older(place.path, found):
        raise NotAllowed(f"{place.path}: is older than what was here before: the witness beside it says so.")

    def verb(tx: Any) -> verbs.Adopted:
        if presence.in_use(place.path):
            raise NotAllowed(f"{place.path}: a service uses it. Stop it first.")
        return verbs.confirm(tx, **why) if current else verbs.adopt(tx, **why, deliver=deliver)

    def do(is_dry: bool) -> verbs.Adopted:
        return place.run(verb, unconfirmed=True, dry_run=is_dry)

    def tell(adopted: verbs.Adopted | None) -> None:
        assert adopted is not None
        if is_confirmed:
            say(_NEEDLESS, keep="\n")
        say(_CURRENT if current else _FORGOTTEN.format(**adopted._asdict(), fate=_FATES[deliver]), keep="\n")

    adopted = carry_out(place, care, do, tell, unconfirmed=True)
    if care.dry_run:
        say("Nothing was changed.")
    else:
        if care.yes:
            tell(adopted)
        acts.do_remainder(place.path, sequences.bury)
        witness.end_rehearsal(place.path)
        say(f"Done: {place.path} can be served.")
    place.result(dict(**adopted._asdict(), dry_run=care.dry_run))


@store.command("rehearse")
@in_store
@careful
def rehearse_on(place: Place, care: Care) -> None:
    """Let repairs be tried on a copy, and on it alone.

    Every act works on the copy. Nothing serves it and nothing is delivered from it. It is no backup any more.

    \b
    Example: wsrm-mq store rehearse --store /tmp/copy.db
    """
    from wsrm_mq.queue import adopt as verbs
    from wsrm_mq.store.sqlite import witness

    def verb(tx: Any) -> None:
        verbs.rehearse(tx, place.path)

    def do(is_dry: bool) -> None:
        place.run(verb, unconfirmed=True, dry_run=is_dry)

    def tell(_result: None) -> None:
        if not care.dry_run:
            say(f"Acts will change {place.path}, which is no backup then.")

    carry_out(place, care, do, tell, unconfirmed=True)
    if not care.dry_run:
        witness.begin_rehearsal(place.path)
        say(f"Done: acts change {place.path} alone. What they deliver waits there: nothing serves it.")
    place.result(dict(path=str(place.path), dry_run=care.dry_run))


@store.command()
@in_store
@acting
@click.argument("old")
@click.argument("new")
def application(place: Place, care: Care, old: str, new: str) -> None:
    """Deliver to the application NEW what was stored for OLD.

    `none` is one without a name. `status` shows what waits for an application that no process serves.

    \b
    Example: wsrm-mq store application orders:app shop.orders:app --reason "moved"
    """
    from wsrm_mq.queue import adopt as verbs

    why = care.why()
    if new in PLACEHOLDERS or old in PLACEHOLDERS:
        raise click.UsageError(f"{old} {new}: OLD and NEW stand for the two names; `none` is one without a name.")

    def verb(tx: transaction.Transaction) -> int:
        return verbs.rename(tx, _name(old), _name(new), **why)

    count = committed(place, care, verb, lambda count: f"give {new} the queues of {old}: {count}")
    if not care.dry_run:
        say(f"{new} has the queues of {old}: {count}.")
    if place.is_json:
        as_json(old=old, new=new, queues=count, dry_run=care.dry_run)


def _name(word: str) -> str | None:
    return None if word == "none" else word


_LOST = """\
A store was in use here, and is lost: there is no file, or an empty one. A new one knows nothing of what that one has
acknowledged. Of it, what the service had not taken is lost: its senders will not send it again by themselves. Their
open sequences are unknown here (UnknownSequence). Tell the partners, and compare with the service's own database."""


@store.command()
@in_store
@begun
def init(place: Place, care: Care) -> None:
    """Make a store. One that is there is only brought to the schema of this version. Where one was in use and is lost,
    this makes an empty one in its place; that needs --reason.

    \b
    Example: wsrm-mq store init --store /var/lib/orders/wsrm.db
    """
    from wsrm_mq.store.sqlite import schema

    is_new = not place.path.exists()
    try:
        schema.ensure(place.path)
    except StoreUnconfirmed:  # one is lost
        why = care.why()
        say(_LOST, keep="\n")
        ask("", care.yes)
        schema.ensure(place.path, anew=True)
        place.run(lambda tx: tx.ledger("begun_anew", **why))
    if place.is_json:
        as_json(path=str(place.path), made=is_new, schema=schema.HEAD)
        return
    say(f"{place.path}: {'made' if is_new else 'is there already'}, schema {schema.HEAD}.")


@store.command()
@in_store
@click.option("--dry-run", is_flag=True, help="Say what would happen, change nothing.")
def migrate(place: Place, dry_run: bool) -> None:
    """Bring a store to the schema of this version. There is no way back: copy the file first, the service stopped.

    \b
    Example: wsrm-mq store migrate --dry-run
    """
    from wsrm_mq.store.sqlite import schema

    with place.looking(any_known=True) as db:  # a store that is not there is an error, not a new one
        before = schema.revision(db, place.path)
    if not dry_run:
        before, _after = schema.migrate(place.path)
    if place.is_json:
        as_json(path=str(place.path), before=before, after=schema.HEAD, dry_run=dry_run)
    elif before == schema.HEAD:
        say(f"{place.path}: has schema {schema.HEAD} already.")
    else:
        verb = "would go" if dry_run else "went"
        say(f"{place.path}: {verb} from schema {before or 'none'} to {schema.HEAD}.")


@store.command()
@in_store
def info(place: Place) -> None:
    """Show size, schema, what is in it, and which processes use it.

    \b
    Example: wsrm-mq store info --store /backup/wsrm-monday.db
    """
    now = now_ms()
    with place.one_look() as db:
        found = _measured(db, place)
    if place.is_json:
        as_json(**found)
        return
    oldest = found["oldest_undelivered"]
    fields(
        [
            ("path", found["path"]),
            ("schema", found["schema"]),
            ("copied", f"{moment(found['copied_at'])}, and not adopted" if found["copied_at"] else "no"),
            *([("not served", f"it {found['unconfirmed']}")] if found["unconfirmed"] else []),
            ("size", f"{found['size']} bytes"),
            ("reclaimable", f"{found['reclaimable']} bytes, used again by what comes next"),
            ("write-ahead log", f"{found['wal_size']} bytes"),
            ("queues", found["queues"]),
            *((f"sequences {state}", count) for state, count in found["sequences"].items()),
            *((f"messages {outcome}", count) for outcome, count in found["messages"].items()),
            ("messages pruned", found["pruned"]),
            (
                "oldest undelivered",
                f"position {oldest['position']}, received {moment(oldest['received_at'])} "
                f"({span(now - oldest['received_at'])} ago)"
                if oldest
                else "none",
            ),
            ("live processes", len(found["instances"])),
        ]
    )
    if found["instances"]:
        table(INSTANCE, found["instances"])


def _measured(db: port.Database, place: Place) -> dict[str, Any]:
    from wsrm_mq.store import driver, identity
    from wsrm_mq.views import rows

    return {
        "path": str(place.path),
        "schema": driver.revision(db, place.path),
        "copied_at": identity.identify(db).copied_at,
        "unconfirmed": place.unconfirmed(db),
        "size": place.path.stat().st_size,
        "reclaimable": driver.space(db).reclaimable,
        "wal_size": driver.log_bytes(place.path),
        **rows.contents(db),
        "instances": rows.live_instances(db),
    }


@store.command()
@in_store
def verify(place: Place) -> None:
    """Check that the file is whole and agrees with itself. The service may go on meanwhile; the whole file is
    read.

    \b
    Example: wsrm-mq store verify --store /backup/wsrm-monday.db
    """
    from wsrm_mq.store import invariants

    with place.looking() as db:
        found, doubt = list(invariants.all_findings(db)), place.unconfirmed(db)
    if place.is_json:
        as_json(path=str(place.path), findings=found, unconfirmed=doubt)
    elif found:
        table((Column("broken", of="invariant"), "table", "key", Column("detail", None)), found)
    if found:
        say(
            f"{place.path}: {counted(len(found), 'finding')}. "
            "Keep a copy of the file as it is before you change anything."
        )
        raise click.exceptions.Exit(Exit.FAILED)
    say(f"{place.path}: nothing is wrong ({len(invariants.INVARIANTS)} invariants).")
    if doubt is not None:
        say(f"No service starts on it: it {doubt}")
