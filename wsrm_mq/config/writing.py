"""Settings as a file, and as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from wsrm_mq.config.loading import FILE_NAME
from wsrm_mq.config.options import toml
from wsrm_mq.config.purposes import PURPOSES
from wsrm_mq.config.settings import OPTIONS, PARTNER_DEFAULTS, PARTNER_OPTIONS, Settings


def as_values(settings: Settings) -> dict[str, Any]:
    """Every option, as JSON has it; of a partner only its own."""
    values: dict[str, Any] = msgspec.to_builtins(settings)
    for name, partner in settings.partners.items():
        kept = values["partners"][name]
        values["partners"][name] = {
            option: kept[option]
            for option, default in PARTNER_DEFAULTS.items()
            if getattr(partner, option) is not default
        }
    return values


def as_toml(settings: Settings, origins: Mapping[str, str] | None = None) -> str:
    """``settings`` as a file that ``load`` reads to the same. Each option comes with what it means; one that
    has its default is commented out. ``origins`` are noted behind the values."""
    lines = [f"# {FILE_NAME}: options of wsrm_mq. Flags and WSRM_MQ_<OPTION> stand above this file."]
    defaults = Settings()
    for option, kind in OPTIONS.items():
        value = getattr(settings, option)
        mark = "# " if value == getattr(defaults, option) else ""
        origin = f"  # {origins[option]}" if origins else ""
        purpose = PURPOSES[option]
        lines += ["", f"# {kind.description}", f"# Changed by the {purpose.who}: {purpose.when}."]
        lines += [f"# {kind.allowed}", f"{mark}{option} = {toml(value)}{origin}"]
    lines += [
        "",
        "# A partner: the principal, path and address given all have to fit; what may differ for it is",
        f"# {', '.join(option for option in PARTNER_OPTIONS if option in OPTIONS)}.",
        "# [partner.NAME]",
    ]
    for option, kind in PARTNER_OPTIONS.items():
        if option not in OPTIONS:
            lines += [f"# {option} = {toml(PARTNER_DEFAULTS[option])}  # {kind.description}"]
    for name, partner in settings.partners.items():
        own = {option: getattr(partner, option) for option in PARTNER_OPTIONS}
        lines += ["", f"[partner.{toml(name)}]"]
        lines += [f"{option} = {toml(v)}" for option, v in own.items() if v is not PARTNER_DEFAULTS[option]]
    return "\n".join(lines) + "\n"
