"""What is stored of a request, and so what the service sees of it, first time and replay alike."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, TWO_WAY, InProcess, until
from wsrm_mq.config import settings_from
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.kept_headers import KEPT_HEADERS, KeptHeaders

SECRET = "s3cr3t-value"
SENT = {
    "HTTP_X_API_KEY": SECRET,
    "HTTP_X_AUTH_TOKEN": SECRET,
    "HTTP_AUTHORIZATION": SECRET,
    "HTTP_COOKIE": SECRET,
    "HTTP_X_TENANT": "acme",
    "HTTP_USER_AGENT": "Apache-CXF/4.1",
    "HTTP_SOAPACTION": '""',
    "HTTP_TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "HTTP_X_FORWARDED_FOR": "192.0.2.7",
}
USUAL = {"REQUEST_METHOD": "POST", "PATH_INFO": "/orders", "HTTP_USER_AGENT": "CXF", "HTTP_HOST": "a"}


def heard(environ: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith("HTTP_") and name != "HTTP_HOST"}


@pytest.mark.parametrize("one_way", [True, False], ids=["one-way", "two-way"])
def test_a_secret_header_is_nowhere_and_the_service_sees_the_same_headers_first_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, one_way: bool
) -> None:
    seen: list[dict[str, str]] = []

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        seen.append(heard(environ))
        if len(seen) == 1:
            raise OSError("the first time it fails")
        start_response("202 Accepted", [])
        return []

    named = ("urn:example:orders/put_order",) if one_way else ()
    service = InProcess(tmp_path, app, one_way=named, keep_headers=["x-tenant"], retry=(0.01,), hold_wait=5)
    with caplog.at_level(logging.WARNING, "wsrm_mq"):
        identifier = service.create()
        for number in (1, 2):
            service.post(FACTORY.message(identifier, number, reply_to=None if one_way else TWO_WAY), **SENT)
        assert until(lambda: len(seen) == 3)
    service.middleware.close()
    kept = {name: value for name, value in SENT.items() if value != SECRET}
    assert seen == [kept] * 3
    assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.glob("store.db*") if file.is_file())
    told = [record.getMessage() for record in caplog.records if "header" in record.getMessage()]
    assert SECRET not in caplog.text
    for name in ("X-Api-Key", "X-Auth-Token", "Authorization", "Cookie"):
        assert sum(name in line for line in told) == 1, "each is named once"


def test_names_that_are_invented_take_no_memory_for_ever() -> None:
    told: list[str] = []
    kept = KeptHeaders(dropped=told.append)
    for number in range(5_000):
        assert kept.select({f"HTTP_X_{number}": "x", "PATH_INFO": "/"}) == (("PATH_INFO", "/"),)
    assert len(told) < 1_000


@pytest.mark.parametrize(
    "name", ["Authorization", "cookie", "Proxy-Authorization", "Transfer-Encoding", "two words", ""]
)
def test_keep_headers_may_not_name_what_is_never_stored(name: str) -> None:
    with pytest.raises(ConfigurationError, match="keep_headers"):
        settings_from({"keep_headers": [name]})


def test_the_page_on_configuration_lists_what_is_stored() -> None:
    text = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text()
    section = text.partition("## Request headers")[2].partition("\n## ")[0]
    assert all(f"`{name}`" in section for name in KEPT_HEADERS)
