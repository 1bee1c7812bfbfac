"""A WSDL 1.1: its one-way operations are found, or made so, and its ports put where clients reach them.

Spyne cannot declare an operation without output. Told which operations are one-way, the WSDL it serves is
corrected. And it writes the address into its WSDL that was asked for first, which a proxy or a monitor may have been.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from lxml import etree

__all__ = ["SOAP_BINDINGS", "move_ports", "one_way_operations", "parsed", "remove_outputs", "written", "wsdl_name"]

_WSDL: Final = "http://schemas.xmlsoap.org/wsdl/"
SOAP_BINDINGS: Final = ("http://schemas.xmlsoap.org/wsdl/soap/", "http://schemas.xmlsoap.org/wsdl/soap12/")
_ACTION_ATTRIBUTES: Final = (
    "{http://www.w3.org/2007/05/addressing/metadata}Action",
    "{http://www.w3.org/2006/05/addressing/wsdl}Action",
    "{http://www.w3.org/2005/08/addressing}Action",
    "{http://schemas.xmlsoap.org/ws/2004/08/addressing}Action",
)


def one_way_operations(wsdl: bytes | str | PathLike[str]) -> frozenset[str]:
    """What names an operation without output: its Body element as ``{namespace}local``, and its actions.

    ``wsdl`` is the document or its path; imports are not followed. Raises ``ValueError`` for no WSDL 1.1.
    """
    root = parsed(wsdl if isinstance(wsdl, bytes) else Path(wsdl).read_bytes())
    return frozenset(
        name
        for port_type, operation in _operations(root, "portType")
        if operation.find(wsdl_name("input")) is not None and operation.find(wsdl_name("output")) is None
        for name in _names(root, port_type, operation)
    )


def remove_outputs(root: Any, operations: Collection[str]) -> bool:
    """Take the outputs and faults of ``operations`` out of the port types and bindings of ``root``. Answers whether
    there were any. ``operations`` are named by Body element (``{namespace}local``) or by action."""
    one_way = {
        (port_type.get("name"), operation.get("name"))
        for port_type, operation in _operations(root, "portType")
        if not _names(root, port_type, operation).isdisjoint(operations)
    }
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
    """The root of a WSDL 1.1 document. Raises ``ValueError`` for what is none."""
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


def wsdl_name(local: str) -> str:
    """The name of an element of WSDL 1.1, as lxml has it."""
    return f"{{{_WSDL}}}{local}"


def _operations(root: Any, kind: str) -> Iterator[tuple[Any, Any]]:
    """(owner, operation) of every ``portType`` or ``binding``."""
    for owner in root.iterchildren(wsdl_name(kind)):
        for operation in owner.iterchildren(wsdl_name("operation")):
            yield owner, operation


def _port_type_of(binding: Any) -> str:
    return str(binding.get("type", "")).rpartition(":")[2]


def _names(root: Any, port_type: Any, operation: Any) -> set[str]:
    """The Body elements and the actions of an operation's input."""
    received = operation.find(wsdl_name("input"))
    if received is None:
        return set()
    names = {received.get(attribute) for attribute in _ACTION_ATTRIBUTES}
    message = received.get("message", "").rpartition(":")[2]
    for part in root.iterfind(f"{wsdl_name('message')}/{wsdl_name('part')}[@element]"):
        if part.getparent().get("name") != message:
            continue
        names.add(_expanded(part, part.get("element")))
    for binding, bound in _operations(root, "binding"):
        if _port_type_of(binding) == port_type.get("name") and bound.get("name") == operation.get("name"):
            for namespace in SOAP_BINDINGS:
                names.update(e.get("soapAction") for e in bound.iterchildren(f"{{{namespace}}}operation"))
                for body in bound.iterfind(f"{wsdl_name('input')}/{{{namespace}}}body[@namespace]"):  # RPC style
                    names.add(f"{{{body.get('namespace')}}}{operation.get('name')}")
    return {name for name in names if name}


def _expanded(element: Any, name: str) -> str:
    prefix, _, local = name.rpartition(":")
    return f"{{{element.nsmap.get(prefix or None, '')}}}{local}"
