"""A WSDL 1.1: its one-way operations are found, or made so, its ports put where clients reach them, and the policy that
announces WS-ReliableMessaging is attached to it, or read of it.

Spyne cannot declare an operation without output. Told which operations are one-way, the WSDL it serves is
corrected. And it writes the address into its WSDL that was asked for first, which a proxy or a monitor may have been.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from lxml import etree

from wsrm_mq.sequence.terms import DeliveryAssurance
from wsrm_mq.versions import (
    MAKE_CONNECTION_NAMESPACE,
    WSA_2004,
    WSA_2005,
    WSRM_1_0,
    WSRM_1_1,
    AddressingVersion,
    RMVersion,
)

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
    imports = (one for root in _roots([document]) for one in root.iterchildren(wsdl_name("import")))
    return [one.get("location") for one in imports if one.get("location")]


def input_names(documents: Collection[bytes]) -> dict[tuple[str, str], str]:
    """The names of inputs that the documents of a WSDL give: ``{namespace}portType`` and operation → name."""
    return {
        (f"{{{root.get('targetNamespace', '')}}}{owner.get('name')}", operation.get("name")): received.get("name")
        for root in _roots(documents)
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


# WS-Policy in a WSDL 1.1: the assertions by which a client finds out that the service speaks WS-ReliableMessaging.
#
# They stand in normal form, one alternative a version of WS-RM and an empty one where RM is optional. wsp:Optional on
# the assertions would mean the same, but a Metro client leaves out assertions that are marked so. Of several
# alternatives it takes the first that it knows; CXF takes the shortest, which is one without RM if there is one.


_WSP_2004: Final = "http://schemas.xmlsoap.org/ws/2004/09/policy"
"""WS-Policy 1.2, which clients of 2005 know, and those of today too."""
_WSP_1_5: Final = "http://www.w3.org/ns/ws-policy"
_WSU: Final = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd"
_WSAM: Final = "http://www.w3.org/2007/05/addressing/metadata"
RMP_1_0: Final = "http://schemas.xmlsoap.org/ws/2005/02/rm/policy"
RMP_1_1: Final = "http://docs.oasis-open.org/ws-rx/wsrmp/200702"
_NETRMP: Final = "http://schemas.microsoft.com/ws-rx/wsrmp/200702"
_HTTP: Final = frozenset(("http://schemas.xmlsoap.org/soap/http", "http://www.w3.org/2003/05/soap/bindings/HTTP/"))
"""Transports that a SOAP binding over HTTP names."""
_ASSURANCES: Final = {
    DeliveryAssurance.EXACTLY_ONCE: "ExactlyOnce",
    DeliveryAssurance.AT_LEAST_ONCE: "AtLeastOnce",
    DeliveryAssurance.AT_MOST_ONCE: "AtMostOnce",
}
_ID: Final = "ReliableMessaging"
NAMES: Final = (f"{{{_WSU}}}Id", "{http://www.w3.org/XML/1998/namespace}id")
"""Attributes that name an element for a reference (WS-Policy 1.5, 4.2)."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """The promises of the service to a client that asks for its WSDL. ``inactivity`` in ms; ``None``: no sequence ends
    by it."""

    assurance: DeliveryAssurance = DeliveryAssurance.EXACTLY_ONCE
    is_ordered: bool = True
    is_required: bool = False
    inactivity: int | None = None


def announce(root: Any, announcement: Announcement) -> bool:
    """Attach a policy to every SOAP-over-HTTP binding of the document ``root``, beside those that it has. Answers
    whether there was something to do: a document that speaks of WS-RM by itself stays as it is."""
    bindings = [binding for binding in root.iterchildren(wsdl_name("binding")) if _is_soap_over_http(binding)]
    if not bindings or any(root.find(f".//{{{rmp}}}RMAssertion") is not None for rmp in (RMP_1_0, RMP_1_1)):
        return False
    wsp = _WSP_1_5 if next(root.iter(f"{{{_WSP_1_5}}}*"), None) is not None else _WSP_2004
    name = _free_name(root)
    _put_first(root, _policy(wsp, name, announcement))
    for binding in bindings:
        _put_first(binding, etree.Element(f"{{{wsp}}}PolicyReference", {"URI": f"#{name}"}, {"wsp": wsp}))
    return True


def _is_soap_over_http(binding: Any) -> bool:
    return any(
        bound.get("transport") in _HTTP
        for soap in SOAP_BINDINGS
        for bound in binding.iterchildren(f"{{{soap}}}binding")
    )


def _free_name(root: Any) -> str:
    taken = {element.get(name) for element in root.iter(etree.Element) for name in NAMES}
    numbered = (f"{_ID}{count or ''}" for count in range(len(taken) + 1))
    return next(name for name in numbered if name not in taken)


def _put_first(parent: Any, element: Any) -> None:
    """Extensions stand before all else but the documentation."""
    documentation = parent.find(wsdl_name("documentation"))
    parent.insert(0 if documentation is None else parent.index(documentation) + 1, element)


def _policy(wsp: str, name: str, announcement: Announcement) -> Any:
    namespaces = {"wsp": wsp, "wsu": _WSU, "wsam": _WSAM}
    policy = etree.Element(f"{{{wsp}}}Policy", {f"{{{_WSU}}}Id": name}, namespaces)
    alternatives = etree.SubElement(policy, f"{{{wsp}}}ExactlyOne")
    for assertions in (_of_1_1(wsp, announcement), _of_1_0(announcement)):
        alternative = etree.SubElement(alternatives, f"{{{wsp}}}All")
        addressing = etree.SubElement(alternative, f"{{{_WSAM}}}Addressing")
        etree.SubElement(addressing, f"{{{wsp}}}Policy")
        alternative.extend(assertions)
    if not announcement.is_required:
        etree.SubElement(alternatives, f"{{{wsp}}}All")
    return policy


def _of_1_1(wsp: str, announcement: Announcement) -> Iterator[Any]:
    """RM 1.1 and 1.2."""
    assertion = etree.Element(f"{{{RMP_1_1}}}RMAssertion", nsmap={"wsrmp": RMP_1_1})
    parameters = etree.SubElement(assertion, f"{{{wsp}}}Policy")
    assurance = etree.SubElement(parameters, f"{{{RMP_1_1}}}DeliveryAssurance")
    assured = etree.SubElement(assurance, f"{{{wsp}}}Policy")
    etree.SubElement(assured, f"{{{RMP_1_1}}}{_ASSURANCES[announcement.assurance]}")
    if announcement.is_ordered:
        etree.SubElement(assured, f"{{{RMP_1_1}}}InOrder")
    if announcement.inactivity is not None:
        assertion.append(_milliseconds("netrmp", _NETRMP, announcement.inactivity))
    yield assertion
    # Not marked, it would have a Metro client poll for the answers that it can have at once.
    optional = {f"{{{wsp}}}Optional": "true"}
    yield etree.Element(f"{{{MAKE_CONNECTION_NAMESPACE}}}MCSupported", optional, {"wsmc": MAKE_CONNECTION_NAMESPACE})


def _of_1_0(announcement: Announcement) -> Iterator[Any]:
    assertion = etree.Element(f"{{{RMP_1_0}}}RMAssertion", nsmap={"wsrm10p": RMP_1_0})
    if announcement.inactivity is not None:
        assertion.append(_milliseconds("wsrm10p", RMP_1_0, announcement.inactivity))
    yield assertion


def _milliseconds(prefix: str, namespace: str, inactivity: int) -> Any:
    return etree.Element(f"{{{namespace}}}InactivityTimeout", {"Milliseconds": str(inactivity)}, {prefix: namespace})


# The policy of a port in a WSDL 1.1, by which a client finds out what to speak with its service.

_DIGITS: Final = 8
"""A time of so many digits is hours, so it is not one that was meant."""
_ADDRESSING: Final = {
    f"{{{_WSAM}}}Addressing": WSA_2005,
    "{http://www.w3.org/2006/05/addressing/wsdl}UsingAddressing": WSA_2005,
    "{http://www.w3.org/2006/02/addressing/wsdl}UsingAddressing": WSA_2005,
    "{http://schemas.xmlsoap.org/ws/2004/08/addressing/policy}UsingAddressing": WSA_2004,
}
"""Assertions and extensions of WSDL by which an endpoint says which WS-Addressing it uses."""


class Asserted(NamedTuple):
    """The assertions of a port: the version to speak, and the timing that 1.0 states with its own. Times in ms;
    ``None``: none is stated."""

    rm: RMVersion = WSRM_1_1
    retransmission: int | None = None
    acknowledgement: int | None = None
    is_exponential: bool = False
    inactivity: int | None = None
    """How long a sequence lives in which nothing is said. 1.1 states it by an assertion of WCF's."""
    addressing: AddressingVersion | None = None
    """The version of WS-Addressing that goes with RM 1.0."""


