"""The policy in a WSDL, whatever the WSDL looks like."""

from __future__ import annotations

from typing import Any, Final

import pytest
from lxml import etree

from wsrm_mq.envelope.wsdl import Announcement, announce, parsed, written
from wsrm_mq.sequence.terms import DeliveryAssurance

NAMES: Final = {
    "w": "http://schemas.xmlsoap.org/wsdl/",
    "p04": "http://schemas.xmlsoap.org/ws/2004/09/policy",
    "p15": "http://www.w3.org/ns/ws-policy",
    "mc": "http://docs.oasis-open.org/ws-rx/wsmc/200702",
    "rsp": "http://ws-i.org/profiles/rsp/1.0/",
    "net": "http://schemas.microsoft.com/ws-rx/wsrmp/200702",
}
WSU: Final = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd"
OVER_HTTP: Final = "http://schemas.xmlsoap.org/soap/http"
HEAD: Final = (
    '<w:definitions xmlns:w="http://schemas.xmlsoap.org/wsdl/" xmlns:s11="http://schemas.xmlsoap.org/wsdl/soap/" '
    'xmlns:s12="http://schemas.xmlsoap.org/wsdl/soap12/" xmlns:h="http://schemas.xmlsoap.org/wsdl/http/" '
    'xmlns:p="http://schemas.xmlsoap.org/ws/2004/09/policy" xmlns:p15="http://www.w3.org/ns/ws-policy" '
    f'xmlns:u="{WSU}" targetNamespace="urn:t">'
)


def document(content: str) -> Any:
    return parsed(f"{HEAD}{content}</w:definitions>".encode())


def binding(name: str, inside: str = f'<s11:binding transport="{OVER_HTTP}"/>') -> str:
    return f'<w:binding name="{name}" type="t">{inside}<w:operation name="o"/></w:binding>'


def announced_by(root: Any) -> list[str]:
    """The names of the bindings that have the policy, which is there."""
    [policy] = root.findall("p04:Policy", NAMES)
    references = root.findall("w:binding/p04:PolicyReference", NAMES)
    assert {one.get("URI") for one in references} == {f"#{policy.get(f'{{{WSU}}}Id')}"}
    return [one.getparent().get("name") for one in references]


def test_every_binding_of_soap_over_http_announces_it_in_either_version_of_soap() -> None:
    root = document(
        binding("one")
        + binding("two", f'<s12:binding transport="{OVER_HTTP}"/>')
        + binding("three", '<s12:binding transport="http://www.w3.org/2003/05/soap/bindings/HTTP/"/>')
        + binding("queue", '<s11:binding transport="http://www.w3.org/2010/soapjms/"/>')
        + binding("get", '<h:binding verb="GET"/>')
    )
    assert announce(root, Announcement())
    assert announced_by(root) == ["one", "two", "three"]


def test_a_document_without_bindings_imports_those_that_announce_it() -> None:
    content = '<w:import namespace="urn:t" location="?wsdl=1"/><w:service name="s"/>'
    root = document(content)
    assert not announce(root, Announcement())
    assert written(root) == written(document(content))


@pytest.mark.spec("RSP-014", versions="all")
def test_policies_of_the_service_stay_and_one_is_added_under_a_name_of_its_own() -> None:
    """A service that claims to conform to the profile goes on to."""
    own = (
        '<p:Policy u:Id="ReliableMessaging"><x:Claim xmlns:x="urn:x"/></p:Policy>'
        '<p:Policy xml:id="ReliableMessaging1"><r:Conformant xmlns:r="http://ws-i.org/profiles/rsp/1.0/"/></p:Policy>'
    )
    reference = '<p:PolicyReference URI="#ReliableMessaging1"/>'
    root = document(own + binding("one", f'<w:documentation/>{reference}<s11:binding transport="{OVER_HTTP}"/>'))
    assert announce(root, Announcement())
    [one] = root.findall("w:binding", NAMES)
    assert [etree.QName(child).localname for child in one][:3] == [
        "documentation",
        "PolicyReference",
        "PolicyReference",
    ]
    assert [child.get("URI") for child in one.findall("p04:PolicyReference", NAMES)] == [
        "#ReliableMessaging2",
        "#ReliableMessaging1",
    ]
    assert root.find("p04:Policy/rsp:Conformant", NAMES) is not None


def test_the_version_of_ws_policy_is_the_one_that_the_document_uses() -> None:
    root = document('<p15:Policy u:Id="a"/>' + binding("one", f'<s11:binding transport="{OVER_HTTP}"/>'))
    assert announce(root, Announcement())
    assert root.find(".//p04:*", NAMES) is None
    assert len(root.findall("w:binding/p15:PolicyReference", NAMES)) == 1


@pytest.mark.parametrize(
    "namespace", ["http://schemas.xmlsoap.org/ws/2005/02/rm/policy", "http://docs.oasis-open.org/ws-rx/wsrmp/200702"]
)
def test_a_service_that_speaks_of_reliable_messaging_by_itself_is_left_alone(namespace: str) -> None:
    own = f'<p:Policy u:Id="a"><r:RMAssertion xmlns:r="{namespace}"/></p:Policy>'
    root = document(own + binding("one"))
    before = written(root)
    assert not announce(root, Announcement())
    assert written(root) == before


def test_what_is_announced_is_what_the_service_promises() -> None:
    root = document(binding("one"))
    promised = Announcement(DeliveryAssurance.AT_LEAST_ONCE, is_ordered=False, is_required=True, inactivity=90_000)
    assert announce(root, promised)
    [policy] = root.findall("p04:Policy", NAMES)
    names = [etree.QName(element).localname for element in policy.iter(etree.Element)]
    assert "AtLeastOnce" in names
    assert not {"ExactlyOnce", "InOrder"} & set(names[2:])
    assert len(policy.findall("p04:ExactlyOne/p04:All", NAMES)) == 2, "no alternative is without RM"
    assert [e.get("Milliseconds") for e in policy.iter("{*}InactivityTimeout")] == ["90000", "90000"]
    assert policy.find(".//mc:MCSupported", NAMES) is not None


@pytest.mark.parametrize(
    ("announcement", "assured"),
    [
        (Announcement(DeliveryAssurance.AT_LEAST_ONCE, is_ordered=False), ["AtLeastOnce"]),
        (Announcement(DeliveryAssurance.AT_MOST_ONCE, is_required=True, inactivity=1_500), ["AtMostOnce", "InOrder"]),
    ],
)
def test_what_is_announced_is_what_was_given(announcement: Announcement, assured: list[str]) -> None:
    root = document(binding("one"))
    announce(root, announcement)
    choice = root.findall("p04:Policy/p04:ExactlyOne/p04:All", NAMES)
    assert [len(one) for one in choice] == ([3, 2] if announcement.is_required else [3, 2, 0])
    [assurance] = root.iter("{*}DeliveryAssurance")
    assert [etree.QName(one).localname for one in assurance[0]] == assured
    timeouts = [one.get("Milliseconds") for one in root.iter("{*}InactivityTimeout")]
    assert timeouts == ([] if announcement.inactivity is None else ["1500", "1500"])
