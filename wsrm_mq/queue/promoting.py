"""Promoted properties: values out of a body, by which its message can be filtered.

A queue declares a name and an expression for each: an XPath, ``number(//{urn:shop}amount)``, or, beginning with ``$``,
a path into JSON, ``$.order.id``. They are evaluated once, when the message is stored. A body that cannot be read,
and an expression that finds nothing, give no property and are no error.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.filters import LONGEST, NAME, is_storable

Scalar = str | int | float | bool

_JSON_PATH: Final = re.compile(r"\$(?:\.[^.\[\]$]+)+")
_CHARSET: Final = re.compile(r""";\s*charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE | re.ASCII)
_LARGEST: Final = 2**63 - 1


class _Body:
    """A body, parsed as the first expression asks for it."""

    def __init__(self, body: bytes, charset: str | None) -> None:
        self._body = body
        self._charset = charset

    @cached_property
    def xml(self) -> Any:
        """The document; ``None`` where it is none, or has a DTD."""
        from lxml import etree  # few queues promote properties

        rules: dict[str, Any] = {"resolve_entities": False, "no_network": True, "load_dtd": False}
        try:
            parser = etree.XMLParser(encoding=self._charset, **rules)
            tree = etree.fromstring(self._body, parser).getroottree()
        except (etree.XMLSyntaxError, LookupError, ValueError):
            return None
        return tree if tree.docinfo.internalDTD is None else None

    @cached_property
    def json(self) -> Any:
        """The value; ``None`` where it is none."""
        try:
            return json.loads(self._body)
        except (ValueError, RecursionError):
            return None


_Expression = Callable[[_Body], Any]


def promote(expressions: Mapping[str, str], body: bytes, charset: str | None = None) -> dict[str, Scalar]:
    """The properties that ``expressions``, by their names, find in ``body``. Of several nodes the first one's text is
    taken; a text that is longer than a filter may be is not. ``charset``: of XML, where the request names it."""
    source = _Body(body, charset)
    found = {name: _scalar(_compiled(expression)(source)) for name, expression in expressions.items()}
    return {name: value for name, value in found.items() if value is not None}


def charset_of(content_type: str | None) -> str | None:
    """The charset that a content type names."""
    found = _CHARSET.search(content_type or "")
    return None if found is None else found[1]


def refuse_unusable(expressions: Mapping[str, str]) -> None:
    """Raise ``ConfigurationError`` for names that no filter can say, and for expressions that cannot be read."""
    problems = [
        f"{name!r} is no name of a property: write letters, digits, _, . and -, and a letter or _ first."
        for name in expressions
        if re.fullmatch(NAME, name) is None
    ]
    for name, expression in expressions.items():
        try:
            _compiled(expression)
        except ValueError as error:
            problems.append(f"The property {name} cannot be found by {expression!r}: {error}.")
    if problems:
        raise ConfigurationError(*problems)


@lru_cache(maxsize=256)
def _compiled(expression: str) -> _Expression:
    """Compile an expression. Raises ``ValueError``."""
    if expression.startswith("$"):
        if _JSON_PATH.fullmatch(expression) is None:
            raise ValueError("a path into JSON is $.name, or $.name.name")
        return _in_json(expression.split(".")[1:])
    from lxml import etree

    try:
        path = etree.ETXPath(expression, regexp=False, smart_strings=False)
        path(etree.Element("none"))  # a prefix or a function that there is not shows only now
    except (etree.XPathError, ValueError) as error:
        raise ValueError(f"it is no XPath ({error}); a namespace stands in braces, //{{urn:shop}}id") from None
    return _in_xml(path, etree.XPathError)


def _in_json(names: list[str]) -> _Expression:
    def find(body: _Body) -> Any:
        value = body.json
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    return find


def _in_xml(path: Callable[[Any], Any], failed: type[Exception]) -> _Expression:
    def find(body: _Body) -> Any:
        try:
            found: Any = None if body.xml is None else path(body.xml)
        except failed:
            return None
        if isinstance(found, list):
            found = found[0] if found else None
        return found.xpath("string()", smart_strings=False) if hasattr(found, "xpath") else found

    return find


def _scalar(value: Any) -> Scalar | None:
    """The value as a column of JSON has it; ``None`` for what is none."""
    if isinstance(value, float):
        value = int(value) if value.is_integer() and abs(value) <= 2**53 else value
        return value if math.isfinite(value) else None
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST else None
    if isinstance(value, str) and len(value) <= LONGEST and is_storable(value):
        return value
    return None
