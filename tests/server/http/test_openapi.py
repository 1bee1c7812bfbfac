"""The OpenAPI document, and the page that is made of it."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path
from typing import Any

from tests.server.http.conftest import Http, Serve
from wsrm_mq.server.http.application import ALL
from wsrm_mq.server.http.openapi import document

DOCS = Path(__file__).parents[3] / "docs" / "reference"


def test_the_page_is_made_of_the_document() -> None:
    made = runpy.run_path(str(DOCS / "http_api.py"))["page"]()
    assert (DOCS / "http-api.md").read_text() == made, "python docs/reference/http_api.py"


def test_any_client_may_read_the_document(serve: Serve) -> None:
    answer = serve().http(None)("GET", "/openapi.json")
    assert (answer.status, answer.json()["openapi"]) == (200, "3.1.0")


def test_all_that_it_names_is_in_it() -> None:
    made = document(ALL)
    assert Counter(one["operationId"] for of in made["paths"].values() for one in of.values()).most_common(1)[0][1] == 1

    def refs(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"].rsplit("/", 1)[1]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*map(refs, value.values()))
        return set().union(*map(refs, value)) if isinstance(value, list | tuple) else set()

    assert refs(made) <= made["components"]["schemas"].keys()


def test_every_operation_answers_as_it_is_described(http: Http) -> None:
    """Each is asked for nothing in particular: it answers what the document names, or a problem of the request."""
    for operation in ALL:
        path = operation.path
        for name in ("queue", "topic", "lane", "name", "bucket"):
            path = path.replace(f"{{{name}}}", "some")
        answer = http(operation.method, path.replace("{key}", "1").replace("{position}", "1"))
        assert answer.status in (200, 201, 204, 400, 404, 409), (operation.path, answer)
        is_problem = answer.headers.get("content-type") == "application/problem+json"
        assert is_problem is (answer.status >= 400)
