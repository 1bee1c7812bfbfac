"""Requests are signed as they leave, each time anew: no key, password or signature is ever stored.

A signer is an object as zeep's ``wsse`` are: ``apply`` takes an envelope of lxml and the headers of HTTP, and answers
both. ``Signature`` is one that covers the headers of WS-RM and WS-Addressing too (WS-Security 1.1, X.509 Token
Profile).
"""

from __future__ import annotations

import base64
import hashlib
import threading
import traceback
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from lxml import etree

from wsrm_mq.errors import ConfigurationError, Unsigned
from wsrm_mq.store.clock import Clock, wall_clock
from wsrm_mq.versions import ADDRESSING_VERSIONS, RM_OF_NAMESPACE

_DS: Final = "http://www.w3.org/2000/09/xmldsig#"
_C14N: Final = "http://www.w3.org/2001/10/xml-exc-c14n#"
_WSS: Final = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-"
_WSSE, _WSU = f"{_WSS}wssecurity-secext-1.0.xsd", f"{_WSS}wssecurity-utility-1.0.xsd"
_ID: Final = f"{{{_WSU}}}Id"
SECURITY: Final = f"{{{_WSSE}}}Security"
_TOKEN: Final = {
    "ValueType": f"{_WSS}x509-token-profile-1.0#X509v3",
    "EncodingType": f"{_WSS}soap-message-security-1.0#Base64Binary",
}
_REFERENCE: Final = f"""<ds:Reference URI="#{{}}"><ds:Transforms><ds:Transform Algorithm="{_C14N}"/></ds:Transforms>\
<ds:DigestMethod Algorithm="http://www.w3.org/2001/04/xmlenc#sha256"/><ds:DigestValue>{{}}</ds:DigestValue>\
</ds:Reference>"""
_SIGNATURE: Final = f"""<ds:Signature xmlns:ds="{_DS}"><ds:SignedInfo>\
<ds:CanonicalizationMethod Algorithm="{_C14N}"/>\
<ds:SignatureMethod Algorithm="http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"/>{{}}</ds:SignedInfo>\
<ds:SignatureValue/><ds:KeyInfo><wsse:SecurityTokenReference xmlns:wsse="{_WSSE}">\
<wsse:Reference URI="#{{}}" ValueType="{_TOKEN["ValueType"]}"/></wsse:SecurityTokenReference></ds:KeyInfo>\
</ds:Signature>"""
_locks: Final[dict[int, threading.Lock]] = {}
"""The lock of each object that signs, by its ``id``. Several threads send, and it may keep elements of lxml, which are
in one tree at a time."""


class Signer(Protocol):
    """An object as zeep's ``wsse`` are."""

    def apply(self, envelope: Any, headers: dict[str, str]) -> tuple[Any, dict[str, str]]: ...

    def verify(self, envelope: Any) -> Any: ...


def signed(url: str, body: bytes, headers: Mapping[str, str], signer: Signer) -> tuple[bytes, dict[str, str]]:
    """A request as it leaves. A signer that raises has nothing sent: that is tried again, as a host is that is away.
    Its text is not told, as that may have a secret in it."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    envelope = etree.fromstring(body, parser)
    encoding: Any = envelope.getroottree().docinfo.encoding or "UTF-8"
    try:
        with ExitStack() as locked:
            objects = getattr(signer, "wsse_objects", (signer,))  # of a Compose of zeep's
            for key in sorted({*map(id, objects)}):
                locked.enter_context(_locks.setdefault(key, threading.Lock()))
            envelope, headers = signer.apply(envelope, dict(headers))
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        told = f"the signer raised {type(error).__name__} in {at.filename}, line {at.lineno}"
        raise Unsigned(f"{url}: {told}; nothing was sent") from None
    return etree.tostring(envelope, encoding=encoding, xml_declaration=True), dict(headers)


class Signature:
    """Signs Body, WS-RM and WS-Addressing headers, a Timestamp of now and what other tokens there are, by RSA and
    SHA-256. The certificate goes along as a BinarySecurityToken. Replies are not verified by it."""

    def __init__(
        self,
        key_file: str | Path,
        certfile: str | Path,
        password: str | None = None,
        *,
        valid_for: float = 300.0,
        clock: Clock = wall_clock,
    ) -> None:
        """``key_file`` and ``certfile`` are of PEM, ``password`` that of the key. ``valid_for``: seconds until the
        Timestamp expires."""
        try:
            from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
            from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
            from cryptography.x509 import load_pem_x509_certificate
        except ImportError as error:
            raise ConfigurationError("Signature signs by cryptography: install wsrm-mq[wsse].") from error
        try:
            secret = None if password is None else password.encode()
            key = load_pem_private_key(Path(key_file).read_bytes(), secret)
            certificate = load_pem_x509_certificate(Path(certfile).read_bytes())
        except (OSError, TypeError, ValueError) as error:  # its text names the file, or what is wrong with its PEM
            raise ConfigurationError(f"{key_file}, {certfile}: no key and certificate of PEM: {error}") from error
        if not isinstance(key, RSAPrivateKey) or key.public_key() != certificate.public_key():
            raise ConfigurationError(f"{key_file}: is not the RSA key of {certfile}.")
        self._key = key
        self._certificate = base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()
        self._valid_for = timedelta(seconds=valid_for)
        self._clock = clock

    def apply(self, envelope: Any, headers: dict[str, str]) -> tuple[Any, dict[str, str]]:
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        soap = etree.QName(envelope).namespace
        header, body = (envelope.find(f"{{{soap}}}{local}") for local in ("Header", "Body"))
        security = header.find(SECURITY)
        if security is None:
            security = etree.SubElement(header, SECURITY, nsmap={"wsse": _WSSE, "wsu": _WSU})
        now = datetime.fromtimestamp(self._clock() / 1000, UTC)
        stamp = etree.SubElement(security, f"{{{_WSU}}}Timestamp")
        for local, at in ("Created", now), ("Expires", now + self._valid_for):
            etree.SubElement(stamp, f"{{{_WSU}}}{local}").text = f"{at:%Y-%m-%dT%H:%M:%SZ}"
        token = etree.SubElement(security, f"{{{_WSSE}}}BinarySecurityToken", _TOKEN)
        token.text = self._certificate
        about = (*ADDRESSING_VERSIONS, *RM_OF_NAMESPACE)
        elements = header.iterchildren("*")  # not its comments
        parts = [body, *security.iterchildren("*"), *(one for one in elements if etree.QName(one).namespace in about)]
        references = (_REFERENCE.format(_id_of(part), _digest(part)) for part in parts)
        made = etree.fromstring(_SIGNATURE.format("".join(references), token.get(_ID)))
        proof = self._key.sign(_canonical(made[0]), PKCS1v15(), SHA256())
        made[1].text = base64.b64encode(proof).decode()
        security.append(made)
        return envelope, headers

    def verify(self, envelope: Any) -> Any:
        return envelope


def _id_of(part: Any) -> str:
    """It is given one, if it has none."""
    if part.get(_ID) is None:
        part.set(_ID, f"id-{uuid.uuid4()}")
    return str(part.get(_ID))


def _canonical(part: Any) -> bytes:
    return etree.tostring(part, method="c14n", exclusive=True)


def _digest(part: Any) -> str:
    return base64.b64encode(hashlib.sha256(_canonical(part)).digest()).decode()
