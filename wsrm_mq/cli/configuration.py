"""``wsrm-mq config``: the file, what holds, and where it comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wsrm_mq.cli.output import as_json, into_file, say, table, write
from wsrm_mq.cli.place import config_option, json_option
from wsrm_mq.errors import ConfigurationError

if TYPE_CHECKING:
    from wsrm_mq.config import Settings


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
    from wsrm_mq.config.loading import find_file, read
    from wsrm_mq.config.options import toml
    from wsrm_mq.config.settings import OPTIONS
    from wsrm_mq.config.writing import as_toml, as_values

    path = config or find_file(os.environ)
    loaded = read(path, os.environ)
    values = as_values(loaded.settings)
    if is_toml:
        write(as_toml(loaded.settings, loaded.origins), keep="\n")
    elif is_json:
        as_json(
            file=None if path is None else str(path),
            options={name: {"value": values[name], "origin": loaded.origins[name]} for name in OPTIONS},
            partners=values["partners"],
            nodes=values["nodes"],
        )
    else:
        rows = [(name, toml(getattr(loaded.settings, name)), loaded.origins[name]) for name in OPTIONS]
        for kind in ("partner", "node"):
            for section, own in values[f"{kind}s"].items():
                rows += [(f"{kind}.{section}.{name}", toml(value), "file") for name, value in own.items()]
        table(("option", "value", "origin"), rows)


@config.command()
@config_option
@json_option
def check(config: Path | None, is_json: bool) -> None:
    """Say whether file and environment can be used. All that is wrong with them is named. The WSDLs that one_way names
    are read, and the request headers are listed that are stored with a message.

    \b
    Example: wsrm-mq config check --config /etc/wsrm-mq.toml
    """
    from wsrm_mq.config.loading import examine, find_file
    from wsrm_mq.kept_headers import KEPT_HEADERS

    path = config or find_file(os.environ)
    file = None if path is None else str(path)
    loaded, mistakes = examine(path, os.environ)
    problems = [*mistakes, *_unreadable(loaded.settings)]
    if problems:
        if is_json:
            as_json(file=file, problem=problems[0], problems=problems)
        raise ConfigurationError(*problems)
    kept = sorted({*KEPT_HEADERS, *loaded.settings.keep_headers}, key=str.lower)
    if is_json:
        as_json(file=file, problem=None, problems=[], kept_headers=kept)
        return
    say(f"{path}: good." if path is not None else "There is no configuration file; environment and defaults are good.")
    write(f"Of a request these headers are stored, and no others: {', '.join(kept)}.")


def _unreadable(settings: Settings) -> Iterator[str]:
    """The faults of the WSDLs that ``one_way`` names, in the settings for all and in each partner's."""
    from wsrm_mq.config.loading import named_operations

    named = {"": settings.one_way, **{f"partner.{name}.": one.one_way for name, one in settings.partners.items()}}
    for place, names in named.items():
        for name in () if names in (None, "auto") else names:
            try:
                named_operations([name])
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
    from wsrm_mq.config import Settings
    from wsrm_mq.config.writing import as_toml

    text = as_toml(Settings())
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
