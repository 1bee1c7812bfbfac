"""Settings from a file, the environment and flags, checked."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from wsrm_mq.config.options import Kind, option_value
from wsrm_mq.config.settings import NODE_OPTIONS, OPTIONS, PARTNER_OPTIONS, FarNode, Partner, Settings
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.policy import Acknowledge, Mode, OnFault
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.terms import DeliveryAssurance

# Options that contradict each other, each pair with advice.

Of = Callable[[str], Any]
Contradiction = tuple[Callable[[Of], bool], str]
"""A test, and the sentence for the user."""


def _discards(of: Of) -> bool:
    return of("behavior") is not IncompleteSequenceBehavior.NO_DISCARD or of("on_incomplete") == "dead_letter"


_CONTRADICTIONS: Final[tuple[Contradiction, ...]] = (
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
    (
        lambda of: of("mode") is Mode.PULL and of("assurance") is DeliveryAssurance.AT_MOST_ONCE,
        'mode = "pull" delivers a message again whose consumer died, and assurance = "at_most_once" promises the '
        'source that it does not. Set another assurance, or mode = "dispatch".',
    ),
)
"""Contradictions of options that a partner may have too."""

_OF_PARTNERS: Final[Contradiction] = (
    lambda of: of("acknowledgement_interval") is not None and of("one_way_answer") != "empty" and not of("decoupled"),
    "acknowledgement_interval puts acknowledgements off, and every answer carries one. "
    'Set one_way_answer = "empty" or decoupled, or leave acknowledgement_interval out.',
)


def _from_proxies(option: str) -> Contradiction:
    return (
        lambda of: of(option) is not None and not of("trusted_proxies"),
        f"{option} is believed from trusted_proxies only, and there are none. Name the proxies, or leave {option} out.",
    )


_GENERAL: Final[tuple[Contradiction, ...]] = (
    (
        lambda of: of("tls_key") is not None and of("tls_certificate") is None,
        "tls_key is the key of tls_certificate, and there is none. Name that too, or leave tls_key out.",
    ),
    *map(_from_proxies, ("connection_header", "address_header", "client_name_header")),
)


class _NotKnown(Exception):
    """The value of this option is wrong, so its contradictions are not known."""


def _contradictions(settings: Settings, wrong: Collection[str] = ()) -> Iterator[str]:
    """Answer a sentence for each contradiction in ``settings``. The options ``wrong`` have no valid value, and
    contradict nothing."""

    def told(contradictions: Iterable[Contradiction], partner: Partner | None = None) -> list[str]:
        def of(option: str) -> Any:
            if option in wrong:
                raise _NotKnown
            return settings.effective(option, partner)

        return [text for contradicts, text in contradictions if _holds(contradicts, of)]

    shared = told(_CONTRADICTIONS)
    yield from shared
    for name, partner in settings.partners.items():
        own = told((*_CONTRADICTIONS, _OF_PARTNERS), partner)
        yield from (f"partner.{name}: {text}" for text in own if text not in shared)
    yield from told(_GENERAL)


def _holds(contradicts: Callable[[Of], bool], of: Of) -> bool:
    try:
        return contradicts(of)
    except _NotKnown:
        return False


FILE_NAME: Final = "wsrm-mq.toml"
PREFIX: Final = "WSRM_MQ_"
T = TypeVar("T")
FILE_VARIABLE: Final = PREFIX + "CONFIG"


_MOST_PARTS: Final = 64
_LONG_KEY: Final = re.compile(rf"(?:^|[\[{{,])(?:[^\n.=\[\]{{}},#]+\.){{{_MOST_PARTS}}}", re.MULTILINE)
"""A key of more parts. The time that such keys take to be parsed grows with more than the square of their parts."""


class Loaded(NamedTuple):
    """The options that hold, and the source of each value."""

    settings: Settings
    origins: dict[str, str]
    """Option -> ``flag``, ``env``, ``file`` or ``default``."""


class _Mistakes:
    """Collects the mistakes of a configuration: no mistake hides the next one."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.options: set[str] = set()
        """Options whose value is wrong."""

    def of(self, option: str, sentence: str) -> None:
        self.said.append(sentence)
        self.options.add(option)


def find_file(environ: Mapping[str, str]) -> Path | None:
    """The file that ``WSRM_MQ_CONFIG`` names, or ``wsrm-mq.toml`` here if there is one."""
    named = environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    here = Path(FILE_NAME)
    return here if here.is_file() else None


def load(path: Path | None, environ: Mapping[str, str], **overrides: Any) -> Settings:
    """The settings of the file at ``path`` (``None``: no file), the environment and ``overrides``, which win.

    Raises ``ConfigurationError`` for unknown keys, values that are not allowed, options that contradict: all of them.
    """
    return read(path, environ, **overrides).settings


def settings_from(given: Mapping[str, Any]) -> Settings:
    """Settings of options that a program gives, as Python values; neither file nor environment is read."""
    return read(None, {}, **given).settings


def read(path: Path | None, environ: Mapping[str, str], **overrides: Any) -> Loaded:
    """Do as ``load``, and answer the source of each value too."""
    loaded, mistakes = examine(path, environ, **overrides)
    if mistakes:
        raise ConfigurationError(*mistakes)
    return loaded


