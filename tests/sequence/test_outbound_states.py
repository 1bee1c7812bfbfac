from __future__ import annotations

import pytest

from wsrm_mq.sequence.outbound_states import (
    OUTBOUND_ENDED,
    OUTBOUND_TRANSITIONS,
    OutboundAct,
    OutboundCell,
    OutboundState,
    OutboundTrigger,
)
from wsrm_mq.versions import WSRM_1_0, WSRM_1_1, RMVersion

VERSIONS = pytest.mark.parametrize("rm", [WSRM_1_0, WSRM_1_1], ids=["rm10", "rm11"])
MESSAGES = (OutboundTrigger.MESSAGE, OutboundTrigger.MESSAGE_BEYOND_LAST)


def cells(rm: RMVersion) -> dict[tuple[OutboundState, OutboundTrigger], OutboundCell]:
    table = OUTBOUND_TRANSITIONS[rm.label]
    return {(state, trigger): cell for state, row in table.items() for trigger, cell in row.items()}


@VERSIONS
def test_every_state_has_an_answer_to_every_event(rm: RMVersion) -> None:
    assert set(cells(rm)) == {(state, trigger) for state in OutboundState for trigger in OutboundTrigger}


@VERSIONS
def test_no_event_leads_back(rm: RMVersion) -> None:
    order = list(OutboundState)
    assert not [place for place, cell in cells(rm).items() if order.index(cell.state) < order.index(place[0])]
    assert not [place for place, cell in cells(rm).items() if place[0] in OUTBOUND_ENDED and cell.state != place[0]]


@VERSIONS
@pytest.mark.spec("S-SND-008", "S-RET-013")
def test_a_number_is_given_only_before_the_sequence_takes_no_more_and_below_its_last(rm: RMVersion) -> None:
    numbered = {place for place, cell in cells(rm).items() if cell.act is OutboundAct.NUMBER}
    giving = {OutboundState.CREATING, OutboundState.CREATED}
    assert numbered == {(state, OutboundTrigger.MESSAGE) for state in giving}
    assert {cell.act for (_, trigger), cell in cells(rm).items() if trigger in MESSAGES} == {
        OutboundAct.NUMBER,
        OutboundAct.REFUSE,
    }


def test_1_0_knows_no_close_and_no_way_to_wait_for_one() -> None:
    reached = {OutboundState.CREATING}
    for _ in OutboundState:
        reached |= {cell.state for (state, _), cell in cells(WSRM_1_0).items() if state in reached}
    assert not reached & {OutboundState.CLOSING, OutboundState.TERMINATING}
    assert OutboundAct.CLOSE not in {cell.act for cell in cells(WSRM_1_0).values()}


@VERSIONS
@pytest.mark.spec("S-ACK-010")
def test_an_ended_sequence_drops_what_is_said_of_it(rm: RMVersion) -> None:
    confirmed = {OutboundTrigger.CLOSED_THERE, OutboundTrigger.TERMINATED_THERE, *MESSAGES}
    for state in OUTBOUND_ENDED:
        row = OUTBOUND_TRANSITIONS[rm.label][state]
        assert {cell.act for trigger, cell in row.items() if trigger not in confirmed} == {OutboundAct.IGNORE}


@VERSIONS
@pytest.mark.spec("S-SND-007")
def test_nothing_but_its_destination_opens_a_sequence(rm: RMVersion) -> None:
    opened = {place for place, cell in cells(rm).items() if cell.act is OutboundAct.OPEN}
    assert opened == {(OutboundState.CREATING, OutboundTrigger.CREATED_THERE)}
    row = OUTBOUND_TRANSITIONS[rm.label][OutboundState.CREATING]
    assert {cell.act for cell in row.values()}.isdisjoint((OutboundAct.TAKE, OutboundAct.TERMINATE, OutboundAct.CLOSE))
