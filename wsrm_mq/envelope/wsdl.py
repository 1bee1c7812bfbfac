"""One-way operations in a WSDL 1.1: found, or made so.

Spyne cannot declare an operation without output. Told which operations are one-way, the WSDL it serves is
corrected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Final

from lxml import etree

__all__ = ["one_way_operations", "without_outputs"]

_WSDL: Final = "http://schemas.xmlsoap.org/wsdl/"
_SOAP: Final = ("http://schemas.xmlsoap.org/wsdl/soap/", "http://schemas.xmlsoap.org/wsdl/soap12/")
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
    root = _parsed(wsdl if isinstance(wsdl, bytes) else Path(wsdl).read_bytes())
    return frozenset(
        name
        for port_type, operation in _operations(root, "portType")
        if operation.find(_wsdl("input")) is not None and operation.find(_wsdl("output")) is None
        for name in _names(root, port_type, operation)
    )


def without_outputs(wsdl: bytes, operations: Collection[str]) -> bytes:
    """``wsdl`` without the outputs and faults of ``operations`` in port types and bindings.

    ``operations`` are named by Body element (``{namespace}local``) or by action. What is no WSDL 1.1, or has no
    output of theirs, is returned as it is: it may be an application's page.
    """
    try:
        root = _parsed(wsdl)
    except ValueError:
        return wsdl
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
        for answer in operation.iterchildren(_wsdl("output"), _wsdl("fault"))
    ]
    for answer in answers:
        answer.getparent().remove(answer)
    return etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8") if answers else wsdl


def _parsed(document: bytes) -> Any:
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        root = etree.fromstring(document, parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"not XML: {error.msg}") from None
    if root.getroottree().docinfo.internalDTD is not None or root.tag != _wsdl("definitions"):
        raise ValueError("not a WSDL 1.1 document")
    return root


def _wsdl(local: str) -> str:
    return f"{{{_WSDL}}}{local}"


def _operations(root: Any, kind: str) -> Iterator[tuple[Any, Any]]:
    """(owner, operation) of every ``portType`` or ``binding``."""
    for owner in root.iterchildren(_wsdl(kind)):
        for operation in owner.iterchildren(_wsdl("operation")):
            yield owner, operation


def _port_type_of(binding: Any) -> str:
    return str(binding.get("type", "")).rpartition(":")[2]


def _names(root: Any, port_type: Any, operation: Any) -> set[str]:
    """The Body elements and the actions of an operation's input."""
    received = operation.find(_wsdl("input"))
    if received is None:
        return set()
    names = {received.get(attribute) for attribute in _ACTION_ATTRIBUTES}
    message = received.get("message", "").rpartition(":")[2]
    for part in root.iterfind(f"{_wsdl('message')}/{_wsdl('part')}[@element]"):
        if part.getparent().get("name") != message:
            continue
        names.add(_expanded(part, part.get("element")))
    for binding, bound in _operations(root, "binding"):
        if _port_type_of(binding) == port_type.get("name") and bound.get("name") == operation.get("name"):
            for namespace in _SOAP:
                names.update(e.get("soapAction") for e in bound.iterchildren(f"{{{namespace}}}operation"))
                for body in bound.iterfind(f"{_wsdl('input')}/{{{namespace}}}body[@namespace]"):  # RPC style
                    names.add(f"{{{body.get('namespace')}}}{operation.get('name')}")
    return {name for name in names if name}


def _expanded(element: Any, name: str) -> str:
    prefix, _, local = name.rpartition(":")
    return f"{{{element.nsmap.get(prefix or None, '')}}}{local}"