def examine(path: Path | None, environ: Mapping[str, str], **overrides: Any) -> tuple[Loaded, list[str]]:
    """Read as ``read`` does, but answer the mistakes in place of raising them. An option with a wrong value gets the
    value of the next layer."""
    mistakes = _Mistakes()
    layers = {
        "file": _read_file(path, mistakes) if path is not None else {},
        "env": _from_environ(environ, mistakes),
        "flag": _checked(OPTIONS, _named(overrides), "option ", mistakes),
    }
    settings = Settings(**{option: value for layer in layers.values() for option, value in layer.items()})
    origins = dict.fromkeys(OPTIONS, "default")
    for origin, layer in layers.items():
        origins |= dict.fromkeys(layer, origin)
    return Loaded(settings, origins), [*mistakes.said, *_contradictions(settings, mistakes.options)]


def _named(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Python says ``partners=``; the file, section by section, ``partner``."""
    sections = {"partners": "partner", "nodes": "node"}
    return {sections.get(name, name): value for name, value in overrides.items()}


def _read_file(path: Path, mistakes: _Mistakes) -> dict[str, Any]:
    try:
        content = _parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        why = "there is no such file; write one with `wsrm-mq config init`."
    except tomllib.TOMLDecodeError as error:
        why = f"is not TOML: {error}."
    except RecursionError:
        why = "is nested too deeply; no option is more than a list in a section."
    except (OSError, UnicodeDecodeError) as error:
        why = f"cannot be read: {error}."
    else:
        return _checked(OPTIONS, content, f"{path}: ", mistakes)
    mistakes.said.append(f"{path}: {why}")
    mistakes.options |= OPTIONS.keys()
    return {}


def _parsed(text: str) -> dict[str, Any]:
    if _LONG_KEY.search(text):
        raise RecursionError
    return tomllib.loads(text)


def _from_environ(environ: Mapping[str, str], mistakes: _Mistakes) -> dict[str, Any]:
    names = {PREFIX + option.upper(): option for option in OPTIONS}
    values = {}
    for name, text in environ.items():
        if not name.startswith(PREFIX) or name == FILE_VARIABLE:
            continue
        option = names.get(name)
        if option is None:
            mistakes.said.append(_unknown("environment: ", name, (*names, FILE_VARIABLE)))
            continue
        try:
            values[option] = option_value(text, option, OPTIONS[option], f"environment: {name}", is_text=True)
        except ConfigurationError as error:
            mistakes.of(option, str(error))
    return values


def _checked(known: Mapping[str, Kind], given: Mapping[str, Any], where: str, mistakes: _Mistakes) -> dict[str, Any]:
    """Convert ``given`` to values of options; ``where`` is put before every complaint."""
    checked: dict[str, Any] = {}
    for key, value in given.items():
        if key in known:
            try:
                checked[key] = option_value(value, key, known[key], where + key)
            except ConfigurationError as error:
                mistakes.of(key, str(error))
        elif key == "partner" and known is OPTIONS:
            checked["partners"] = _partners(value, where, mistakes)
        elif key == "node" and known is OPTIONS:
            checked["nodes"] = _nodes(value, where, mistakes)
        else:
            mistakes.of(key, _misplaced(where, key, known))
    return checked


def _misplaced(where: str, key: str, known: Iterable[str]) -> str:
    if known is NODE_OPTIONS:
        return _unknown(where, key, known)
    if key in OPTIONS:
        return f"{where}{key}: {_OF_ALL}"
    if key in PARTNER_OPTIONS:
        return f"{where}{key}: {_OF_A_PARTNER}"
    return _unknown(where, key, (*known, "partner", "node"))


def _partners(sections: Any, where: str, mistakes: _Mistakes) -> dict[str, Partner]:
    partners = {}
    for name, place, own in _sections("partner", Partner, PARTNER_OPTIONS, sections, where, mistakes):
        if own.principal is own.path is own.address is None and mistakes.options.isdisjoint(_MARKS):
            mistakes.said.append(f"{place}: fits no request; give it a principal, a path or an address.")
        partners[name] = own
    return partners


def _nodes(sections: Any, where: str, mistakes: _Mistakes) -> dict[str, FarNode]:
    nodes = {}
    for name, place, own in _sections("node", FarNode, NODE_OPTIONS, sections, where, mistakes):
        if own.url is None and "url" not in mistakes.options:
            mistakes.said.append(f"{place}: has no url; say where its queue server is, such as https://host/queues.")
        nodes[name] = own
    return nodes


def _sections(
    kind: str, struct: type[T], known: Mapping[str, Kind], sections: Any, where: str, mistakes: _Mistakes
) -> Iterator[tuple[str, str, T]]:
    """The sections of a kind: the name of each, where it stands, and its options."""
    for name, section in sections.items() if isinstance(sections, Mapping) else [("NAME", sections)]:
        place = f"{where}{kind}.{name}"
        if isinstance(section, Mapping):
            yield name, place, struct(**_checked(known, section, f"{place}.", mistakes))
        elif isinstance(section, struct):
            yield name, place, section
        else:
            mistakes.said.append(f"{place}: allowed is a section, [{kind}.NAME].")


_MARKS: Final = frozenset(("principal", "path", "address"))
"""Options that say which requests are a partner's."""
_OF_ALL: Final = (
    "is not allowed in a partner section, because it holds for all partners; "
    "it belongs to the top level, above the first section."
)
_OF_A_PARTNER: Final = "is allowed in a partner section only; it belongs to [partner.NAME]."


def _unknown(where: str, name: str, known: Iterable[str]) -> str:
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
