"""What went wrong inside the service: an operator sees what was raised and where, and has it delivered after the
repair."""

from __future__ import annotations

import re

from tests.stories.conftest import NOTHING, Operator, Serve, done, send, until_shown
from tests.support.orders import OrderSender

TWICE = "client-fault=1"
"""The service does not know the order yet; after its repair it does."""


def test_two_messages_that_were_acknowledged_answered_with_a_fault_and_lost(operator: Operator, serve: Serve) -> None:
    """status, check and explain said OK."""
    server = serve()
    sender = OrderSender(server)
    for number in (1, 2):
        assert sender.send(number, TWICE).reply.ack.ranges == ((1, number),)
    shown = until_shown(operator, "2 messages of /orders, taken in the last 24 h, the service answered with a fault")
    failure = operator.follow(shown, "failure show")
    assert "no such order" in failure
    assert re.search(r"^place +\S+/orders\.py:\d+ client_fault$", failure, re.MULTILINE)
    assert server.rows("select n from effects") == []
    operator.follow(failure, "replay plan")
    operator.type("wsrm-mq replay run plan.json")
    assert done(server, 1, 2)
    assert len(operator.typed) == 4, "status, and three"
    assert NOTHING in operator.status()


def test_what_a_spyne_operation_has_raised(operator: Operator, serve: Serve) -> None:
    """For Spyne the stored cause was always "Internal Error"."""
    server = serve(retry=[])
    send(server, 1, 2, text="fail=1")
    shown = until_shown(operator, ": blocked. Number 2 stopped the sequence")
    assert "raised OSError: the operation fails, as it was told to" in " ".join(shown.split())
    listed = operator.type("wsrm-mq failure list")
    assert re.search(r"\tOSError\t\S+put_order\t\S+/orders\.py:\d+ fail\t", listed)
    failure = operator.type("wsrm-mq failure show exception:OSError")
    assert 'raise OSError("the operation fails, as it was told to")' in failure
    operator.follow(failure, "message retry")
    assert done(server, 1, 2)
    assert NOTHING in until_shown(operator, NOTHING)


def test_what_is_put_aside_for_a_fault_is_redriven_after_the_repair(operator: Operator, serve: Serve) -> None:
    server = serve(on_fault="dead_letter")
    sender = OrderSender(server)
    for number, text in ((1, TWICE), (2, "")):
        assert sender.send(number, text).reply.ack.ranges == ((1, number),)
    assert done(server, 2), "its sequence goes on"
    shown = until_shown(operator, "1 dead letter of /orders that no operator has confirmed.")
    assert "answered with a fault" not in shown, "it alarms once, as a dead letter"
    failure = operator.type("wsrm-mq failure show reason:answered_with_fault")
    operator.follow(failure, "dead-letter redrive")
    assert done(server, 2, 1)
    assert NOTHING in until_shown(operator, NOTHING)
