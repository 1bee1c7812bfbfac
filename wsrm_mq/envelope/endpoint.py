"""Endpoint references: their addresses, and their parameters as stand-alone XML text.

The parameters have to be echoed as header blocks later, in another envelope, so each carries the namespace declarations
it needs. The text is cut from the document instead of being written anew: a prefix inside a value keeps its meaning.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree.ElementTree import Element

from wsrm_mq.envelope.lexical import is_absolute_uri, simple_text
from wsrm_mq.envelope.limits import Limits
from wsrm_mq.envelope.outline import NAME_SEPARATOR, Outline
from wsrm_mq.envelope.spans import Document, Span, locate
from wsrm_mq.envelope.text import escape_attribute
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.versions import ADDRESSING_VERSIONS, RM_OF_NAMESPACE, SOAP_VERSIONS, AddressingVersion

_ADDRESS: Final = {f"{ns}{NAME_SEPARATOR}Address": version for ns, version in ADDRESSING_VERSIONS.items()}
_WSSE: Final = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd"
_NOT_ECHOED: Final = frozenset(("", *SOAP_VERSIONS, *ADDRESSING_VERSIONS, *RM_OF_NAMESPACE, _WSSE))
"""A parameter in one of these would become a header block that its receiver takes for ours (§7)."""
_CONTAINERS: Final = frozenset(
    f"{ns}{NAME_SEPARATOR}{local}"
    for ns in ADDRESSING_VERSIONS
    for local in ("ReferenceParameters", "ReferenceProperties")
)
_OPENING: Final = re.compile(r"<[^\s/>]+")


def read_endpoint(
    element: Element, addressing: AddressingVersion, outline: Outline, charset: str | None, limits: Limits
) -> EndpointReference:
    """Read an endpoint reference. Raises ``ValueError`` with the code of WS-Addressing 1.0 for its error (SOAP binding
    §6.4.1)."""
    address: str | None = None
    parameters: list[Element] = []
    for child in element:
        version = _ADDRESS.get(child.tag)
        if version is not None:
            if address is not None or version is not addressing:
                raise ValueError("InvalidCardinality" if address is not None else "InvalidEPR")
            address = simple_text(child)
        elif child.tag in _CONTAINERS:
            parameters.extend(child)
    if address is None:
        raise ValueError("MissingAddressInEPR")
    if not is_absolute_uri(address):
        raise ValueError("InvalidAddress")
    if not parameters or outline.root is None:
        return EndpointReference(address)
    texts = _parameter_texts(b"".join(outline.read), charset)
    ordinals = {e: ordinal for ordinal, e in enumerate(outline.root.iter(), 1)}
    kept = [texts.get(ordinals[e]) for e in parameters]
    if None in kept or sum(len(text or "") for text in kept) > limits.parameter_bytes:
        raise ValueError("InvalidEPR")
    return EndpointReference(address, tuple(filter(None, kept)))


def _parameter_texts(document: bytes, charset: str | None) -> dict[int, str]:
    """The text of each reference parameter by the ordinal of its start tag, empty for one that is not echoed.

    ``document`` may break off behind the parameters. A parameter is missing if there was too much before it.
    """
    located = locate(document, charset, into_body=True)
    return {
        span.ordinal: "" if span.namespace in _NOT_ECHOED else _stand_alone(located, span)
        for span in located.spans
        if span.parent is not None and span.parent.name in _CONTAINERS and span.stop >= 0
    }


def _stand_alone(document: Document, span: Span) -> str:
    text = document.text(span.start, span.stop)
    opening = _OPENING.match(text)
    cut = opening.end() if opening else 0
    declarations = "".join(
        f' xmlns{":" if prefix else ""}{prefix}="{escape_attribute(uri)}"'
        for prefix, uri in span.outer.items()
        if prefix not in span.own and (not prefix or f"{prefix}:" in text)
    )
    return text[:cut] + declarations + text[cut:]
