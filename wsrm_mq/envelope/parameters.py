"""Reference parameters as stand-alone XML, as their sender wrote them.

They have to be echoed as header blocks later, in another envelope, so each carries the namespace declarations
it needs. The text is cut from the document instead of being written anew: a prefix inside a value keeps its
meaning.
"""

from __future__ import annotations

import re
from typing import Final

from wsrm_mq.envelope.outline import NAME_SEPARATOR
from wsrm_mq.envelope.spans import Document, Span, locate
from wsrm_mq.envelope.text import escape_attribute
from wsrm_mq.versions import ADDRESSING_VERSIONS, RM_OF_NAMESPACE, SOAP_VERSIONS

_WSSE: Final = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd"
_NOT_ECHOED: Final = frozenset(("", *SOAP_VERSIONS, *ADDRESSING_VERSIONS, *RM_OF_NAMESPACE, _WSSE))
"""A parameter in one of these would become a header block that its receiver takes for ours (§7)."""

PARAMETER_CONTAINERS: Final = frozenset(
    f"{ns}{NAME_SEPARATOR}{local}"
    for ns in ADDRESSING_VERSIONS
    for local in ("ReferenceParameters", "ReferenceProperties")
)
_OPENING: Final = re.compile(r"<[^\s/>]+")


def parameter_texts(document: bytes, charset: str | None) -> dict[int, str]:
    """The text of each reference parameter by the ordinal of its start tag, empty for one that is not echoed.

    ``document`` may break off behind the parameters. A parameter is missing if there was too much before it.
    """
    located = locate(document, charset, into_body=True)
    return {
        span.ordinal: "" if span.namespace in _NOT_ECHOED else _stand_alone(located, span)
        for span in located.spans
        if span.parent is not None and span.parent.name in PARAMETER_CONTAINERS and span.stop >= 0
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
