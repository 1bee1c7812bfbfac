"""Settings as a file, and as plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from wsrm_mq.config.options import toml
from wsrm_mq.config.settings import FarNode, Partner, Settings

_TEMPLATE: Final = Path(__file__).with_name("template.toml")
"""Every option with its meaning, who changes it when, what it may be, and its default, which is commented out."""
_DEFAULT: Final = re.compile(r"^# (\w+) = .*$", re.MULTILINE)
_SECTIONS: Final = re.compile(r"(?=^# A partner: |^# Another node, )", re.MULTILINE)


def as_values(settings: Settings) -> dict[str, Any]:
    """Convert every option to a value of JSON; a partner has only the options that it sets."""
    values: dict[str, Any] = msgspec.to_builtins(settings)
    sections = {name: _given(one) for name, one in settings.partners.items()}
    values["partners"] = msgspec.to_builtins(sections)
    values["nodes"] = {name: _given(one) for name, one in settings.nodes.items()}
    return values


def _given(section: Partner | FarNode) -> dict[str, Any]:
    """The options that a section sets."""
    values = ((one, getattr(section, one.name)) for one in msgspec.structs.fields(section))
    return {one.name: value for one, value in values if value is not one.default}


def as_toml(settings: Settings, origins: Mapping[str, str] | None = None) -> str:
    """Write ``settings`` as a file that ``load`` reads to equal settings: the template, with the values that are not
    the defaults. ``origins`` are noted behind the values."""
    defaults = Settings()

    def line(found: re.Match[str]) -> str:
        value, is_default = getattr(settings, found[1]), getattr(settings, found[1]) == getattr(defaults, found[1])
        origin = f"  # {origins[found[1]]}" if origins else ""
        return f"{'# ' if is_default else ''}{found[1]} = {toml(value)}{origin}"

    general, partners, nodes = _SECTIONS.split(_TEMPLATE.read_text(encoding="utf-8"))
    written = [_DEFAULT.sub(line, general), partners]
    written += (_section("partner", name, _given(one)) for name, one in settings.partners.items())
    written.append(nodes)
    written += (_section("node", name, _given(node)) for name, node in settings.nodes.items())
    return "\n".join(part.rstrip("\n") + "\n" for part in written)


def _section(kind: str, name: str, values: Mapping[str, Any]) -> str:
    return "\n".join([f"[{kind}.{toml(name)}]", *(f"{option} = {toml(value)}" for option, value in values.items())])