def asserted(documents: Collection[bytes], service: str | None = None, port: str | None = None) -> Asserted:
    """Read the policy of a port in the documents of a WSDL, which import one another; without names the first one.
    Of alternatives in several versions the newest is taken, whether it is optional or not (POL-007, POL-012); 1.1 where
    there is none, or no WSDL 1.1."""
    scope = _policy_of(list(_roots(documents)), service, port)
    found = [one for element in scope for one in element.iter(f"{{{RMP_1_0}}}RMAssertion")]
    with_1_0 = Asserted(addressing=_addressing(found, scope))
    if not found or any(next(element.iter(f"{{{RMP_1_1}}}RMAssertion"), None) is not None for element in scope):
        return with_1_0._replace(inactivity=_stated(scope, _NETRMP, "InactivityTimeout"))
    return with_1_0._replace(
        rm=WSRM_1_0,
        retransmission=_stated(found, RMP_1_0, "BaseRetransmissionInterval"),
        acknowledgement=_stated(found, RMP_1_0, "AcknowledgementInterval"),
        inactivity=_stated(found, RMP_1_0, "InactivityTimeout"),
        is_exponential=found[0].find(f".//{{{RMP_1_0}}}ExponentialBackoff") is not None,
    )


def _roots(documents: Collection[bytes]) -> Iterator[Any]:
    for document in documents:
        try:
            yield parsed(document)
        except ValueError:
            continue


