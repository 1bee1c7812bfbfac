"""The OpenAPI document of the API, made of the operations and their types."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final, get_args

import msgspec

from wsrm_mq.server.acts import Settle
from wsrm_mq.server.http.messages import Said, Told
from wsrm_mq.server.http.operation import Body, Operation
from wsrm_mq.server.http.problems import KIND, Problem

_REF: Final = "#/components/schemas/{name}"
_NAME: Final = re.compile(r"{(\w+)}")
_NAMES: Final = {
    "queue": "The name of a queue.",
    "topic": "A topic, or a pattern of topics.",
    "lane": "A name that the client has drawn for its outbox.",
    "key": "The number of a subscription.",
    "position": "The position of a message.",
    "trace": "The origin of a message: NODE/INCARNATION/POSITION.",
    "name": "The name of a durable subscription.",
    "bucket": "The first level of topics.",
}
_BYTES: Final = {"schema": {"type": "string", "format": "binary"}}
_BODIES: Final[dict[Any, tuple[str, ...]]] = {
    "message": ("*/*",),
    "messages": ("multipart/mixed",),
    "either": ("*/*", "multipart/mixed"),
    "acts": ("multipart/mixed",),
    "text": ("text/plain",),
}
DESCRIPTION: Final = """
A name in a path is one segment, percent-encoded. Times are seconds; times of day seconds since the epoch.
A message is a body with its Content-Type and a header `Message`: a JSON object in ASCII, of the type `Said` where a
client puts it, `Told` where it gets it. Several are `multipart/mixed`, a part a message with these headers. In a
transaction a part with the header `Settlement`, of the type `Settle`, and no body settles.
A request may name its session in the header `Session`. There a request that leases may have a number in `Request`, and
the next one, or `GET /session`, names in `Lost` those to which no answer has come, separated by commas.
"""


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The document, as JSON has it."""
    operations = tuple(operations)
    used = (kind for one in operations for given in (one.takes, one.gives) for kind in _each(given))
    types = dict.fromkeys(kind for kind in used if kind not in get_args(Body))
    found = [*types, Problem, Said, Told, Settle]
    schemas, components = msgspec.json.schema_components(found, ref_template=_REF)
    schema_of = dict(zip(found, schemas, strict=True))
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "The queue server of wsrm_mq",
            "version": version("wsrm-mq"),
            "description": DESCRIPTION.strip(),
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(one: Operation, schema_of: dict[Any, Any]) -> dict[str, Any]:
    of_node = "_of_node" if one.path.split("/")[1] == "journal" else ""
    found: dict[str, Any] = {
        "operationId": one.does.__name__ + of_node,
        "summary": " ".join((inspect.getdoc(one.does) or "").split()),
        "parameters": [*_path_parameters(one), *_query_parameters(one), *_headers(one)],
        "responses": _responses(one, schema_of),
    }
    if one.takes is not None:
        found["requestBody"] = {"content": _content(one.takes, schema_of)}
    return found


def _path_parameters(one: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "description": _NAMES[name], "schema": {"type": "string"}}
        for name in _NAME.findall(one.path)
    ]


def _query_parameters(one: Operation) -> list[dict[str, Any]]:
    if one.query is None:
        return []
    schema = msgspec.json.schema(one.query)["$defs"][one.query.__name__]
    return [
        {"name": name, "in": "query", "required": name in schema["required"], "schema": _plain(of)}
        for name, of in schema["properties"].items()
    ]


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is left out is none: ``null`` is no value of it."""
    kinds = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else schema


def _headers(one: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"name": "Session", "in": "header", "schema": {"type": "string"}}]
    if one.gives == "either":
        found.append({"name": "Request", "in": "header", "schema": {"type": "integer", "minimum": 0}})
    if one.gives == "either" or (one.method, one.path) == ("GET", "/session"):
        found.append({"name": "Lost", "in": "header", "schema": {"type": "string"}})
    if one.takes not in ("message", "either"):
        return found
    message = {
        "name": "Message",
        "in": "header",
        "content": {"application/json": {"schema": {"$ref": _REF.format(name="Said")}}},
    }
    return [*found, message]


def _responses(one: Operation, schema_of: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if one.gives is not None:
        answer: dict[str, Any] = {"description": "Done.", "content": _content(one.gives, schema_of)}
        if one.gives in ("message", "either"):
            answer["headers"] = {"Message": {"schema": {"type": "string"}, "description": "JSON of the type Told."}}
        found[str(one.status)] = answer
    if one.gives is None or one.may_be_empty:
        found["204"] = {"description": "Done; there is nothing to tell."}
    found["default"] = {"description": "A problem.", "content": {KIND: {"schema": schema_of[Problem]}}}
    return found


def _content(given: Any, schema_of: dict[Any, Any]) -> dict[str, Any]:
    bodies = _BODIES.get(given) if isinstance(given, str) else None
    if bodies:
        return dict.fromkeys(bodies, _BYTES)
    schemas = [schema_of[kind] for kind in _each(given)]
    return {"application/json": {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}}


def _each(given: Any) -> tuple[Any, ...]:
    """The types of a body; several are in a tuple."""
    return given if isinstance(given, tuple) else () if given is None else (given,)
