"""``wsrm-mq config`` and ``partner``: the file, what holds and where it comes from, its partners, and what a remote
endpoint speaks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from wsrm_mq import kept_headers
from wsrm_mq.cli.output import Column, Exit, Stopped, as_json, fields, into_file, listing, say, table, write
from wsrm_mq.cli.place import config_option, configured, json_option
from wsrm_mq.errors import ConfigurationError, NotFound, ProbeFailed

if TYPE_CHECKING:
    from wsrm_mq import probe
    from wsrm_mq.config import settings


@click.group()
def config() -> None:
    """Write, check and show the configuration."""


@config.command()
@config_option
@json_option
@click.option("--toml", "is_toml", is_flag=True, help="Write it as a configuration file.")
def show(config: Path | None, is_json: bool, is_toml: bool) -> None:
    """Show every option, and what set it. That may be environment, file or default.

    \b
    Example: wsrm-mq config show --toml
    """
    from wsrm_mq.config import loading, options, settings, writing

    path = config or loading.find_file(os.environ)
    loaded = loading.read(path, os.environ)
    values = writing.as_values(loaded.settings)
    if is_toml:
        write(writing.as_toml(loaded.settings, loaded.origins), keep="\n")
    elif is_json:
        as_json(
            file=None if path is None else str(path),
            options={name: {"value": values[name], "origin": loaded.origins[name]} for name in settings.OPTIONS},
            partners=values["partners"],
            nodes=values["nodes"],
        )
    else:
        rows = [(name, options.toml(getattr(loaded.settings, name)), loaded.origins[name]) for name in settings.OPTIONS]
        for kind in ("partner", "node"):
            for section, own in values[f"{kind}s"].items():
                rows += [(f"{kind}.{section}.{name}", options.toml(value), "file") for name, value in own.items()]
        _show_options(rows)


def _show_options(rows: list[tuple[str, str, str]]) -> None:
    names = ("option", "value", "origin")
    table(names, [dict(zip(names, row, strict=True)) for row in rows])


@config.command()
@config_option
@json_option
def check(config: Path | None, is_json: bool) -> None:
    """Say whether file and environment can be used. All that is wrong with them is named. The WSDLs that one_way names
    are read, and the request headers are listed that are stored with a message.

    \b
    Example: wsrm-mq config check --config /etc/wsrm-mq.toml
    """
    from wsrm_mq.config import loading

    path = config or loading.find_file(os.environ)
    file = None if path is None else str(path)
    loaded, mistakes = loading.examine(path, os.environ)
    problems = [*mistakes, *_unreadable(loaded.settings)]
    if problems:
        if is_json:
            as_json(file=file, problem=problems[0], problems=problems)
        raise ConfigurationError(*problems)
    kept = sorted({*kept_headers.KEPT_HEADERS, *loaded.settings.keep_headers}, key=str.lower)
    if is_json:
        as_json(file=file, problem=None, problems=[], kept_headers=kept)
        return
    say(f"{path}: good." if path is not None else "There is no configuration file; environment and defaults are good.")
    write(f"Of a request these headers are stored, and no others: {', '.join(kept)}.")


def _unreadable(settings: settings.Settings) -> Iterator[str]:
    """The faults of the WSDLs that ``one_way`` names, in the settings for all and in each partner's."""
    from wsrm_mq.config import loading

    named = {"": settings.one_way, **{f"partner.{name}.": one.one_way for name, one in settings.partners.items()}}
    for place, names in named.items():
        for name in () if names in (None, "auto") else names:
            try:
                loading.named_operations([name])
            except ConfigurationError as error:
                yield f"{place}{error}"


