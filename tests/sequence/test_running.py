from __future__ import annotations

from itertools import product

import pytest

from wsrm_mq.sequence.running import ANY, DELIVERY, ENTRY, DeliveryState, Row, decide, delivery_state, is_paused

NOW = 1_000
IDLE = {
    "on_hold_since": None,
    "blocked": None,
    "owner": None,
    "cursor": 5,
    "limit": 5,
    "discard_from": None,
    "retry_from": None,
    "retry_at": None,
    "discarding": False,
    "held": 0,
    "now": NOW,
}


@pytest.mark.parametrize("table", [DELIVERY, ENTRY], ids=["delivery", "entry"])
def test_one_row_fits_whatever_the_facts_are(table: tuple[tuple[object, Row], ...]) -> None:
    (width,) = {len(row) for _result, row in table}
    assert set(decide(table)) == set(product((False, True), repeat=width))


@pytest.mark.parametrize("rows", [((True,),), ((True,), (ANY,))], ids=["none", "two"])
def test_a_table_in_which_none_or_several_fit_is_refused(rows: tuple[Row, ...]) -> None:
    with pytest.raises(ValueError, match="unpack"):
        decide(tuple(enumerate(rows)))


def test_every_state_has_its_row() -> None:
    assert [state for state, _row in DELIVERY] == list(DeliveryState)


@pytest.mark.parametrize(
    ("columns", "state"),
    [
        ({}, DeliveryState.IDLE),
        ({"held": 1}, DeliveryState.WAITING),
        ({"held": 1, "discard_from": 5, "discarding": True}, DeliveryState.DISCARDING),
        ({"cursor": 4, "discard_from": 4, "discarding": True}, DeliveryState.DISCARDING),
        ({"cursor": 3, "discard_from": 4, "discarding": True}, DeliveryState.READY),
        ({"cursor": 4}, DeliveryState.READY),
        ({"cursor": 4, "retry_from": 900, "retry_at": 1_001}, DeliveryState.RETRYING),
        ({"cursor": 4, "retry_from": 900, "retry_at": 1_000}, DeliveryState.READY),
        ({"cursor": 4, "retry_from": 900, "retry_at": 1_001, "owner": 1}, DeliveryState.RUNNING),
        ({"owner": 1}, DeliveryState.RUNNING),
        ({"cursor": 4, "blocked": 17}, DeliveryState.BLOCKED),
        ({"on_hold_since": 900}, DeliveryState.HELD),
        ({"cursor": 4, "on_hold_since": 900}, DeliveryState.HELD),
        ({"cursor": 4, "on_hold_since": 900, "blocked": 17, "owner": 1}, DeliveryState.HELD),
    ],
)
def test_the_columns_of_a_sequence_say_what_its_delivery_does(columns: dict[str, int], state: DeliveryState) -> None:
    assert delivery_state(**IDLE | columns) is state  # type: ignore[arg-type]


def test_a_wait_that_begins_in_the_future_is_over() -> None:
    assert is_paused(1_000, 1_500, 1_000)
    assert not is_paused(1_001, 1_500, 1_000), "the clock was stepped back"
    assert is_paused(None, 1_500, 1_000)
