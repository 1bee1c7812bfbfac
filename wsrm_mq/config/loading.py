"""From file, environment and flags to settings that are checked."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from wsrm_mq.config.options import Kind, option_value
from wsrm_mq.config.settings import OPTIONS, PARTNER_OPTIONS, Partner, Settings
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.policy import Acknowledge, OnFault
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.terms import DeliveryAssurance

__all__ = ["FILE_NAME", "Loaded", "find_file", "load", "named_operations", "read", "settings_from"]

FILE_NAME: Final = "wsrm-mq.toml"
PREFIX: Final = "WSRM_MQ_"
FILE_VARIABLE: Final = PREFIX + "CONFIG"


class Loaded(NamedTuple):
    """The options that hold, and what has set each of them."""

    settings: Settings
    origins: dict[str, str]
    """Option -> ``flag``, ``env``, ``file`` or ``default``."""


def find_file(environ: Mapping[str, str], directory: Path = Path()) -> Path | None:
    """The file that ``WSRM_MQ_CONFIG`` names, or ``wsrm-mq.toml`` in ``directory`` if there is one."""
    named = environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    beside = directory / FILE_NAME
    return beside if beside.is_file() else None


def load(path: Path | None, environ: Mapping[str, str], **overrides: Any) -> Settings:
    """The settings of the file at ``path`` (``None``: no file), the environment and ``overrides``, which win.

    Raises ``ConfigurationError`` for an unknown key, a value that is not allowed, options that contradict.
    """
    return read(path, environ, **overrides).settings


def settings_from(given: Mapping[str, Any]) -> Settings:
    """Settings of options that a program gives, as Python values; neither file nor environment is read."""
    return read(None, {}, **given).settings


def read(path: Path | None, environ: Mapping[str, str], **overrides: Any) -> Loaded:
    """``load``, and where each value came from."""
    layers = {
        "file": _read_file(path) if path is not None else {},
        "env": _from_environ(environ),
        "flag": _checked(OPTIONS, _named(overrides), "option "),
    }
    settings = Settings(**{option: value for layer in layers.values() for option, value in layer.items()})
    _refuse_contradictions(settings)
    origins = dict.fromkeys(OPTIONS, "default")
    for origin, layer in layers.items():
        origins |= dict.fromkeys(layer, origin)
    return Loaded(settings, origins)


def _named(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Python says ``partners=``; the file, section by section, ``partner``."""
    return {"partner" if name == "partners" else name: value for name, value in overrides.items()}


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = "write one with `wsrm-mq config init`"
        raise ConfigurationError(f"{path}: there is no such file; {hint}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: is not TOML: {error}.") from error
    except RecursionError:
        raise ConfigurationError(f"{path}: is nested too deeply; no option is more than a list in a section.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}.") from error
    return _checked(OPTIONS, content, f"{path}: ")


def _from_environ(environ: Mapping[str, str]) -> dict[str, Any]:
    names = {PREFIX + option.upper(): option for option in OPTIONS}
    values = {}
    for name, text in environ.items():
        if not name.startswith(PREFIX) or name == FILE_VARIABLE:
            continue
        place = f"environment: {name}"
        if name not in names:
            raise ConfigurationError(_unknown("environment: ", name, (*names, FILE_VARIABLE)))
        values[names[name]] = option_value(text, names[name], OPTIONS[names[name]], place, is_text=True)
    return values