@config.command()
@json_option
@click.argument("path", type=click.Path(path_type=Path, allow_dash=True), default="wsrm-mq.toml")
def init(path: Path, is_json: bool) -> None:
    """Write a configuration file. It has every option with its meaning and its default, commented out. PATH may be
    -, which is standard output.

    \b
    Example: wsrm-mq config init wsrm-mq.toml
    """
    from wsrm_mq.config import settings, writing

    text = writing.as_toml(settings.Settings())
    if str(path) == "-":
        if is_json:
            raise click.UsageError("The file itself goes to standard output with -; leave --json out.")
        write(text.rstrip("\n"), keep="\n")
        return
    into_file(text.encode(), path)
    if is_json:
        as_json(path=str(path))
    else:
        say(f"Wrote {path}.")


_MARKS = ("principal", "path", "address")
_FOR_PEOPLE = ("description", "contact")


@click.group()
def partner() -> None:
    """See the partners of the configuration, and check what an endpoint speaks."""


@partner.command("list")
@config_option
@json_option
def list_partners(config: Path | None, is_json: bool) -> None:
    """List the partners and the requests that each means. They are tried in this order.

    \b
    Example: wsrm-mq partner list
    """
    from wsrm_mq.config import writing

    own = writing.as_values(configured(config))["partners"]
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


@partner.command("show")
@config_option
@json_option
@click.argument("name")
def show_partner(config: Path | None, is_json: bool, name: str) -> None:
    """Show every option that holds for a partner, and if it is its own.

    \b
    Example: wsrm-mq partner show acme
    """
    from wsrm_mq.config import options, settings, writing

    configured_here = configured(config)
    section = configured_here.partners.get(name)
    if section is None:
        known = ", ".join(configured_here.partners) or "none"
        raise NotFound(f"There is no partner {name}; those of the configuration: {known}.")
    own = writing.as_values(configured_here)["partners"][name]
    rows = [(option, configured_here.effective(option, section), option in own) for option in settings.PARTNER_OPTIONS]
    if is_json:
        as_json(name=name, options={option: {"value": value, "own": is_own} for option, value, is_own in rows})
        return
    _show_options([(o, options.toml(v), "partner" if mine else "general") for o, v, mine in rows])


@partner.command("check")
@json_option
@click.argument("url")
@click.option(
    "--timeout", type=click.FloatRange(0.1, 600), default=10.0, show_default=True, help="Seconds for each try."
)
@click.option("--first", is_flag=True, help="Stop at the first combination that works, newest first.")
def check_partner(is_json: bool, url: str, timeout: float, first: bool) -> None:
    """Find out what the endpoint at URL speaks. Its WSDL is read; then a sequence is opened, and ended again, in every
    combination of versions. No message is sent, and no redirect followed.

    Only an open sequence shows that a combination works. So up to six terminated sequences, in which nothing was sent,
    are left with the endpoint until it forgets them; with --first it is one. Any that cannot be ended was opened for a
    minute.

    Status 0: it speaks WS-ReliableMessaging. 1: it does not, or the address does not answer.

    \b
    Example: wsrm-mq partner check http://192.0.2.7:8080/orders
    """
    from wsrm_mq import probe

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_good_port(url):
        raise click.UsageError(f"{url!r} is no address of an endpoint; write http://HOST:PORT/PATH or https://….")
    described: probe.Description | None = None
    problem = ""
    try:
        described = probe.describe(url, timeout)
    except ProbeFailed as error:
        problem = str(error)
    spoken: list[probe.Spoken] = []
    for combination in probe.combinations():
        try:
            spoken.append(probe.speak(url, combination, timeout))
        except ProbeFailed as error:
            if described is None:
                break  # an address that answers neither would take its time for each of the others
            spoken.append(probe.Spoken(combination, detail=str(error)))
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


def _tell(
    url: str, described: probe.Description | None, spoken: list[probe.Spoken], problem: str, is_json: bool
) -> None:
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


def _wsdl(described: probe.Description) -> str:
    if not described.is_wsdl:
        return f"none (HTTP {described.status})"
    soap = f"SOAP {' and '.join(described.soap)}" if described.soap else "no SOAP binding"
    return f"{soap}; reliable messaging: {', '.join(described.policies) or 'not announced'}"
