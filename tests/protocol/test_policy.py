"""What the WSDL of a wrapped service says of WS-ReliableMessaging, as a client gets it over HTTP."""

from __future__ import annotations

import http.client
from typing import Any, Final

import pytest
import zeep
from lxml import etree

from tests.support.orders_server import OrdersServer
from tests.support.policies import At, each_front
from tests.support.source import in_1_1

WSDL: Final = "http://schemas.xmlsoap.org/wsdl/"
NAMES: Final = {
    "w": WSDL,
    "p": "http://schemas.xmlsoap.org/ws/2004/09/policy",
    "a": "http://www.w3.org/2007/05/addressing/metadata",
    "rm10": "http://schemas.xmlsoap.org/ws/2005/02/rm/policy",
    "rm11": "http://docs.oasis-open.org/ws-rx/wsrmp/200702",
    "net": "http://schemas.microsoft.com/ws-rx/wsrmp/200702",
    "mc": "http://docs.oasis-open.org/ws-rx/wsmc/200702",
}
ID: Final = "{http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd}Id"
_ELEMENT: Final = '<xs:element name="{}"><xs:complexType><xs:sequence>{}</xs:sequence>{}</xs:complexType></xs:element>'
_OTHERS: Final = '<xs:any namespace="##other" processContents="lax" minOccurs="0" maxOccurs="unbounded"/>'
_ANY_ATTRIBUTE: Final = '<xs:anyAttribute namespace="##any" processContents="lax"/>'


def _schema(namespace: str, content: str) -> etree.XMLSchema:
    head = f'<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:t="{namespace}" targetNamespace="{namespace}"'
    return etree.XMLSchema(etree.fromstring(f'{head} elementFormDefault="qualified">{content}</xs:schema>'))


def _timed(name: str) -> str:
    return (
        f'<xs:element name="{name}" minOccurs="0"><xs:complexType>'
        f'<xs:attribute name="Milliseconds" type="xs:unsignedLong" use="required"/></xs:complexType></xs:element>'
    )


SCHEMAS: Final = {
    "rm10": _schema(
        NAMES["rm10"],
        _ELEMENT.format(
            "RMAssertion",
            _timed("InactivityTimeout")
            + _timed("BaseRetransmissionInterval")
            + '<xs:element name="ExponentialBackoff" minOccurs="0"/>'
            + _timed("AcknowledgementInterval")
            + _OTHERS,
            _ANY_ATTRIBUTE,
        ),
    ),
    "rm11": _schema(
        NAMES["rm11"],
        _ELEMENT.format("RMAssertion", _OTHERS, _ANY_ATTRIBUTE)
        + _ELEMENT.format("DeliveryAssurance", '<xs:any namespace="##any" processContents="lax"/>', "")
        + "".join(_ELEMENT.format(name, "", "") for name in ("ExactlyOnce", "AtLeastOnce", "AtMostOnce", "InOrder")),
    ),
}
"""The published policy schemas of both versions, written anew: names, order, cardinality and types."""


