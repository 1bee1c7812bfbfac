"""What the WSDL of a partner says of its port, whatever that WSDL looks like."""

from __future__ import annotations

from typing import Final

import pytest

from tests.envelope.test_policy import HEAD, document
from wsrm_mq.envelope.wsdl import Asserted, asserted, default_action, imports_in, input_names, written
from wsrm_mq.versions import WSA_2004, WSA_2005, WSRM_1_0, WSRM_1_1, AddressingVersion

RMP_1_0: Final = "http://schemas.xmlsoap.org/ws/2005/02/rm/policy"
RMP_1_1: Final = "http://docs.oasis-open.org/ws-rx/wsrmp/200702"


def asserting(*assertions: tuple[str, str]) -> bytes:
    """A WSDL with these RMAssertions, each a namespace and its content, as alternatives."""
    said = "".join(
        f'<p:All><r:RMAssertion xmlns:r="{name}">{inside}</r:RMAssertion></p:All>' for name, inside in assertions
    )
    return written(document(f"<p:Policy><p:ExactlyOne>{said}</p:ExactlyOne></p:Policy>"))


@pytest.mark.parametrize(
    "wsdl", [b"", b"<html/>", asserting(), asserting((RMP_1_1, "")), asserting((RMP_1_0, ""), (RMP_1_1, ""))]
)
def test_1_1_is_spoken_unless_a_wsdl_asserts_1_0_alone(wsdl: bytes) -> None:
    assert asserted([wsdl]) == Asserted()


@pytest.mark.parametrize(
    ("inside", "timing"),
    [
        ("", (None, None, False)),
        (
            '<r:BaseRetransmissionInterval Milliseconds=" 5000 "/><r:ExponentialBackoff/>'
            '<r:AcknowledgementInterval Milliseconds="200"/>',
            (5_000, 200, True),
        ),
        ("<r:BaseRetransmissionInterval/>", (None, None, False)),
        (f'<r:BaseRetransmissionInterval Milliseconds="{"9" * 30}"/>', (None, None, False)),
        ('<r:BaseRetransmissionInterval Milliseconds="-1"/>', (None, None, False)),
        ('<r:AcknowledgementInterval Milliseconds="&#x0662;"/>', (None, None, False)),
    ],
)
def test_the_timing_that_1_0_asserts_is_read_where_it_is_a_number(
    inside: str, timing: tuple[int | None, int | None, bool]
) -> None:
    assert asserted([asserting((RMP_1_0, inside))]) == Asserted(WSRM_1_0, *timing)


ADDRESSING: Final = {
    "1.0": '<a:Addressing xmlns:a="http://www.w3.org/2007/05/addressing/metadata"/>',
    "of 2006": '<a:UsingAddressing xmlns:a="http://www.w3.org/2006/05/addressing/wsdl"/>',
    "2004/08": '<a:UsingAddressing xmlns:a="http://schemas.xmlsoap.org/ws/2004/08/addressing/policy"/>',
}


@pytest.mark.parametrize(
    ("said", "version"), [("1.0", WSA_2005), ("of 2006", WSA_2005), ("2004/08", WSA_2004)], ids=lambda one: str(one)
)
@pytest.mark.parametrize("place", ["in the alternative", "in the binding"])
def test_the_addressing_that_goes_with_1_0_is_the_one_that_is_asserted(
    said: str, version: AddressingVersion, place: str
) -> None:
    in_all, in_binding = (ADDRESSING[said], "") if place == "in the alternative" else ("", ADDRESSING[said])
    other = f'<p:All>{ADDRESSING["1.0"]}<r:RMAssertion xmlns:r="{RMP_1_1}"/></p:All>' if in_all else ""
    alternatives = f'{other}<p:All>{in_all}<r:RMAssertion xmlns:r="{RMP_1_0}"/></p:All>'
    found = asserted([service(f"<p:Policy><p:ExactlyOne>{alternatives}</p:ExactlyOne></p:Policy>{in_binding}")])
    assert found == Asserted(WSRM_1_1 if other else WSRM_1_0, addressing=version)


def service(*bindings: str, others: str = "") -> bytes:
    """A WSDL with a port ``P1``, ``P2``, … for each binding that has these extensions."""
    made = "".join(
        f'<w:binding name="B{n}" type="t:T">{one}<w:operation name="o"/></w:binding>'
        for n, one in enumerate(bindings, 1)
    )
    ports = "".join(f'<w:port name="P{n}" binding="t:B{n}"/>' for n, _one in enumerate(bindings, 1))
    service = f'<w:service xmlns:t="urn:t" name="S">{ports}</w:service>' if bindings else ""
    return f"{HEAD[:-1]} xmlns:t='urn:t'>{others}{made}{service}</w:definitions>".encode()


def policy(name: str, rmp: str) -> str:
    return f'<p:Policy u:Id="{name}"><r:RMAssertion xmlns:r="{rmp}"/></p:Policy>'


def reference(name: str) -> str:
    return f'<p:PolicyReference URI="{name}"/>'


def test_the_policy_of_the_chosen_port_rules() -> None:
    both = policy("old", RMP_1_0) + policy("new", RMP_1_1) + policy("unused", RMP_1_1)
    wsdl = service(reference("#old"), reference("#new"), "", others=both)
    assert [asserted([wsdl], "S", port).rm for port in (None, "P1", "P2", "P3")] == [
        *(WSRM_1_0, WSRM_1_0, WSRM_1_1, WSRM_1_1)
    ]
    nested = f'<p:Policy u:Id="outer">{reference("#old")}</p:Policy>' + policy("old", RMP_1_0)
    assert asserted([service(reference("#outer"), others=nested)]).rm is WSRM_1_0


def test_a_policy_in_a_document_that_is_imported_counts() -> None:
    head = service(others='<w:import namespace="urn:t" location="bindings.wsdl"/>')
    (place,) = imports_in(head)
    assert place == "bindings.wsdl"
    assert imports_in(b"no WSDL") == []
    rest = service(reference("policies.wsdl#old"))
    assert asserted([head, rest, service(others=policy("old", RMP_1_0))]).rm is WSRM_1_0


@pytest.mark.parametrize(
    ("namespace", "action"),
    [
        ("http://example.com/stock", "http://example.com/stock/Quotes/Ask"),
        ("http://example.com/stock/", "http://example.com/stock/Quotes/Ask"),
        ("urn:example:stock", "urn:example:stock:Quotes:Ask"),
    ],
)
def test_an_action_by_default_is_made_of_names(namespace: str, action: str) -> None:
    """WS-Addressing 1.0, Metadata, 4.4.4."""
    assert default_action(namespace, "Quotes", "Ask") == action
    operations = '<w:operation name="o"><w:input name="Ask"/></w:operation><w:operation name="x"/>'
    named = f'<w:portType name="T">{operations}</w:portType>'
    assert input_names([service(others=named)]) == {("{urn:t}T", "o"): "Ask"}
    assert input_names([b"no WSDL"]) == {}
