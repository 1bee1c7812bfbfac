"""Every option: its type, its default, what it means, and where its value comes from.

Flags stand above the environment (``WSRM_MQ_<OPTION>``), that above the file (``wsrm-mq.toml``), that above
the default. In the file the options are top-level keys; a partner's habits and limits are a section
``[partner.NAME]``. A mistake is a ``ConfigurationError`` that names the place, the key and what is allowed.
"""

from __future__ import annotations

import difflib
import ipaddress
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.options import Count, Kind, Seconds, Size, described, kinds, option_value, toml
from wsrm_mq.queue.policy import Acknowledge, OnPoison, QueuePolicy
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.inbound import Bounds, DeliveryAssurance

__all__ = [
    "FILE_NAME",
    "OPTIONS",
    "Loaded",
    "Partner",
    "Settings",
    "as_toml",
    "find_file",
    "load",
    "read",
    "settings_from",
    "under",
]

FILE_NAME: Final = "wsrm-mq.toml"
PREFIX: Final = "WSRM_MQ_"
FILE_VARIABLE: Final = PREFIX + "CONFIG"

OnIncomplete = Literal["deliver", "dead_letter"]


class Partner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A peer's habits and limits: whom it means (all that is given has to fit), and what differs for him. An
    option left out (``None``; ``UNSET`` where ``None`` is a value) is the one of ``Settings``."""

    principal: Annotated[str | None, described("The name that `authenticate` answers.")] = None
    path: Annotated[str | None, described("A path, with all below it.")] = None
    address: Annotated[str | None, described("An address or a network, such as 10.1.0.0/16.")] = None
    one_way_answer: Annotated[
        Literal["acknowledgement", "empty"],
        described("What answers a one-way message; an empty answer makes a Metro client resend for ever."),
    ] = "acknowledgement"
    acknowledge: Acknowledge | None = None
    assurance: DeliveryAssurance | None = None
    ordered: bool | None = None
    behavior: IncompleteSequenceBehavior | None = None
    on_incomplete: OnIncomplete | None = None
    retry: tuple[float, ...] | None = None
    on_poison: OnPoison | None = None
    max_expires: float | None = None
    inactivity: float | UnsetType | None = UNSET
    max_held: int | UnsetType | None = UNSET
    window: int | UnsetType | None = UNSET
    require_rm: bool | None = None
    strict_addressing: bool | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All options, as values that can be used: times in seconds, sizes in bytes. ``load`` and
    ``settings_from`` make one that is checked."""

    store: Annotated[
        str, described("The store: a path or sqlite:///path; in a directory, its store.db.")
    ] = "wsrm.db"
    app: Annotated[str | None, described("What `wsrm-mq serve` serves, as module:attribute.")] = None
    host: Annotated[str, described("Address that `serve` listens on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="Its port; 0 takes a free one.")] = 8080
    threads: Annotated[Count, described("Threads of `serve` that take requests.")] = 8
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], described("What `serve` logs, on standard error.")
    ] = "info"

    paths: Annotated[
        tuple[str, ...] | None,
        described("Paths that speak WS-ReliableMessaging, with all below them; none: every path."),
    ] = None
    one_way: Annotated[
        tuple[str, ...] | Literal["auto"],
        described('Operations without answer: actions, {namespace}names, .wsdl files; "auto" asks Spyne.'),
    ] = ()
    headers: Annotated[
        Literal["pass", "demote", "strip"],
        described("RM headers on their way to the service: as they came, without mustUnderstand, cut out."),
    ] = "pass"
    understood: Annotated[
        tuple[str, ...] | None,
        described("Header namespaces that the service understands; none: it checks by itself."),
    ] = None
    require_rm: Annotated[bool, described("Refuse messages without WS-ReliableMessaging.")] = False
    strict_addressing: Annotated[
        bool, described("Refuse messages that break a MUST of WS-Addressing.")
    ] = False
    verify_body: Annotated[
        bool, described("Check that a body is well-formed before it is acknowledged.")
    ] = False

    acknowledge: Annotated[
        Acknowledge, described("When an acknowledgement names a message.")
    ] = Acknowledge.STORED
    assurance: Annotated[
        DeliveryAssurance, described("What the service is promised.")
    ] = DeliveryAssurance.EXACTLY_ONCE
    ordered: Annotated[bool, described("Deliver in the order of the message numbers.")] = True
    behavior: Annotated[
        IncompleteSequenceBehavior, described("What becomes of a sequence that ends with numbers missing.")
    ] = IncompleteSequenceBehavior.NO_DISCARD
    on_incomplete: Annotated[
        OnIncomplete,
        described("What is held when a NoDiscard sequence ends; dead_letter announces another behavior."),
    ] = "deliver"
    retry: Annotated[
        tuple[Seconds, ...], described("Waits before the second, third, … try of a delivery that failed.")
    ] = (1.0, 5.0, 15.0, 60.0, 300.0)
    retry_faults: Annotated[bool, described("Try again after any fault of a two-way operation.")] = False
    on_poison: Annotated[OnPoison, described("What follows when the last try has failed.")] = OnPoison.BLOCK

    max_expires: Annotated[Seconds, described("Longest life that a sequence is granted.")] = 7 * 86_400.0
    inactivity: Annotated[Seconds | None, described("A sequence without traffic for so long ends.")] = None
    max_held: Annotated[
        Size | None, described("Messages of one sequence that may wait behind a gap.")
    ] = 1_000_000
    max_ranges: Annotated[Count | None, described("Separate ranges of numbers in one sequence.")] = 4_096
    window: Annotated[
        Count | None, described("How far above the first missing number one is accepted.")
    ] = None
    max_body: Annotated[Count, described("Largest request body.")] = 256 * 1024 * 1024
    spool_over: Annotated[Size, described("Bodies above this are kept in a temporary file.")] = 1024 * 1024
    max_header: Annotated[Count, described("Largest SOAP header.")] = 256 * 1024

    hold_wait: Annotated[
        float, Meta(ge=0, le=1e10, description="How long a two-way request waits.")
    ] = 10.0
    max_waiting: Annotated[
        Size, described("Requests that may wait at a time for a gap or a running duplicate.")
    ] = 4
    dispatch_threads: Annotated[
        Count, described("Threads that call the service for one-way and held messages.")
    ] = 8

    trusted_proxies: Annotated[
        tuple[str, ...], described("Addresses whose connection header is believed.")
    ] = ()
    connection_header: Annotated[
        str | None, described("Header in which a trusted proxy names the client's connection.")
    ] = None

    partners: dict[str, Partner] = {}

    def effective(self, option: str, partner: Partner | None = None) -> Any:
        """The value of ``option`` for ``partner``: his own, or the general one."""
        if partner is not None and option in _PARTNER_DEFAULTS:
            own = getattr(partner, option)
            if own is not _PARTNER_DEFAULTS[option]:
                return own
        return getattr(self, option)

    def policy(self, partner: Partner | None = None) -> QueuePolicy:
        """What a queue promises to ``partner``.

        ``on_incomplete="dead_letter"`` under NoDiscard is announced as what it is, DiscardFollowingFirstGap;
        the dead letters then say that the sequence was terminated (Q-046).
        """

        def of(option: str) -> Any:
            return self.effective(option, partner)

        behavior = of("behavior")
        gives_up = (
            of("on_incomplete") == "dead_letter" and behavior is IncompleteSequenceBehavior.NO_DISCARD
        )
        return QueuePolicy(
            retry=tuple(map(_ms, of("retry"))),
            on_poison=of("on_poison"),
            acknowledge=of("acknowledge"),
            behavior=IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP if gives_up else behavior,
            incomplete_reason="sequence_terminated" if gives_up else "first_gap",
            assurance=of("assurance"),
            ordered=of("ordered"),
            max_expires=_ms(of("max_expires")),
            inactivity=None if of("inactivity") is None else _ms(of("inactivity")),
            bounds=Bounds(max_held=of("max_held"), max_ranges=of("max_ranges"), window=of("window")),
            retry_faults=of("retry_faults"),
        )

    def partner_for(
        self, principal: str | None, path: str, address: str | None
    ) -> tuple[str, Partner] | None:
        """The first partner, in the order of the file, all of whose marks fit the request; with its name."""
        for name, partner in self.partners.items():
            fits = (
                partner.principal in (None, principal),
                partner.path is None or under(partner.path, path),
                partner.address is None or _inside(address, partner.address),
            )
            if all(fits):
                return name, partner
        return None


