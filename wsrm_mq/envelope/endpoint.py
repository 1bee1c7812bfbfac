"""Endpoint references: their addresses, and their parameters as stand-alone XML text."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element

from wsrm_mq.envelope.lexical import is_absolute_uri, simple_text
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.outline import NAME_SEPARATOR, Outline
from wsrm_mq.envelope.parameters import PARAMETER_CONTAINERS, parameter_texts
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.versions import ADDRESSING_VERSIONS, AddressingVersion

_ADDRESS: Final = {f"{ns}{NAME_SEPARATOR}Address": version for ns, version in ADDRESSING_VERSIONS.items()}


def read_endpoint(
    element: Element, addressing: AddressingVersion, outline: Outline, charset: str | None, limits: Limits
) -> EndpointReference:
    """Raises ``ValueError`` with the WS-Addressing 1.0 code of what is wrong (SOAP binding §6.4.1)."""
    address: str | None = None
    parameters: list[Element] = []
    for child in element:
        version = _ADDRESS.get(child.tag)
        if version is not None:
            if address is not None or version is not addressing:
                raise ValueError("InvalidCardinality" if address is not None else "InvalidEPR")
            address = simple_text(child)
        elif child.tag in PARAMETER_CONTAINERS:
            parameters.extend(child)
    if address is None:
        raise ValueError("MissingAddressInEPR")
    if not is_absolute_uri(address):
        raise ValueError("InvalidAddress")
    if not parameters or outline.root is None:
        return EndpointReference(address)
    texts = parameter_texts(b"".join(outline.read), charset)
    ordinals = {e: ordinal for ordinal, e in enumerate(outline.root.iter(), 1)}
    kept = [texts.get(ordinals[e]) for e in parameters]
    if None in kept or sum(len(text or "") for text in kept) > limits.parameter_bytes:
        raise ValueError("InvalidEPR")
    return EndpointReference(address, tuple(filter(None, kept)))
