"""Where a plan may be delivered to, and what arrives there."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.replay.build import House, once_only, read
from tests.support.target import Target, serving
from wsrm_mq.replay import to_address

FAULT = b"""<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><s:Fault>
<faultcode>s:Client</faultcode><faultstring>no such customer</faultstring></s:Fault></s:Body></s:Envelope>"""


@pytest.fixture
def target() -> Iterator[Target]:
    with serving(Target()) as made:
        yield made


def test_a_plain_post_arrives_without_the_headers_of_rm_under_the_key_of_the_message(
    house: House, target: Target
) -> None:
    identifier = house.sequence(1, 2)
    house.run(house.plan("queue:/orders"), call=to_address(f"{target.url}/orders?a=1", once_only, [target.url]))
    assert target.keys == [f"{identifier};1", f"{identifier};2"]
    fields, body = target.requests[0]
    assert b"Sequence" not in body
    assert b"urn:example:orders" in body
    assert fields["Content-Type"].startswith(("text/xml", "application/soap+xml"))
    assert "Authorization" not in fields


def test_the_key_of_a_new_message_has_the_plan(house: House, target: Target) -> None:
    identifier = house.sequence(1)
    file = house.plan("queue:/orders", as_new=True)
    house.run(file, call=to_address(target.url, once_only, [target.url]))
    assert target.keys == [f"{identifier};1;{read(file)[0].id}"]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, FAULT, "no such customer"),
        (200, FAULT, "no such customer"),
        (503, b"full", "503"),
        (302, b"", "no SOAP client follows a redirect"),
        (404, b"", "404"),
    ],
)
def test_what_is_no_success_without_a_fault_has_not_taken_the_message(
    house: House, target: Target, status: int, body: bytes, said: str
) -> None:
    house.sequence(1, 2)
    target.answers[1] = (status, body)
    file = house.plan("queue:/orders")
    call = to_address(target.url, once_only, [target.url])
    progress = house.run(file, call=call)
    assert len(target.requests) == 1
    assert said in (progress.error or "")
    house.run(file, call=call)
    assert [key[-2:] for key in target.keys] == [";1", ";1", ";2"]
    assert house.state_of(file) == "done"


@pytest.mark.parametrize(("answer", "is_taken"), [(b"<done/>", True), (FAULT, False)])
def test_an_answer_may_be_compressed(house: House, target: Target, answer: bytes, is_taken: bool) -> None:
    target.compresses = True
    target.answers[1] = (200, answer)
    house.sequence(1)
    progress = house.run(house.plan("queue:/orders"), call=to_address(target.url, once_only, [target.url]))
    assert (progress.error is None) == is_taken
    assert is_taken or "no such customer" in (progress.error or "")


def test_a_target_whose_answer_drips_is_left(house: House, target: Target) -> None:
    """Its bytes come sooner than a connection's time-out, and it would hold the run for ever."""
    house.sequence(1)
    target.answers[1] = (200, b" " * 600)
    target.drips = True
    begun = time.monotonic()
    progress = house.run(house.plan("queue:/orders"), call=to_address(target.url, once_only, [target.url], seconds=0.5))
    assert progress.error is not None
    assert "its answer was not over after 0.5 s" in progress.error
    assert time.monotonic() - begun < 20


def test_a_target_that_is_gone_is_told_in_a_line(house: House, target: Target) -> None:
    house.sequence(1)
    call = to_address("http://127.0.0.1:9/orders", once_only, ["http://127.0.0.1:9"])
    progress = house.run(house.plan("queue:/orders"), call=call)
    assert progress.error is not None
    assert "127.0.0.1:9" in progress.error
    assert "Traceback" not in progress.error
    assert "object at" not in progress.error
