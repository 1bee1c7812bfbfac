"""One-way operations of a WSDL: found by all of their names, and made so."""

from __future__ import annotations

from typing import Any

import pytest
from lxml import etree

from wsrm_mq.envelope.wsdl import move_ports, operations_in, parsed, remove_outputs, written, wsdl_name

WSDL = b"""<w:definitions xmlns:w="http://schemas.xmlsoap.org/wsdl/" xmlns:s="http://schemas.xmlsoap.org/wsdl/soap/"
  xmlns:t="urn:orders" xmlns:m="http://www.w3.org/2007/05/addressing/metadata" targetNamespace="urn:orders">
  <w:message name="put"><w:part name="in" element="t:put"/></w:message>
  <w:message name="bare"><w:part name="in" element="bare"/></w:message>
  <w:message name="rpc"><w:part name="in" type="t:text"/></w:message>
  <w:message name="done"><w:part name="out" element="t:done"/></w:message>
  <w:portType name="Orders">
    <w:operation name="put"><w:input message="t:put" m:Action="urn:put"/></w:operation>
    <w:operation name="bare"><w:input message="t:bare"/></w:operation>
    <w:operation name="ask"><w:input message="t:put" m:Action="urn:ask"/><w:output message="t:done"/>
      <w:fault name="no" message="t:done"/></w:operation>
    <w:operation name="note"><w:input message="t:rpc"/></w:operation>
    <w:operation name="tell"><w:output message="t:done"/></w:operation>
  </w:portType>
  <w:binding name="Bound" type="t:Orders">
    <w:operation name="put"><s:operation soapAction="urn:soap:put"/><w:input/></w:operation>
    <w:operation name="ask"><s:operation soapAction=""/><w:input/><w:output/><w:fault name="no"/></w:operation>
    <w:operation name="note"><w:input><s:body namespace="urn:rpc"/></w:input></w:operation>
  </w:binding>
  <w:binding name="Other" type="t:Other">
    <w:operation name="put"><s:operation soapAction="urn:not"/></w:operation>
  </w:binding>
</w:definitions>"""


def outputs(root: Any) -> list[str]:
    names = wsdl_name("output"), wsdl_name("fault")
    return [f"{etree.QName(e.getparent().getparent()).localname} {etree.QName(e).localname}" for e in root.iter(names)]


def test_a_one_way_operation_has_the_names_of_its_element_its_actions_and_its_rpc_wrapper() -> None:
    found = {"{urn:orders}put", "urn:put", "urn:soap:put", "{}bare", "{urn:rpc}note"}
    assert operations_in(WSDL) == (found, {"{urn:orders}put", "urn:ask"})


def test_outputs_and_faults_go_from_the_operations_that_are_named() -> None:
    root = parsed(WSDL)
    assert not remove_outputs(root, ["urn:other"])
    assert outputs(root) == ["portType output", "portType fault", "portType output", "binding output", "binding fault"]
    assert remove_outputs(root, ["urn:ask"])
    assert outputs(parsed(written(root))) == ["portType output"]


@pytest.mark.parametrize(
    ("location", "moved"),
    [
        ("http://seen-first:8080/orders", "https://public/soap/orders"),
        ("http://seen-first/soap/orders?v=1", "https://public/soap/orders?v=1"),
        ("http://seen-first/soapbox", "https://public/soap/soapbox"),
        ("/orders", "https://public/soap/orders"),
        ("", "https://public/soap"),
        ("jms:queue:orders", "jms:queue:orders"),
        ("http://[half", "http://[half"),
        ("https://public/soap/orders", "https://public/soap/orders"),
    ],
)
def test_a_port_of_http_is_put_below_the_public_address_once(location: str, moved: str) -> None:
    port = f'<w:service name="S"><w:port name="P"><s:address location="{location}"/></w:port></w:service>'
    root = parsed(WSDL.replace(b"</w:definitions>", f"{port}</w:definitions>".encode()))
    assert move_ports(root, "https://public/soap/") == (location != moved)
    [address] = root.iter("{http://schemas.xmlsoap.org/wsdl/soap/}address")
    assert address.get("location") == moved
    assert not move_ports(root, "https://public/soap")


EMPTY = b"""<w:definitions xmlns:w="http://schemas.xmlsoap.org/wsdl/" xmlns:x="http://www.w3.org/2001/XMLSchema"
  xmlns:t="urn:orders"><w:types><x:schema targetNamespace="urn:orders">
    <x:complexType name="nothing"><x:sequence/></x:complexType>
    <x:complexType name="number"><x:sequence><x:element name="n" type="x:int"/></x:sequence></x:complexType>
    <x:element name="put" type="t:number"/><x:element name="putResponse" type="t:nothing"/>
    <x:element name="inline"><x:complexType><x:sequence/></x:complexType></x:element>
    <x:element name="counted" type="t:number"/>
  </x:schema></w:types>
  <w:message name="put"><w:part name="in" element="t:put"/></w:message>
  <w:message name="empty"><w:part name="out" element="t:%s"/></w:message>
  <w:portType name="Orders">
    <w:operation name="put"><w:input message="t:put"/><w:output message="t:empty"/></w:operation>
  </w:portType>
</w:definitions>"""


@pytest.mark.parametrize(("element", "answers"), [("putResponse", False), ("inline", False), ("counted", True)])
def test_an_operation_answers_where_its_output_has_content(element: str, answers: bool) -> None:
    assert operations_in(EMPTY % element.encode()) == (set(), {"{urn:orders}put"} if answers else set())


@pytest.mark.parametrize(
    "document", [b"", b"no XML", b"<definitions/>", b"<!DOCTYPE x [<!ENTITY a 'b'>]>" + WSDL, WSDL[:-5]]
)
def test_what_is_no_wsdl_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"not XML|not a WSDL"):
        parsed(document)
