"""What is told of messages that are in no sequence."""

from __future__ import annotations

import pytest

from tests.queue.build import Instance
from tests.queue.test_loose import claim_of, failed, take
from wsrm_mq.errors import QueryError
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.store import published as views
from wsrm_mq.views import reading
from wsrm_mq.views.failures import failures
from wsrm_mq.views.naming import refuse_unknown
from wsrm_mq.views.overview import overview
from wsrm_mq.views.query import parse


def test_they_count_as_what_a_queue_has_to_deliver_and_the_oldest_says_since_when(one: Instance) -> None:
    at = one.clock()
    held = claim_of(take(one))
    one.clock.advance(5_000)
    take(one)
    waiting = overview(one.db, one.clock()).waiting["/orders"]
    assert (waiting.held, waiting.ready, waiting.oldest) == (0, 2, at)
    failed(one, held, QueuePolicy(retry=()))
    assert overview(one.db, one.clock()).waiting["/orders"].ready == 1


def test_they_are_found_by_their_partner_and_by_the_name_that_the_service_knows(one: Instance) -> None:
    first, second = (take(one) for _ in range(2))
    assert first.given is not None
    found = reading.messages(one.db, parse("partner:acme"))
    assert [message.position for message in found] == [first.position, second.position]
    named = reading.messages(one.db, parse(first.given.identifier.removeprefix("urn:uuid:")))
    assert [message.position for message in named] == [first.position]
    with pytest.raises(QueryError, match="did you mean acme"):
        refuse_unknown(one.db, parse("partner:acne"), views.messages)


def test_their_failures_name_the_partner(one: Instance) -> None:
    failed(one, claim_of(take(one)))
    (failure,) = failures(one.db, parse("")).groups
    assert failure.partners == ("acme",)
