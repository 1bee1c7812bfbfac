"""A request that waits for its next try leaves at once where its program, or an operator, says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.source.conftest import Source
from tests.source.partner import THERE, Partner
from tests.source.test_sending import send
from wsrm_mq.errors import NotAllowed
from wsrm_mq.source.acts import act
from wsrm_mq.store.outside import run_once


def by_an_operator(source: Source, name: str = "resend") -> None:
    """As the command does it, in a process of its own."""
    run_once(source.path, partial(act, name=name, to=THERE, actor="ann", reason="they are back"), clock=source.clock)


BY = pytest.mark.parametrize("try_now", [Source.try_now, by_an_operator], ids=["the program", "an operator"])


@BY
@pytest.mark.parametrize("what", ["the sequence", "a request"])
def test_what_waits_for_a_host_that_is_away_leaves_now(
    source: Source, partner: Partner, try_now: Callable[[Source], None], what: str
) -> None:
    """For an hour: it has asked for that."""
    if what == "a request":
        send(source, "first")
        assert source.flush(5)
    said = len(partner.bodies)
    partner.says = lambda _received: partner.answered(503, **{"Retry-After": "3600"})
    send(source, "a")
    assert partner.within(lambda: len(partner.bodies) == said + 1)
    assert source.at_rest()
    partner.says = lambda _received: None
    try_now(source)
    assert source.flush(5)
    assert partner.texts()[-1] == "a"


@BY
def test_what_waits_to_be_acknowledged_leaves_now_and_so_does_each_that_has_failed(
    source: Source, partner: Partner, try_now: Callable[[Source], None]
) -> None:
    send(source, "first")
    assert source.flush(5)
    partner.says = lambda received: partner.answered(
        500 if received.sequence is not None and received.sequence.number == 2 else 202
    )
    send(source, "failed", "silent", "silent")
    assert partner.within(lambda: len(partner.places) == 4)
    assert source.at_rest()
    partner.says = lambda _received: None
    try_now(source)
    assert source.flush(5)
    assert sorted(number for _identifier, number in partner.places) == [1, 2, 2, 3, 3, 4, 4]


@BY
def test_what_an_operator_holds_stays(source: Source, partner: Partner, try_now: Callable[[Source], None]) -> None:
    partner.takes = lambda _received: False
    send(source, "a")
    assert partner.within(lambda: partner.places)
    assert source.at_rest()
    by_an_operator(source, "hold")
    if try_now is by_an_operator:
        with pytest.raises(NotAllowed, match="waits for its next try"):
            try_now(source)
    else:
        try_now(source)
    source.pass_time(60)
    assert not partner.within(lambda: len(partner.places) > 1, 0.3)
