"""The elements of an envelope that are of the protocol, as facts: name and value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from lxml import etree

from wsrm_mq.versions import ADDRESSING_VERSIONS, RM_OF_NAMESPACE, SOAP_VERSIONS

_TOLD: Final = frozenset((*ADDRESSING_VERSIONS, *RM_OF_NAMESPACE, *SOAP_VERSIONS))
"""Namespaces whose elements are taken apart. Elements of others may be secret, for example those of WS-Security."""
_FACTS: Final = 50
_LENGTH: Final = 1_000
"""Characters of a value."""
_DEPTH: Final = 12
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the envelope, from 1 on."""

    line: int
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A header block, or the first child of Body."""

    namespace: str
    name: str
    line: int
    must_understand: bool
    facts: tuple[tuple[str, str], ...] = ()
    """The path and the value of each text in an element of the protocol's namespaces."""


def parsed(envelope: bytes, charset: str | None) -> tuple[Any, list[tuple[str, Position]]]:
    """Parse an envelope: its root, ``None`` where there is none, and the problems of the XML. XML that is not
    well-formed is read as far as possible."""
    try:
        return etree.fromstring(envelope, _parser(charset)), []
    except etree.XMLSyntaxError as error:
        line, column = error.position
        what = (error.msg or "there is none").partition(", line ")[0]
        problem = f"The XML cannot be read: {what}.", Position(max(line, 1), column)
    try:
        return etree.fromstring(envelope, _parser(charset, recover=True)), [problem]
    except etree.XMLSyntaxError:
        return None, [problem]


def _parser(charset: str | None, *, recover: bool = False) -> Any:
    rules: dict[str, Any] = {"resolve_entities": False, "no_network": True, "load_dtd": False, "recover": recover}
    try:
        return etree.XMLParser(encoding=charset, **rules)
    except LookupError:
        return etree.XMLParser(**rules)


def elements(parent: Any) -> list[Any]:
    """The child elements; comments and the like are left out."""
    return [child for child in parent if isinstance(child.tag, str)]


def name_of(element: Any) -> tuple[str, str]:
    """(namespace, local name); a prefix that is not declared stays in the name."""
    namespace, _, local = element.tag.rpartition("}")
    return namespace.removeprefix("{"), local


def place_of(root: Any, reason: str) -> Position | None:
    """Find the place of the first element of the protocol that ``reason`` names."""
    named = set(_WORD.findall(reason))
    for element in root.iter(etree.Element) if root is not None else ():
        namespace, name = name_of(element)
        if name in named and namespace in _TOLD and element.sourceline:
            return Position(element.sourceline)
    return None


def block_of(element: Any) -> Block:
    namespace, name = name_of(element)
    mandatory = any(element.get(f"{{{soap}}}mustUnderstand", "").strip() in ("1", "true") for soap in SOAP_VERSIONS)
    facts = tuple(_facts(element)) if namespace in _TOLD else ()
    return Block(namespace, name, element.sourceline or 0, mandatory, facts)


def _facts(element: Any) -> Iterator[tuple[str, str]]:
    for count, (path, leaf) in enumerate(_leaves(element, ())):
        if count == _FACTS:
            yield "…", "and more"
            return
        lower, upper = leaf.get("Lower"), leaf.get("Upper")
        text = f"{lower}–{upper}" if lower is not None or upper is not None else (leaf.text or "").strip()
        yield "/".join(path), text[:_LENGTH]


def _leaves(element: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = elements(element)
    if not children or len(path) >= _DEPTH:
        yield path, element
    for child in children if len(path) < _DEPTH else ():
        yield from _leaves(child, (*path, name_of(child)[1]))
