"""``wsrm-mq partner``: the partners of the configuration, and what a remote endpoint speaks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from wsrm_mq.cli.output import Column, Exit, Stopped, as_json, fields, listing, say, table
from wsrm_mq.cli.place import config_option, configured, json_option
from wsrm_mq.errors import NotFound, ProbeFailed

if TYPE_CHECKING:
    from wsrm_mq.probe import Description, Spoken

_MARKS = ("principal", "path", "address")
_FOR_PEOPLE = ("description", "contact")


@click.group()
def partner() -> None:
    """See the partners of the configuration, and check what an endpoint speaks."""


@partner.command("list")
@config_option
@json_option
def list_(config: Path | None, is_json: bool) -> None:
    """List the partners and the requests that each means. They are tried in this order.

    \b
    Example: wsrm-mq partner list
    """
    from wsrm_mq.config.writing import as_values

    own = as_values(configured(config))["partners"]
    rows = [
        {
            "name": name,
            **{mark: section.get(mark) for mark in _MARKS},
            "options": len(set(section) - {*_MARKS, *_FOR_PEOPLE}),
            **{fact: section.get(fact) for fact in _FOR_PEOPLE},
        }
        for name, section in own.items()
    ]
    if rows or is_json:
        columns = (Column("partner", of="name"), *_MARKS, Column("own options", of="options"), *_FOR_PEOPLE)
        listing(is_json, "partners", rows, columns)
    else:
        say("There are no partners; a section [partner.NAME] of the configuration makes one.")


@partner.command()
@config_option
@json_option
@click.argument("name")
def show(config: Path | None, is_json: bool, name: str) -> None:
    """Show every option that holds for a partner, and if it is its own.

    \b
    Example: wsrm-mq partner show acme
    """
    from wsrm_mq.config.options import toml
    from wsrm_mq.config.settings import OPTIONS, PARTNER_OPTIONS
    from wsrm_mq.config.writing import as_values

    settings = configured(config)
    section = settings.partners.get(name)
    if section is None:
        known = ", ".join(settings.partners) or "none"
        raise NotFound(f"There is no partner {name}; those of the configuration: {known}.")
    own = as_values(settings)["partners"][name]
    rows = [
        (option, settings.effective(option, section) if option in OPTIONS else getattr(section, option), option in own)
        for option in PARTNER_OPTIONS
    ]
    if is_json:
        as_json(name=name, options={option: {"value": value, "own": is_own} for option, value, is_own in rows})
        return
    table(("option", "value", "origin"), [(o, toml(v), "partner" if mine else "general") for o, v, mine in rows])


@partner.command()
@json_option
@click.argument("url")
@click.option(
    "--timeout", type=click.FloatRange(0.1, 600), default=10.0, show_default=True, help="Seconds for each try."
)
@click.option("--first", is_flag=True, help="Stop at the first combination that works, newest first.")
def check(is_json: bool, url: str, timeout: float, first: bool) -> None:
    """Find out what the endpoint at URL speaks. Its WSDL is read; then a sequence is opened, and ended again, in every
    combination of versions. No message is sent, and no redirect followed.

    Only an open sequence shows that a combination works. So up to six terminated sequences, in which nothing was sent,
    are left with the endpoint until it forgets them; with --first it is one. Any that cannot be ended was opened for a
    minute.

    Status 0: it speaks WS-ReliableMessaging. 1: it does not, or the address does not answer.

    \b
    Example: wsrm-mq partner check http://192.0.2.7:8080/orders
    """
    from wsrm_mq.probe import Spoken, combinations, describe, speak

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_good_port(url):
        raise click.UsageError(f"{url!r} is no address of an endpoint; write http://HOST:PORT/PATH or https://….")
    described: Description | None = None
    problem = ""
    try:
        described = describe(url, timeout)
    except ProbeFailed as error:
        problem = str(error)
    spoken: list[Spoken] = []
    for combination in combinations():
        try:
            spoken.append(speak(url, combination, timeout))
        except ProbeFailed as error:
            if described is None:
                break  # an address that answers neither would take its time for each of the others
            spoken.append(Spoken(combination, detail=str(error)))
        if first and spoken[-1].created:
            break
    if not problem and not any(one.created for one in spoken):
        problem = f"{url}: opens no sequence in any version."
    _tell(url, described, spoken, problem, is_json)
    if not any(one.created for one in spoken):
        raise Stopped(problem, Exit.FAILED)
    if problem:
        say(f"wsrm-mq: {problem}")


def _has_good_port(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def _tell(url: str, described: Description | None, spoken: list[Spoken], problem: str, is_json: bool) -> None:
    said = ("created", "ended", "expires", "behavior", "detail")
    rows: list[dict[str, Any]] = [
        {
            **{part: getattr(one.combination, part).label for part in ("rm", "soap", "addressing")},
            **{name: getattr(one, name) for name in said},
        }
        for one in spoken
    ]
    if described is not None and not is_json:
        fields([("WSDL", _wsdl(described))])
    if rows or is_json:
        wsdl = None if described is None else asdict(described)
        columns = ("rm", "soap", "addressing", *said)
        listing(is_json, "combinations", rows, columns, url=url, wsdl=wsdl, problem=problem or None)


def _wsdl(described: Description) -> str:
    if not described.is_wsdl:
        return f"none (HTTP {described.status})"
    soap = f"SOAP {' and '.join(described.soap)}" if described.soap else "no SOAP binding"
    return f"{soap}; reliable messaging: {', '.join(described.policies) or 'not announced'}"
