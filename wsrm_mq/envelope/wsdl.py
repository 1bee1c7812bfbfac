"""A WSDL 1.1: its one-way operations are found, or made so, and its ports put where clients reach them.

Spyne cannot declare an operation without output. Told which operations are one-way, the WSDL it serves is
corrected. And it writes the address into its WSDL that was asked for first, which a proxy or a monitor may have been.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from lxml import etree

_WSDL: Final = "http://schemas.xmlsoap.org/wsdl/"
SOAP_BINDINGS: Final = ("http://schemas.xmlsoap.org/wsdl/soap/", "http://schemas.xmlsoap.org/wsdl/soap12/")
_XSD: Final = "{http://www.w3.org/2001/XMLSchema}"
_WITHOUT_CONTENT: Final = frozenset(f"{_XSD}{local}" for local in ("sequence", "all", "choice", "annotation"))
_ACTION_ATTRIBUTES: Final = (
    "{http://www.w3.org/2007/05/addressing/metadata}Action",
    "{http://www.w3.org/2006/05/addressing/wsdl}Action",
    "{http://www.w3.org/2005/08/addressing}Action",
    "{http://schemas.xmlsoap.org/ws/2004/08/addressing}Action",
)


class WSDLOperations(NamedTuple):
    """Operations, each by all that names it: its Body element as ``{namespace}local``, and its actions."""

    one_way: frozenset[str]
    """Operations without output."""
    answering: frozenset[str]
    """Operations whose output carries something. A framework may write an empty output for an operation without an
    answer."""


def operations_in(document: bytes) -> WSDLOperations:
    """The operations in a WSDL; imports are not followed. Raises ``ValueError`` for a document that is no WSDL 1.1."""
    root = parsed(document)
    one_way, answering, empty = set[str](), set[str](), _empty_messages(root)
    for _key, operation, names in _named(root):
        output = operation.find(wsdl_name("output"))
        if output is None:
            one_way |= names
        elif _local(output.get("message")) not in empty:
            answering |= names
    return WSDLOperations(frozenset(one_way), frozenset(answering))


def remove_outputs(root: Any, operations: Collection[str]) -> bool:
    """Take the outputs and faults of ``operations`` out of the port types and bindings of ``root``. Answers whether
    there were any. ``operations`` are named by Body element (``{namespace}local``) or by action."""
    if not operations:
        return False
    one_way = {key for key, _operation, names in _named(root) if not names.isdisjoint(operations)}
    answers = [
        answer
        for kind, name_of in (("portType", lambda owner: owner.get("name")), ("binding", _port_type_of))
        for owner, operation in _operations(root, kind)
        if (name_of(owner), operation.get("name")) in one_way
        for answer in operation.iterchildren(wsdl_name("output"), wsdl_name("fault"))
    ]
    for answer in answers:
        answer.getparent().remove(answer)
    return bool(answers)


def move_ports(root: Any, base: str) -> bool:
    """Have the SOAP ports of ``root`` lie below ``base``, an address of HTTP: it takes the place of scheme, host and
    port, and stands in front of a path that is not below its own. Answers whether any was somewhere else."""
    addresses = [
        address
        for port in root.iterfind(f"{wsdl_name('service')}/{wsdl_name('port')}")
        for soap in SOAP_BINDINGS
        for address in port.iterchildren(f"{{{soap}}}address")
    ]
    before = [address.get("location", "") for address in addresses]
    after = [_below(base.rstrip("/"), location) for location in before]
    for address, location in zip(addresses, after, strict=True):
        address.set("location", location)
    return after != before


def _below(base: str, location: str) -> str:
    try:
        there = urlsplit(location)
    except ValueError:
        return location
    if there.scheme not in ("", "http", "https"):
        return location
    prefix = urlsplit(base).path
    path = there.path.removeprefix(prefix) if f"{there.path}/".startswith(f"{prefix}/") else there.path
    return f"{base}{path}{f'?{there.query}' if there.query else ''}"


def parsed(document: bytes) -> Any:
    """The root of a WSDL 1.1 document. Raises ``ValueError`` for any other document."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        root = etree.fromstring(document, parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"not XML: {error.msg}") from None
    if root.getroottree().docinfo.internalDTD is not None or root.tag != wsdl_name("definitions"):
        raise ValueError("not a WSDL 1.1 document")
    return root


def written(root: Any) -> bytes:
    """The document of ``root``, in UTF-8."""
    document: bytes = etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8")
    return document


