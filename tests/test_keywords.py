"""The options as keywords of Python: their types are those of the settings, and a type checker sees a mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from msgspec.inspect import (
    BoolType,
    EnumType,
    FloatType,
    IntType,
    LiteralType,
    Metadata,
    StrType,
    Type,
    VarTupleType,
)
from msgspec.inspect import NoneType as Nothing
from msgspec.inspect import (
    UnionType as Either,
)

from wsrm_mq.config.keywords import Names, NodeKeywords, OptionKeywords, PartnerKeywords, Time
from wsrm_mq.config.settings import NODE_OPTIONS, OPTIONS, PARTNER_OPTIONS

SERVICE = """
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wsrm_mq import WSRMMiddleware
from wsrm_mq.asgi import WSRMASGIMiddleware


def service(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    return []


"""
GOOD = """
several = [1.0, 5]
WSRMMiddleware(service, Path("wsrm.db"), retain="P30D", retry=[1, "PT1M"], resend=several, one_way=frozenset(["put"]))
WSRMASGIMiddleware(service, paths=["/soap"], partners={"acme": {"path": "/acme", "ordered": False}}, max_held=None)
WSRMMiddleware.from_config(service, "wsrm-mq.toml", start=False, on_event=print)
"""
WRONG = {
    "WSRMMiddleware(service, max_hold=5)": 'Unexpected keyword argument "max_hold"',
    "WSRMASGIMiddleware(service, max_hold=5)": 'Unexpected keyword argument "max_hold"',
    "WSRMMiddleware(service, max_held='5')": 'Argument "max_held"',
    "WSRMMiddleware(service, paths='/soap')": 'Argument "paths"',
    "WSRMMiddleware(service, acknowledge='deliverd')": 'Argument "acknowledge"',
    "WSRMMiddleware(service, partners={'acme': {'pth': '/'}})": "Dict entry 0",
    "WSRMMiddleware.from_config(service, 'wsrm-mq.toml', authenticate=5)": 'Argument "authenticate"',
}


def of(shape: Type) -> set[Any]:
    """What Python may give for what an option may be."""
    match shape:
        case Metadata(type=inner):
            return of(inner)
        case Either(types=shapes):
            return {one for each in shapes for one in of(each)}
        case EnumType(cls=words):
            return {words, *(word.value for word in words)}
        case LiteralType(values=words):
            return set(words)
        case VarTupleType(item_type=item):
            return {"times"} if of(item) == {float, str} else {"names"}
        case FloatType():
            return {float, str}
    return {{BoolType: bool, IntType: int, StrType: str, Nothing: NoneType}[type(shape)]}


def parts(hint: Any) -> set[Any]:
    """A type, taken apart as ``of`` takes a shape."""
    if set(get_args(Names)) <= set(get_args(hint)):
        return {"names"}.union(*(parts(one) for one in set(get_args(hint)) - set(get_args(Names))))
    if get_origin(hint) in (Union, UnionType):
        return {part for one in get_args(hint) for part in parts(one)}
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    return {"times"} if get_args(hint) == (Time,) else {hint}


@pytest.mark.parametrize(
    ("keywords", "options"),
    [(OptionKeywords, OPTIONS), (PartnerKeywords, PARTNER_OPTIONS), (NodeKeywords, NODE_OPTIONS)],
    ids=["everybody", "partner", "node"],
)
def test_the_keywords_are_the_options_and_take_what_they_may_be(keywords: Any, options: Any) -> None:
    hints = {name: parts(hint) for name, hint in get_type_hints(keywords).items() if name not in ("partners", "nodes")}
    assert hints == {name: of(kind.shape) for name, kind in options.items() if name not in ("store", "app")}


def test_a_type_checker_sees_a_mistake_and_nothing_else(tmp_path: Path) -> None:
    text = SERVICE + GOOD + "\n".join(WRONG) + "\n"
    (tmp_path / "application.py").write_text(text)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "application.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    first = text[: text.index(next(iter(WRONG)))].count("\n") + 1
    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert len(errors) == len(WRONG), checked.stdout
    for number, (error, said) in enumerate(zip(errors, WRONG.values(), strict=True), first):
        assert error.startswith(f"application.py:{number}: error: {said}")
