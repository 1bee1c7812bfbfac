"""Writes docs/reference/http-api.md from the OpenAPI document: ``python docs/reference/http_api.py``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wsrm_mq.server.http.application import ALL
from wsrm_mq.server.http.openapi import document

PAGE = Path(__file__).parent / "http-api.md"
HEAD = """# The HTTP API of the queue server

The server of queues answers `GET /openapi.json` with the document of which this page is made. Its application is
`wsrm_mq.server.queue_application(store)`, for any ASGI server; it is installed by `pip install 'wsrm-mq[server]'`.

Every request has `Authorization: Bearer TOKEN`; `wsrm-mq token add` makes one. A principal that has no right to a
queue gets the answer of one that is not there. A name in a path is one segment, percent-encoded: the queue `db/add`
is `/queues/db%2Fadd`; behind nginx `proxy_pass` has no path, so that it stays so. Times are seconds; times of day
seconds since the epoch.

**A message** is a body, as it is, with its Content-Type, and a header `Message`: JSON in ASCII, which is
[Said](#said) where a client puts it and [Told](#told) where it gets it. Several are `multipart/mixed`, a part a
message with these headers. In a transaction a part with the header `Settlement` ([Settle](#settle)) and no body
settles. A body is sent as it is: a compressed one is refused.

**A session** is the presence of a client: a request names it in the header `Session`, and renews it. When it ends, or
was silent for its `timeout`, its leases return at once. An end that the client asks for is no failure of a message. A
client that fell silent has died, as a consumer's process does that is killed: of each queue and subscription the first
message that it had is taken for the one that it was at, and the third such death in a row is a failure of that message,
for its queue's `retry` and `max_failures`. What names no session is of one of the principal, whose leases end by time.

**An answer may be lost** on its way, with the messages that it leased. In a session a request that leases has a number
of its own in the header `Request`, and the next one, or `GET /session`, names in `Lost` those to which no answer came,
separated by commas: what they leased goes back at once, uncounted and in its place, before anything else is leased.

**Every error** is `application/problem+json` ([Problem](#problem)): `code` is the class of the error, `next_step`
what to do. With 429 and 503 nothing was done, and `Retry-After` says when to send it again.
"""


def kind(schema: dict[str, Any]) -> str:
    """A type in words."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(kind, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def body(content: dict[str, Any]) -> str:
    found = {"*/*": "a message", "multipart/mixed": "messages", "text/plain": "text"}
    return " or ".join(found.get(name) or kind(of["schema"]) for name, of in content.items())


def operations(paths: dict[str, Any]) -> Iterator[str]:
    yield "| request | | parameters | body | answer |\n|---|---|---|---|---|"
    for path, methods in paths.items():
        for method, one in methods.items():
            parameters = ", ".join(f"`{of['name']}`" for of in one["parameters"] if of["in"] == "query")
            takes = body(one["requestBody"]["content"]) if "requestBody" in one else ""
            answers = [
                f"{status} {body(of['content'])}" if "content" in of else status
                for status, of in one["responses"].items()
                if status != "default"
            ]
            yield f"| `{method.upper()} {path}` | {one['summary']} | {parameters} | {takes} | {'; '.join(answers)} |"


def types(schemas: dict[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        yield f"\n### {name}\n"
        if "description" in schema:
            yield " ".join(schema["description"].replace("``", "`").split()) + "\n"
        if "enum" in schema:
            yield kind(schema)
            continue
        yield "| field | type | default |\n|---|---|---|"
        for field, of in schema["properties"].items():
            default = (
                "" if field in schema["required"] else f"`{json.dumps(of['default'])}`" if "default" in of else "absent"
            )
            yield f"| `{field}` | {kind(of)} | {default} |"


def page() -> str:
    made = document(ALL)
    lines = [HEAD, "## Operations\n", *operations(made["paths"]), "\n## Types", *types(made["components"]["schemas"])]
    return "\n".join(lines).replace("``", "`") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