def fetched(server: OrdersServer, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", f"{path}?wsdl")
    answer = connection.getresponse()
    assert answer.status == 200
    return etree.fromstring(answer.read())


def alternatives(wsdl: Any) -> list[Any]:
    """What a client may choose from."""
    found: list[Any] = wsdl.findall("p:Policy/p:ExactlyOne/p:All", NAMES)
    return found


def assertion(wsdl: Any, version: str) -> Any:
    [found] = wsdl.findall(f".//{version}:RMAssertion", NAMES)
    SCHEMAS[version].assertValid(found)
    return found


@pytest.mark.spec("POL-001", versions=("1.0",))
def test_1_0_is_announced_as_its_schema_has_it_with_the_inactivity_that_is_configured(policies: OrdersServer) -> None:
    assert len(assertion(fetched(policies, "/small"), "rm10")) == 0
    [parameter] = assertion(fetched(policies, "/idle"), "rm10")
    assert parameter.tag == f"{{{NAMES['rm10']}}}InactivityTimeout"
    assert dict(parameter.attrib) == {"Milliseconds": "1500"}


@pytest.mark.spec("POL-003", versions=("1.1",))
def test_1_1_is_announced_with_its_parameters_in_a_nested_policy(policies: OrdersServer) -> None:
    found = assertion(fetched(policies, "/small"), "rm11")
    assert [child.tag for child in found] == [f"{{{NAMES['p']}}}Policy"]
    [assurance] = found[0]
    SCHEMAS["rm11"].assertValid(assurance)
    timeout = assertion(fetched(policies, "/idle"), "rm11").find("net:InactivityTimeout", NAMES)
    assert timeout.get("Milliseconds") == "1500"


@pytest.mark.spec("POL-004", "POL-005", versions=("1.1",))
@pytest.mark.parametrize(
    ("path", "promises"),
    {
        "/small": ["ExactlyOnce", "InOrder"],
        "/at_least_once": ["AtLeastOnce", "InOrder"],
        "/at_most_once": ["AtMostOnce", "InOrder"],
        "/any_order": ["ExactlyOnce"],
    }.items(),
)
def test_what_is_promised_is_what_is_configured_for_the_one_who_asks(
    path: str, promises: list[str], policies: OrdersServer
) -> None:
    assured = assertion(fetched(policies, path), "rm11").find("p:Policy/rm11:DeliveryAssurance/p:Policy", NAMES)
    assert [etree.QName(one).localname for one in assured] == promises
    for one in assured:
        SCHEMAS["rm11"].assertValid(one)


@pytest.mark.spec("POL-006")
@in_1_1
def test_required_is_announced_where_it_is_demanded_and_nowhere_else(at: At) -> None:
    """And the other way round: an empty alternative stands where a message without WS-RM is taken."""
    for path, is_required in (("/needs_rm", True), ("/small", False)):
        with at(path) as source:
            choice = alternatives(fetched(source.server, path))
            assert [len(one) for one in choice] == ([3, 2] if is_required else [3, 2, 0])
            answer = source.put_plain(31)
            fault = answer.reply.fault if answer.body else None
            assert (fault is not None and fault.subcode == "WSRMRequired") is is_required


@pytest.mark.spec("POL-008", versions="all")
def test_the_policy_hangs_on_every_soap_binding_and_on_nothing_else(policies: OrdersServer) -> None:
    wsdl = fetched(policies, "/small")
    [policy] = wsdl.findall(".//p:Policy[p:ExactlyOne]", NAMES)
    assert policy.getparent() is wsdl
    references = wsdl.findall(".//p:PolicyReference", NAMES)
    assert {one.get("URI") for one in references} == {f"#{policy.get(ID)}"}
    assert [one.getparent() for one in references] == wsdl.findall("w:binding", NAMES)
    assert all(one.getparent().index(one) == 0 for one in references), "extensions stand before operations"


@pytest.mark.spec("POL-011", versions="all")
def test_make_connection_is_announced_as_what_may_be_used_with_1_1(policies: OrdersServer) -> None:
    [found] = fetched(policies, "/small").iterfind(".//mc:MCSupported", NAMES)
    assert dict(found.attrib) == {f"{{{NAMES['p']}}}Optional": "true"}
    assert etree.QName(found.getprevious()).namespace == NAMES["rm11"]


def test_each_version_comes_with_the_addressing_that_it_needs(policies: OrdersServer) -> None:
    for one in alternatives(fetched(policies, "/needs_rm")):
        assert one[0].tag == f"{{{NAMES['a']}}}Addressing"


@pytest.mark.peer("P-68")
def test_a_client_without_ws_rm_calls_a_service_that_announces_it(policies: OrdersServer) -> None:
    client = zeep.Client(f"http://127.0.0.1:{policies.port}/small?wsdl")
    assert client.service.echo("plainly") == "plainly"


@each_front
def test_a_look_at_the_head_and_a_second_look_leave_the_connection_as_it_was(policies: OrdersServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", policies.port, timeout=10)

    def asked(method: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection.request(method, "/small?wsdl", headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()

    whole, document = asked("GET")
    head, nothing = asked("HEAD")
    assert (head.status, nothing) == (200, b"")
    assert head.headers["Content-Length"] == whole.headers["Content-Length"] == str(len(document))
    known, nothing = asked("GET", **{"If-None-Match": whole.headers["ETag"]})
    assert (known.status, nothing) == (304, b"")
    assert asked("GET")[1] == document
    connection.close()
