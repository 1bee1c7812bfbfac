"""Content-Type: media type, parameters, and what they say about the envelope."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from wsrm_mq.versions import SOAPVersion

_PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;]*))')
_ESCAPED = re.compile(r"\\(.)")


class ContentType(NamedTuple):
    """``media_type`` and the names of ``parameters`` are in lower case; values are as sent."""

    media_type: str
    parameters: Mapping[str, str]
    is_multipart: bool

    @property
    def charset(self) -> str | None:
        """The charset under its canonical name, ``None`` without one or with an unknown one."""
        try:
            return codecs.lookup(self.parameters["charset"].strip()).name
        except (KeyError, LookupError, ValueError):
            return None


def content_type_of(fields: Iterable[tuple[str, str]]) -> str:
    """The Content-Type among the header fields of an HTTP message; empty without one."""
    return next((value for name, value in fields if name.lower() == "content-type"), "")


@lru_cache(maxsize=256)
def parse_content_type(value: str) -> ContentType:
    """Reads a Content-Type field value; anything at all gives some answer, an empty one ``("", {})``."""
    media_type, _, _ = value.partition(";")
    parameters: dict[str, str] = {}
    for name, quoted, token in _PARAMETER.findall(value):
        parameters.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) if quoted else token.strip())
    media_type = media_type.strip().lower()
    return ContentType(media_type, parameters, media_type == "multipart/related")


def soap_version_of(content_type: str) -> SOAPVersion:
    """The SOAP version to answer in while the envelope itself is unreadable."""
    content = parse_content_type(content_type)
    declared = (content.media_type, content.parameters.get("type", ""), content.parameters.get("start-info", ""))
    return SOAPVersion.SOAP_1_2 if any("soap+xml" in d for d in declared) else SOAPVersion.SOAP_1_1
