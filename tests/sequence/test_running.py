from __future__ import annotations

from itertools import product

import pytest

from wsrm_mq.sequence.running import ANY, DELIVERY, ENTRY, DeliveryState, Row, decide, is_paused


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


def test_a_wait_that_begins_in_the_future_is_over() -> None:
    assert is_paused(1_000, 1_500, 1_000)
    assert not is_paused(1_001, 1_500, 1_000), "the clock was stepped back"
    assert is_paused(None, 1_500, 1_000)