def under(prefix: str, path: str) -> bool:
    """Whether ``path`` is ``prefix`` or below it: ``/soap`` covers ``/soap/orders``, not ``/soapbox``."""
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")


def _inside(address: str | None, network: str) -> bool:
    try:
        return ipaddress.ip_address(address or "") in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


OPTIONS: Final[Mapping[str, Kind]] = {
    name: kind for name, kind in kinds(Settings).items() if name != "partners"
}
"""Every option but the partners."""

_PARTNER_OPTIONS: Final[Mapping[str, Kind]] = {
    name: OPTIONS.get(name, kind) for name, kind in kinds(Partner).items()
}
_PARTNER_DEFAULTS: Final = {field.name: field.default for field in msgspec.structs.fields(Partner)}

# loading


class Loaded(NamedTuple):
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
            section = Partner(**_checked(_PARTNER_OPTIONS, section, f"{place}."))
        if section.principal is section.path is section.address is None:
            raise ConfigurationError(f"{place}: fits nobody; give it a principal, a path or an address.")
        partners[name] = section
    return partners


def _unknown(where: str, name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else "`wsrm-mq config init -` shows all there are."
    return f"{where}{name}: there is no such option; {hint}"


# contradictions

Of = Callable[[str], Any]


def _discards(of: Of) -> bool:
    return of("behavior") is not IncompleteSequenceBehavior.NO_DISCARD or of("on_incomplete") == "dead_letter"


_CONTRADICTIONS: Final[tuple[tuple[Callable[[Of], bool], str], ...]] = (
    (
        lambda of: of("behavior") is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE
        and of("acknowledge") is Acknowledge.DELIVERED,
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
)


def _refuse_contradictions(settings: Settings) -> None:
    for name, partner in (("", None), *settings.partners.items()):
        for contradicts, text in _CONTRADICTIONS:
            if contradicts(lambda option, partner=partner: settings.effective(option, partner)):  # type: ignore[misc]
                raise ConfigurationError(f"partner.{name}: {text}" if name else text)
    if settings.connection_header is not None and not settings.trusted_proxies:
        raise ConfigurationError(
            "connection_header is believed from trusted_proxies only, and there are none. "
            "Name the proxies, or leave connection_header out."
        )


# writing


def as_toml(settings: Settings, origins: Mapping[str, str] | None = None) -> str:
    """``settings`` as a file that ``load`` reads to the same. Each option comes with what it means; one that
    has its default is commented out. ``origins`` are noted behind the values."""
    lines = [f"# {FILE_NAME}: options of wsrm_mq. Flags and WSRM_MQ_<OPTION> stand above this file."]
    defaults = Settings()
    for option, kind in OPTIONS.items():
        value = getattr(settings, option)
        mark = "# " if value == getattr(defaults, option) else ""
        origin = f"  # {origins[option]}" if origins else ""
        lines += ["", f"# {kind.description}", f"# {kind.allowed}", f"{mark}{option} = {toml(value)}{origin}"]
    lines += [
        "",
        "# A partner: who fits all of the principal, path and address given, and what differs for him of",
        f"# {', '.join(option for option in _PARTNER_OPTIONS if option in OPTIONS)}.",
        "# [partner.NAME]",
    ]
    for option, kind in _PARTNER_OPTIONS.items():
        if option not in OPTIONS:
            lines += [f"# {option} = {toml(_PARTNER_DEFAULTS[option])}  # {kind.description}"]
    for name, partner in settings.partners.items():
        own = {option: getattr(partner, option) for option in _PARTNER_OPTIONS}
        lines += ["", f"[partner.{toml(name)}]"]
        lines += [f"{option} = {toml(v)}" for option, v in own.items() if v is not _PARTNER_DEFAULTS[option]]
    return "\n".join(lines) + "\n"
