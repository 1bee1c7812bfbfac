"""``wsrm-mq token``: who may use the queues from other machines. What is changed leaves a line in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from wsrm_mq.cli import completing
from wsrm_mq.cli.acts import Care, changed, done, tried
from wsrm_mq.cli.output import Column, key, when, write
from wsrm_mq.cli.place import Place, in_store, now_ms, together
from wsrm_mq.views.words import moment

if TYPE_CHECKING:
    from wsrm_mq.server import rights as granting
    from wsrm_mq.store import transaction

_RIGHTS: Final = {
    "put": "It may put messages into queues of PATTERN.",
    "consume": "It may take messages from them.",
    "peek": "It may look at what they have.",
    "admin": "It may declare, bind, purge and redrive them.",
    "route": "It is a node that may hand over messages for them.",
}


_grants: Final = together(
    *(
        click.option(f"--{right}", multiple=True, metavar="PATTERN", help=f"{text} Repeatable.")
        for right, text in _RIGHTS.items()
    )
)


@click.group()
def token() -> None:
    """Say who may use the queues from other machines. In a pattern * stands for any characters; one of topics begins
    with topic: as in topic:orders/#."""


@token.command()
@in_store
@click.argument("name")
@_grants
@click.option("--expires", metavar="TIME", help="It ends after so long: 90d, 12h.")
@click.option("--certificate", metavar="NAME", help="For the TLS client of this subject, as the proxy reports it.")
@tried
def add(
    place: Place, name: str, expires: str | None, certificate: str | None, care: Care, **rights: tuple[str, ...]
) -> None:
    """Let a program on another machine use queues.

    The secret is written to standard output, and shown only now: the store has a digest of it. With --certificate there
    is none.

    \b
    Example: wsrm-mq token add shop --put "orders*" --consume thanks --expires 90d
             wsrm-mq token add ops --peek "*" --admin "*" --certificate "CN=ops"
    """
    from wsrm_mq.server import rights as granting
    from wsrm_mq.server import tokens

    grants = [granting.check_grant(right, pattern) for right in _RIGHTS for pattern in rights[right]]
    if not grants:
        raise click.UsageError("Say what it may: --put, --consume, --peek, --admin or --route, with a pattern.")
    ends = None if expires is None else now_ms() + _span(expires)
    secret = None if certificate is not None else tokens.new_secret()

    def verb(tx: transaction.Transaction) -> None:
        tokens.add(tx, name, grants, secret=secret, certificate=certificate, expires_at=ends)
        told = f"{name}: {_told(grants)}" + ("" if certificate is None else f", by the certificate {certificate}")
        tx.add_ledger("token_added", None, actor=care.actor, reason=told)

    done(place, care, verb)
    until = "" if ends is None else f" until {moment(ends)}"
    shown = None if care.dry_run else secret
    would, did = f"let {name} {_told(grants)}{until}", f"{name} may {_told(grants)}{until}."
    did += "" if shown is None else " Its secret is shown only now:"
    told = [list(one) for one in grants]
    answer = {"token": name, "secret": shown, "certificate": certificate, "grants": told, "expires_at": ends}
    changed(place.is_json, care.dry_run, would, did, **answer)
    if shown is not None and not place.is_json:
        write(shown)


def _told(grants: list[granting.Grant] | tuple[granting.Grant, ...]) -> str:
    return ", ".join(f"{right} {pattern}" for right, pattern in grants)


def _span(text: str) -> int:
    from wsrm_mq.views import query

    try:
        return query.span(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


@token.command("list")
@in_store
def list_(place: Place) -> None:
    """List the tokens, what each may, and when it was used.

    \b
    Example: wsrm-mq token list
    """
    from wsrm_mq.server import tokens

    with place.one_look() as db:
        found = tokens.listed(db)
    columns = (
        *(key("name"), Column("may", 24, of="grants", whole=_told), when("expires", "expires_at")),
        *(when("used", "used_at", rank=1), Column("certificate", rank=2), when("made", "created_at", rank=2)),
    )
    rows = [{**one._asdict(), "grants": [list(grant) for grant in one.grants]} for one in found]
    for row in rows:
        del row["digest"]
    place.listing("tokens", rows, columns)


@token.command()
@in_store
@click.argument("name", shell_complete=completing.values("a token"))
@tried
def revoke(place: Place, name: str, care: Care) -> None:
    """End a token.

    A server refuses it within a second, also where its program is connected.

    \b
    Example: wsrm-mq token revoke shop
    """
    from wsrm_mq.server import tokens

    def verb(tx: transaction.Transaction) -> None:
        tokens.revoke(tx, name)
        tx.add_ledger("token_revoked", None, actor=care.actor, reason=name)

    done(place, care, verb)
    changed(place.is_json, care.dry_run, f"revoke the token {name}", f"{name} is revoked.", token=name)
