"""The policy of a port in a WSDL 1.1, by which a client finds out what to speak with its service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from wsrm_mq.envelope.policy import NAMES, RMP_1_0, RMP_1_1, WSAM, WSP_1_5, WSP_2004
from wsrm_mq.envelope.wsdl import expanded, parsed, wsdl_name
from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, AddressingVersion, RMVersion

_DIGITS: Final = 8
"""A time of so many digits is hours, so it is not one that was meant."""
_ADDRESSING: Final = {
    f"{{{WSAM}}}Addressing": WSA_2005,
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
    addressing: AddressingVersion | None = None
    """The version of WS-Addressing that goes with RM 1.0."""


def asserted(documents: Sequence[bytes], service: str | None = None, port: str | None = None) -> Asserted:
    """Read the policy of a port in the documents of a WSDL, which import one another; without names the first one.
    Of alternatives in several versions the newest is taken, whether it is optional or not (POL-007, POL-012); 1.1 where
    there is none, or no WSDL 1.1."""
    scope = _policy_of(list(_roots(documents)), service, port)
    found = [one for element in scope for one in element.iter(f"{{{RMP_1_0}}}RMAssertion")]
    with_1_0 = Asserted(addressing=_addressing(found, scope))
    if not found or any(next(element.iter(f"{{{RMP_1_1}}}RMAssertion"), None) is not None for element in scope):
        return with_1_0
    return with_1_0._replace(
        rm=WSRM_1_0,
        retransmission=_stated(found[0], "BaseRetransmissionInterval"),
        acknowledgement=_stated(found[0], "AcknowledgementInterval"),
        is_exponential=found[0].find(f".//{{{RMP_1_0}}}ExponentialBackoff") is not None,
    )


def _roots(documents: Sequence[bytes]) -> Iterator[Any]:
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
        found += _referred(roots, element, element.get(f"{{{WSP_2004}}}PolicyURIs", "").split())
        found += _referred(roots, element, element.get(f"{{{WSP_1_5}}}PolicyURIs", "").split())
    for element in found:  # it grows by what its policies refer to
        for wsp in (WSP_2004, WSP_1_5):
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
            for wsp in (WSP_2004, WSP_1_5)
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


def _stated(assertion: Any, local: str) -> int | None:
    element = assertion.find(f".//{{{RMP_1_0}}}{local}")
    said = "" if element is None else element.get("Milliseconds", "").strip()
    return int(said) if said.isascii() and said.isdigit() and len(said) < _DIGITS else None