def _checked(known: Mapping[str, Kind], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``given`` as values of options; ``where`` is put before every complaint."""
    checked: dict[str, Any] = {}
    for key, value in given.items():
        if key in known:
            checked[key] = option_value(value, key, known[key], where + key)
        elif key == "partner" and known is OPTIONS:
            checked["partners"] = _partners(value, where)
        elif key in OPTIONS:
            raise ConfigurationError(f"{where}{key}: {_GENERAL}")
        elif key in PARTNER_OPTIONS:
            raise ConfigurationError(f"{where}{key}: {_OF_A_PARTNER}")
        else:
            raise ConfigurationError(_unknown(where, key, (*known, "partner")))
    return checked


def _partners(sections: Any, where: str) -> dict[str, Partner]:
    partners = {}
    for name, section in sections.items() if isinstance(sections, Mapping) else [("NAME", sections)]:
        place = f"{where}partner.{name}"
        if not isinstance(section, Mapping | Partner):
            raise ConfigurationError(f"{place}: allowed is a section, [partner.NAME].")
        if isinstance(section, Mapping):
            section = Partner(**_checked(PARTNER_OPTIONS, section, f"{place}."))
        if section.principal is section.path is section.address is None:
            raise ConfigurationError(f"{place}: fits no request; give it a principal, a path or an address.")
        partners[name] = section
    return partners


_GENERAL: Final = (
    "is not allowed in a partner section, because it holds for all partners; "
    "it belongs to the top level, above the first section."
)
_OF_A_PARTNER: Final = "is allowed in a partner section only; it belongs to [partner.NAME]."


_REMOVED: Final = {
    "request_timeout": "60 seconds",
    "max_header": "256 KiB",
    "spool_over": "1 MiB",
    "max_ranges": "4,096",
    "max_held_bytes": "4 GiB; max_held and max_store bound what may wait",
    "max_held_total": "5,000,000; max_store bounds the store",
    "max_held_bytes_total": "16 GiB; max_store bounds the store",
    "retain_ended": "30 days, and as long as a message of the sequence is kept",
    "retain_ledger": "30 days",
    "max_queued": "1,024 requests",
    "max_queued_bytes": "64 MiB",
    "dispatch_threads": "8, and up to 64 while all are busy",
}
"""Options of older versions, each with the value that is fixed now."""


def _unknown(where: str, name: str, known: Iterable[str]) -> str:
    fixed = _REMOVED.get(name.removeprefix(PREFIX).lower())
    if fixed is not None:
        return f"{where}{name}: is no option any more; leave it out. It is always {fixed}."
    near = difflib.get_close_matches(name, list(known), 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else "`wsrm-mq config init -` shows all there are."
    return f"{where}{name}: there is no such option; {hint}"


# the operations that `one_way` names


def named_operations(names: Iterable[str]) -> frozenset[str]:
    """``names``, a path of a ``.wsdl`` file replaced by the operations without output in it. A file that cannot be
    read is a ``ConfigurationError``: an operation taken for two-way by mistake would be waited for."""
    return frozenset(
        operation
        for name in names
        for operation in (_operations_of(Path(name)) if name.lower().endswith(".wsdl") else (name,))
    )


def _operations_of(wsdl: Path) -> frozenset[str]:
    from wsrm_mq.envelope.wsdl import operations_in  # lxml, which few configurations need

    try:
        return operations_in(wsdl.read_bytes()).one_way
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error  # an OSError's own text repeats the path
        raise ConfigurationError(f"one_way: {wsdl} cannot be read as a WSDL: {why}.") from error


# contradictions

Of = Callable[[str], Any]


def _discards(of: Of) -> bool:
    return of("behavior") is not IncompleteSequenceBehavior.NO_DISCARD or of("on_incomplete") == "dead_letter"


_CONTRADICTIONS: Final[tuple[tuple[Callable[[Of], bool], str], ...]] = (
    (
        lambda of: (
            of("behavior") is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE
            and of("acknowledge") is Acknowledge.DELIVERED
        ),
        'behavior = "DiscardEntireSequence" delivers nothing before the sequence is complete, and '
        'acknowledge = "delivered" acknowledges nothing before it is delivered: each waits for the other. '
        'Set acknowledge = "stored", or another behavior.',
    ),
    (
        lambda of: not of("ordered") and _discards(of),
        "ordered = false delivers across gaps at once, so nothing is left to discard. "
        'Set behavior = "NoDiscard" and on_incomplete = "deliver", or ordered = true.',
    ),
    (
        lambda of: of("assurance") is DeliveryAssurance.AT_MOST_ONCE and _discards(of),
        'assurance = "at_most_once" delivers across gaps at once, so nothing is left to discard. '
        'Set behavior = "NoDiscard" and on_incomplete = "deliver", or another assurance.',
    ),
    (
        lambda of: of("assurance") is DeliveryAssurance.AT_MOST_ONCE and of("on_fault") is OnFault.DEAD_LETTER,
        'assurance = "at_most_once" settles a message before the service sees it, so on_fault = "dead_letter" has '
        'nothing left to put aside. Set on_fault = "settle", or another assurance.',
    ),
)


def _refuse_contradictions(settings: Settings) -> None:
    for name, partner in (("", None), *settings.partners.items()):
        for contradicts, text in _CONTRADICTIONS:
            if contradicts(lambda option, partner=partner: settings.effective(option, partner)):  # type: ignore[misc]
                raise ConfigurationError(f"partner.{name}: {text}" if name else text)
        if partner is not None:
            _refuse_partner(name, partner, settings.decoupled)
    for option in ("connection_header", "address_header"):
        if getattr(settings, option) is not None and not settings.trusted_proxies:
            raise ConfigurationError(
                f"{option} is believed from trusted_proxies only, and there are none. "
                f"Name the proxies, or leave {option} out."
            )


def _refuse_partner(name: str, partner: Partner, decoupled: Iterable[str]) -> None:
    every_answer_has_one = partner.one_way_answer != "empty" and not decoupled
    if partner.acknowledgement_interval is not None and every_answer_has_one:
        raise ConfigurationError(
            f"partner.{name}: acknowledgement_interval puts acknowledgements off, and every answer carries one. "
            'Set one_way_answer = "empty" or decoupled, or leave acknowledgement_interval out.'
        )