def _policy_of(roots: list[Any], service: str | None, port: str | None) -> list[Any]:
    """The extensions of a port, its binding and its port type, and the policies that they refer to; where there is no
    such port, all."""
    ports = (
        one
        for root in roots
        for owner in root.iterchildren(wsdl_name("service"))
        if service in (None, owner.get("name"))
        for one in owner.iterchildren(wsdl_name("port"))
        if port in (None, one.get("name"))
    )
    chosen = next(ports, None)
    if chosen is None:
        return roots
    named = {
        (parts, f"{{{root.get('targetNamespace', '')}}}{one.get('name')}"): one
        for root in roots
        for parts in ("binding", "portType")
        for one in root.iterchildren(wsdl_name(parts))
    }
    binding = named.get(("binding", expanded(chosen, chosen.get("binding", ""))))
    port_type = None if binding is None else named.get(("portType", expanded(binding, binding.get("type", ""))))
    found: list[Any] = []
    for element in filter(lambda one: one is not None, (chosen, binding, port_type)):
        found += (child for child in element.iterchildren("*") if child.tag != wsdl_name("operation"))
        found += _referred(roots, element, element.get(f"{{{_WSP_2004}}}PolicyURIs", "").split())
        found += _referred(roots, element, element.get(f"{{{_WSP_1_5}}}PolicyURIs", "").split())
    for element in found:  # it grows by what its policies refer to
        for wsp in (_WSP_2004, _WSP_1_5):
            for reference in element.iter(f"{{{wsp}}}PolicyReference"):
                found += (one for one in _referred(roots, element, [reference.get("URI", "")]) if one not in found)
    return found


def _referred(roots: list[Any], where: Any, addresses: list[str]) -> Iterator[Any]:
    """The policies at addresses like ``#name``: those of the document that refers to them come first."""
    own = where.getroottree().getroot()
    for address in addresses:
        name = address.rpartition("#")[2]
        policies = (
            policy
            for root in sorted(roots, key=lambda root: root is not own)
            for wsp in (_WSP_2004, _WSP_1_5)
            for policy in root.iter(f"{{{wsp}}}Policy")
            if name in (policy.get(one) for one in (*NAMES, "Name"))
        )
        yield from (policy for policy in (next(policies, None),) if policy is not None)


def _addressing(assertions: list[Any], scope: list[Any]) -> AddressingVersion | None:
    """The version of WS-Addressing that stands in the alternative of an RMAssertion, else beside it."""
    alternatives = [one.getparent() for one in assertions]
    for elements in (alternatives, scope):
        for element in elements:
            for name, version in _ADDRESSING.items():
                if next(element.iter(name), None) is not None:
                    return version
    return None


def _stated(places: list[Any], namespace: str, local: str) -> int | None:
    """The milliseconds of the first such element in ``places``; of 0, nothing is stated."""
    element = next((one for place in places for one in place.iter(f"{{{namespace}}}{local}")), None)
    said = "" if element is None else element.get("Milliseconds", "").strip()
    return (int(said) or None) if said.isascii() and said.isdigit() and len(said) < _DIGITS else None