def imports_in(document: bytes) -> list[str]:
    """The addresses of the documents that a WSDL imports, as they stand there."""
    try:
        root = parsed(document)
    except ValueError:
        return []
    return [one.get("location") for one in root.iterchildren(wsdl_name("import")) if one.get("location")]


def input_names(document: bytes) -> dict[tuple[str, str], str]:
    """The names of inputs that a WSDL gives: ``{namespace}portType`` and operation → name."""
    try:
        root = parsed(document)
    except ValueError:
        return {}
    return {
        (f"{{{root.get('targetNamespace', '')}}}{owner.get('name')}", operation.get("name")): received.get("name")
        for owner, operation in _operations(root, "portType")
        for received in operation.iterchildren(wsdl_name("input"))
        if received.get("name")
    }


def default_action(namespace: str, port_type: str, input_name: str) -> str:
    """The action of an input that states none (WS-Addressing 1.0, Metadata, 4.4.4)."""
    delimiter = ":" if namespace.lower().startswith("urn:") else "/"
    return delimiter.join((namespace.removesuffix(delimiter), port_type, input_name))


def wsdl_name(local: str) -> str:
    """The name of an element of WSDL 1.1, as lxml has it."""
    return f"{{{_WSDL}}}{local}"


def _operations(root: Any, kind: str) -> Iterator[tuple[Any, Any]]:
    """(owner, operation) of every ``portType`` or ``binding``."""
    for owner in root.iterchildren(wsdl_name(kind)):
        for operation in owner.iterchildren(wsdl_name("operation")):
            yield owner, operation


def _port_type_of(binding: Any) -> str:
    return _local(binding.get("type"))


def _local(name: str | None) -> str:
    return (name or "").rpartition(":")[2]


def _named(root: Any) -> Iterator[tuple[tuple[str, str], Any, set[str]]]:
    """Every operation of a port type that has an input: its key, its element, and its names: the Body elements and the
    actions of its input. The document is gone through once for each kind of part, since strangers may ask for it."""
    elements, bound_names = defaultdict[str, set[str]](set), defaultdict[tuple[str, str], set[str]](set)
    for part in root.iterfind(f"{wsdl_name('message')}/{wsdl_name('part')}[@element]"):
        elements[part.getparent().get("name")].add(expanded(part, part.get("element")))
    for binding, bound in _operations(root, "binding"):
        names = bound_names[_port_type_of(binding), bound.get("name")]
        for namespace in SOAP_BINDINGS:
            names.update(e.get("soapAction") for e in bound.iterchildren(f"{{{namespace}}}operation"))
            for body in bound.iterfind(f"{wsdl_name('input')}/{{{namespace}}}body[@namespace]"):  # RPC style
                names.add(f"{{{body.get('namespace')}}}{bound.get('name')}")
    for port_type, operation in _operations(root, "portType"):
        received = operation.find(wsdl_name("input"))
        if received is not None:
            key = port_type.get("name"), operation.get("name")
            actions = {received.get(attribute) for attribute in _ACTION_ATTRIBUTES}
            yield key, operation, (actions | elements[_local(received.get("message"))] | bound_names[key]) - {None, ""}


def expanded(element: Any, name: str) -> str:
    """The name ``prefix:local`` that stands in an attribute of ``element``, as ``{namespace}local``."""
    prefix, _, local = name.rpartition(":")
    return f"{{{element.nsmap.get(prefix or None, '')}}}{local}"


def _empty_messages(root: Any) -> frozenset[str]:
    """The messages that carry nothing: without a part, or with one element of a type without content."""
    types = {one.get("name"): one for one in root.iterfind(f"{wsdl_name('types')}/{_XSD}schema/{_XSD}complexType")}
    empty = {
        one.get("name")
        for one in root.iterfind(f"{wsdl_name('types')}/{_XSD}schema/{_XSD}element")
        if _has_nothing(types.get(_local(one.get("type"))) if one.get("type") else one.find(f"{_XSD}complexType"))
    }
    return frozenset(
        message.get("name")
        for message in root.iterchildren(wsdl_name("message"))
        if {_local(part.get("element")) for part in message.iterchildren(wsdl_name("part"))} <= empty
    )


def _has_nothing(kind: Any) -> bool:
    return kind is not None and {child.tag for child in kind.iterdescendants(f"{_XSD}*")} <= _WITHOUT_CONTENT
