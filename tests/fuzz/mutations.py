"""A case with some of what it is made of changed: elements, text, bytes, and what HTTP says of them."""

from __future__ import annotations

import gzip
import random
from typing import Final

from lxml import etree

from tests.fuzz.messages import DIALECTS, Case
from wsrm_mq.versions import MAKE_CONNECTION

NAMESPACES: Final = sorted(
    {uri for speak in DIALECTS for uri in (speak.rm.namespace, speak.addressing.namespace, speak.soap.namespace)}
    | {MAKE_CONNECTION.namespace, "urn:example:own"}
)
TEXTS: Final = [
    *("", " ", "0", "1", "-1", "2", "3", " 7 ", "+8", "9" * 30, str(2**63), str(2**63 - 1), "1e3"),
    *("urn:x", "PT0S", "P1D", "-P1D", "x" * 3_000, "\u00fc\u2028", "true", "NoDiscard"),
    *("http://www.w3.org/2005/08/addressing/none", f"{MAKE_CONNECTION.anonymous}one", MAKE_CONNECTION.anonymous),
    *("http://127.0.0.1:1/acks", "wsrm:UnknownSequence", "wsmc:MissingSelection", "a:b:c", "&amp;]]>"),
]
TYPES: Final = [
    *("text/xml", "application/soap+xml", "text/xml; charset=utf-16", "application/soap+xml; charset=latin-1", ""),
    *("multipart/related", "application/json", "application/soap+msbin1"),
    'multipart/related; boundary=edge; type="application/xop+xml"',
]


def _drop(rng: random.Random, element: etree._Element) -> None:
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)


def _double(rng: random.Random, element: etree._Element) -> None:
    parent = element.getparent()
    if parent is not None:
        parent.insert(rng.randrange(len(parent) + 1), etree.fromstring(etree.tostring(element, with_tail=False)))


def _reorder(rng: random.Random, element: etree._Element) -> None:
    children = list(element)
    rng.shuffle(children)
    element[:] = children


def _nest(rng: random.Random, element: etree._Element) -> None:
    element.append(etree.fromstring(etree.tostring(element, with_tail=False)))


def _write(rng: random.Random, element: etree._Element) -> None:
    element.text = rng.choice(TEXTS)


def _rename(rng: random.Random, element: etree._Element) -> None:
    name = etree.QName(element)
    element.tag = (
        f"{{{rng.choice([*NAMESPACES, name.namespace or 'urn:x'])}}}{rng.choice([name.localname, 'Nonsense'])}"
    )


def _mark(rng: random.Random, element: etree._Element) -> None:
    soap = etree.QName(element.getroottree().getroot()).namespace
    element.set(f"{{{soap}}}{rng.choice(['mustUnderstand', 'role', 'actor'])}", rng.choice(["1", "0", "true", "urn:x"]))


_OF_TREE: Final = (_drop, _double, _reorder, _nest, _write, _write, _rename, _mark)


def _cut(rng: random.Random, case: Case) -> Case:
    return case._replace(body=case.body[: rng.randrange(len(case.body) + 1)])


def _flip(rng: random.Random, case: Case) -> Case:
    body = bytearray(case.body or b"x")
    for _ in range(rng.randrange(1, 4)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return case._replace(body=bytes(body))


def _in_parts(rng: random.Random, case: Case) -> Case:
    end = rng.choice([b"\r\n", b"\n"])
    head = end.join((b"--edge", b"Content-Type: " + case.content_type.encode(), b"", b""))
    closing = rng.choice([b"--", b"--", b"", b"--x"])
    body = head + case.body + end + b"--edge" + end * 2 + b"\x89PNG" + end + b"--edge" + closing + end
    return case._replace(body=body, content_type='multipart/related; boundary=edge; type="application/xop+xml"')


def _compressed(rng: random.Random, case: Case) -> Case:
    packed = gzip.compress(case.body, mtime=0)
    return case._replace(body=packed, encoding=rng.choice(["gzip", "gzip", "x-gzip", "br", ""]))


def _otherwise(rng: random.Random, case: Case) -> Case:
    return case._replace(content_type=rng.choice(TYPES), method=rng.choice(["POST", "POST", "PUT", "GET"]))


_OF_BYTES: Final = (_cut, _flip, _in_parts, _compressed, _otherwise)


def mutated(rng: random.Random, case: Case) -> Case:
    """``case`` with up to four changes of its tree, and sometimes of its bytes."""
    root = etree.fromstring(case.body)
    for _ in range(rng.choice([0, 0, 1, 1, 1, 2, 4])):
        elements = list(root.iter("*"))
        rng.choice(_OF_TREE)(rng, rng.choice(elements))
    case = case._replace(body=etree.tostring(root))
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
        case = rng.choice(_OF_BYTES)(rng, case)
    return case
