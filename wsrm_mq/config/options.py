"""Values of options: read from Python, TOML or the environment, checked, and written as TOML.

The type of an option says it all; its words for people are made from it. Two notations are
ours: a time may be xs:duration text (``P7D``), and an option without a value is ``"none"``, since TOML has no null.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from msgspec.inspect import (
    BoolType,
    EnumType,
    FloatType,
    IntType,
    LiteralType,
    NoneType,
    StrType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from wsrm_mq.envelope.lexical import parse_duration
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.kept_headers import NEVER_KEPT, refusal_to_keep

Count = Annotated[int, Meta(ge=1)]
Size = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0, le=1e10)]
Span = Annotated[float, Meta(ge=0, le=1e10)]
"""Seconds, or none at all."""
Port = Annotated[int, Meta(ge=0, le=65_535)]


class Kind(NamedTuple):
    """The type of an option: as an annotation, and as ``msgspec`` inspects it."""

    annotation: Any
    shape: Type

    @property
    def allowed(self) -> str:
        return _allowed(self.shape)


def kinds(struct: type[msgspec.Struct]) -> dict[str, Kind]:
    return {field.name: Kind(field.type, type_info(field.type)) for field in msgspec.structs.fields(struct)}


class _Check(NamedTuple):
    is_fit: Callable[[str], object]
    """Whether a text is what it may be; an error says that it is not."""
    allowed: str
    alone: str | None = None
    """A word that is fit where no list has it."""

    def fits(self, value: Any) -> bool:
        """Whether each text of a value is: of a list, or one alone. ``None`` is always fit."""
        texts = () if value in (None, self.alone) else (value,) if isinstance(value, str) else value
        try:
            return all(map(self.is_fit, texts))
        except ValueError:
            return False


def _is_absolute(path: str) -> bool:
    """Without a slash at the beginning it fits no request, and would switch reliability off."""
    return path.startswith("/")


def _network(text: str) -> object:
    return ipaddress.ip_network(text, strict=False)


def _address(entry: str) -> object:
    from wsrm_mq.outbound.addresses import Allowed

    return Allowed.listed("", [entry])


def _is_queue(name: str) -> bool:
    from wsrm_mq.queue.declaring import is_name

    return is_name(name)


def _is_web_address(url: str) -> bool:
    parts = urlsplit(url or "http://localhost")
    is_plain = not (parts.query or parts.fragment or parts.port == 0)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain


def _is_storable(header: str) -> bool:
    return not refusal_to_keep(header)


_AN_ADDRESS: Final = "http:// or https:// with a host, a port and a path if need be"
_CHECKS: Final = {
    "store": _Check(bool, "a path, or sqlite:///path"),
    "paths": _Check(_is_absolute, "a list of paths that begin with /"),
    "path": _Check(_is_absolute, "a path that begins with /"),
    "one_way": _Check(
        lambda name: name != "auto", '"auto" alone, or a list of actions, {namespace}names and .wsdl files', "auto"
    ),
    "address": _Check(lambda text: not text or _network(text), "an address or a network"),
    "queue": _Check(_is_queue, "a name of 1 to 200 printable characters, with no # in it and no slash at its end"),
    "decoupled": _Check(_address, 'a list of https://host, names of hosts, networks and "public"'),
    "public_url": _Check(_is_web_address, _AN_ADDRESS),
    "url": _Check(_is_web_address, _AN_ADDRESS),
    "keep_headers": _Check(
        _is_storable, f"a list of names of headers, none of them {', '.join(NEVER_KEPT)} or one of the connection"
    ),
    "address_header": _Check(_is_storable, "the name of a header that is stored, such as X-Forwarded-For"),
    "trusted_proxies": _Check(_network, "a list of addresses and networks"),
}
"""Checks beyond the type, by option."""


def option_value(value: Any, option: str, kind: Kind, place: str, *, is_text: bool = False) -> Any:
    """Convert ``value`` to the type of its option. With ``is_text`` it is a text of the environment. Raises
    ``ConfigurationError``, which names ``place``."""
    check = _CHECKS.get(option)
    try:
        found = msgspec.convert(_plain(value, kind.shape, is_text), kind.annotation, strict=not is_text)
    except (msgspec.ValidationError, ValueError) as error:
        raise _not_allowed(place, value, kind.allowed) from error
    if check is not None and not check.fits(found):
        raise _not_allowed(place, value, check.allowed)
    return found


def _not_allowed(place: str, value: object, allowed: str) -> ConfigurationError:
    return ConfigurationError(f"{place}: {value!r} is not allowed; allowed: {allowed}.")


def _plain(value: Any, shape: Type, is_text: bool) -> Any:
    """Replace our own notations in ``value``, and split a list of the environment at its commas."""
    match shape:
        case UnionType(types=shapes):
            if isinstance(value, str) and value.casefold() == "none":
                return None
            if any(isinstance(one, LiteralType) and value in one.values for one in shapes):
                return value
            return _plain(value, next(one for one in shapes if not isinstance(one, NoneType)), is_text)
        case VarTupleType(item_type=item):
            if isinstance(value, str) and is_text:
                value = [part.strip() for part in value.split(",") if part.strip()]
            is_list = isinstance(value, Iterable) and not isinstance(value, str)
            return [_plain(part, item, is_text) for part in value] if is_list else value
        case FloatType() if isinstance(value, str) and value.lstrip("-").startswith("P"):
            return (parse_duration(value) or 0) / 1000
        case StrType() if isinstance(value, os.PathLike):
            return os.fspath(value)
    return value


def _allowed(shape: Type) -> str:
    match shape:
        case UnionType(types=shapes):
            return _either([_allowed(one) for one in shapes])
        case EnumType(cls=words):
            return _either([f'"{word.value}"' for word in words])
        case LiteralType(values=words):
            return _either([json.dumps(word) for word in words])
        case NoneType():
            return '"none"'
        case BoolType():
            return "true or false"
        case IntType(ge=least, le=most):
            return f"a whole number from {least}" + (f" to {most}" if most is not None else "")
        case FloatType(ge=least):
            return f"seconds {'above' if least is None else 'from'} 0 (or PT30S, P7D)"
        case VarTupleType(item_type=item):
            return f"a list, each item {_allowed(item)}"
    return "text"


def _either(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def toml(value: Any) -> str:
    """Write ``value`` as TOML that ``option_value`` reads."""
    match value:
        case None:
            return '"none"'
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case tuple():
            return f"[{', '.join(map(toml, value))}]"
    # A JSON string is a TOML one, but for DEL, which TOML wants escaped.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
