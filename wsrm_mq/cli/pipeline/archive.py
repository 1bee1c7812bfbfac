"""``wsrm-mq pipeline archive``: what stores have settled, for good."""

from __future__ import annotations

from pathlib import Path

import click

from wsrm_mq.cli.acts import login
from wsrm_mq.cli.archive import SHOWN, tell_store
from wsrm_mq.cli.output import say
from wsrm_mq.cli.pipeline.work import Result, Work, job


@click.command()
@job
@click.option("--header", "headers", metavar="NAME", multiple=True, help="Keep this request header too.")
@click.option("--with-security", "security", is_flag=True, help="Leave wsse:Security in the envelopes.")
@click.option("--no-confirm", is_flag=True, help="Leave it to `wsrm-mq archive confirm` to tell the stores.")
@click.option("--actor", metavar="NAME", help="Who does it, for the ledger. Default: your login name.")
def archive(work: Work, headers: tuple[str, ...], security: bool, no_confirm: bool, actor: str | None) -> Result:
    """Write what stores have settled as Parquet: each store has an archive of its own below --out.

    A later run adds what was settled since. What is written is compared with its store. Then the store is told, where
    it can be written, so that retention may delete it.

    \b
    Example: wsrm-mq pipeline archive /stores/a.db /stores/b.db --out /archive
    """
    from wsrm_mq.errors import ConfigurationError
    from wsrm_mq.export.pieces import opened
    from wsrm_mq.spark.archiving import Asked, archive_of
    from wsrm_mq.spark.options import found_paths
    from wsrm_mq.store.identity import identify

    who = actor or login()
    stores = [Path(one) for one in found_paths(work.paths)]
    if folders := [one for one in stores if one.is_dir()]:
        raise ConfigurationError(f"{folders[0]}: is no store. Name the stores that are to be archived.")
    asked = Asked(headers, security, work.options.get("node"))
    places: list[str] = []
    archived = differences = confirmed = 0
    for store in stores:
        with opened(store) as db:
            place = work.out / identify(db).id
        made = archive_of(work.spark, store, place, asked, who)
        for one in made.wrong[:SHOWN]:
            say(f"{store}: {one.table} {one.what}: {one.kind}")
        if not made.known.number:  # it has nothing that is settled
            continue
        places.append(str(place))
        archived += made.rows.get("messages", 0)
        differences += len(made.wrong)
        confirmed += not (made.wrong or no_confirm) and tell_store(store, place, who)
    summary = {"stores": len(stores), "archived": archived, "differences": differences, "confirmed": confirmed}
    return Result({**summary, "archives": places}, is_clean=not differences)
