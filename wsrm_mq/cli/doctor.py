"""``wsrm-mq doctor``: processes, proxy, clock and store examined, each finding with the way to mend it."""

from __future__ import annotations

from typing import Final

import click

from wsrm_mq.cli.output import Exit, as_json, prose, write
from wsrm_mq.cli.place import Place, in_store, looking
from wsrm_mq.cli.sight import see

MARGIN: Final = 9


@click.command()
@in_store
@click.pass_context
def doctor(context: click.Context, place: Place) -> None:
    """Examine processes, server, proxy, clock and store, and say how to mend what is wrong. Exit status 1 where
    something is.

    \b
    Example: wsrm-mq doctor
             wsrm-mq doctor --json
    """
    from wsrm_mq.cli.examinations import EXAMINATIONS, LOOKED_AT, Patient
    from wsrm_mq.views.rows import newest_requests

    with looking(place) as db:
        patient = Patient(place, db, see(place, db), newest_requests(db, LOOKED_AT))
        reports = {name: examine(patient) for name, examine in EXAMINATIONS.items()}
    is_well = not any(report.troubles for report in reports.values())
    if place.is_json:
        as_json(
            well=is_well,
            examinations={
                name: {
                    "well": None if not report.is_known else not report.troubles,
                    "said": report.said,
                    "troubles": [
                        {**one._asdict(), "fix": [place.command(line) for line in one.fix.splitlines()]}
                        for one in report.troubles
                    ],
                }
                for name, report in reports.items()
            },
        )
        context.exit(Exit.OK if is_well else Exit.FAILED)
    for name, report in reports.items():
        if not report.troubles:
            word, style = ("ok", "green") if report.is_known else ("unknown", "cyan")
            prose(f"{name}: {report.said}", word, margin=MARGIN, style=style)
        for one in report.troubles:
            prose(f"{name}: {one.what}", "TROUBLE", margin=MARGIN, style="bold red")
            for count, line in enumerate(one.fix.splitlines()):
                write(f"{'fix: ' if not count else '':>{MARGIN}}{place.command(line)}")
            if one.remark:
                prose(one.remark, margin=MARGIN)
    context.exit(Exit.OK if is_well else Exit.FAILED)
