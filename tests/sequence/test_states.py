from __future__ import annotations

import pytest

from wsrm_mq.sequence import faults
from wsrm_mq.sequence.states import ENDED, TRANSITIONS, Act, Cell, State, Trigger
from wsrm_mq.versions import WSRM_1_0, WSRM_1_1, RMVersion

VERSIONS = pytest.mark.parametrize("rm", [WSRM_1_0, WSRM_1_1], ids=["rm10", "rm11"])


def cells(rm: RMVersion) -> dict[tuple[State, Trigger], Cell]:
    return {(state, event): cell for state, row in TRANSITIONS[rm.label].items() for event, cell in row.items()}


@VERSIONS
def test_every_state_has_an_answer_to_every_event(rm: RMVersion) -> None:
    assert set(cells(rm)) == {(state, event) for state in State for event in Trigger}


def test_there_is_one_table_for_each_version() -> None:
    assert set(TRANSITIONS) == {WSRM_1_0.label, WSRM_1_1.label}


@VERSIONS
@pytest.mark.spec("D-LST-009")
def test_no_version_answers_with_a_fault_of_the_other(rm: RMVersion) -> None:
    foreign = {WSRM_1_0: {faults.SequenceClosed}, WSRM_1_1: {faults.LastMessageNumberExceeded}}[rm]
    assert not [place for place, cell in cells(rm).items() if cell.act in foreign]
    own = {WSRM_1_0: faults.LastMessageNumberExceeded, WSRM_1_1: faults.SequenceClosed}[rm]
    assert own in {cell.act for cell in cells(rm).values()}


@VERSIONS
def test_no_event_leads_back(rm: RMVersion) -> None:
    order = list(State)
    assert not [place for place, cell in cells(rm).items() if order.index(cell.state) < order.index(place[0])]
    assert not [place for place, cell in cells(rm).items() if place[0] in ENDED and cell.state is not place[0]]


@VERSIONS
@pytest.mark.spec("D-CLO-003", "D-SEQ-003")
def test_only_an_open_sequence_accepts(rm: RMVersion) -> None:
    assert {state for (state, _), cell in cells(rm).items() if cell.act is Act.ACCEPT} == {State.CREATED}


@VERSIONS
def test_an_act_that_ends_or_closes_leads_to_its_state(rm: RMVersion) -> None:
    leads_to = {Act.CLOSE: {State.CLOSED}, Act.TERMINATE: {State.TERMINATED}, Act.END: ENDED}
    for place, cell in cells(rm).items():
        if isinstance(cell.act, Act) and cell.act in leads_to:
            assert cell.state in leads_to[cell.act], place


@VERSIONS
@pytest.mark.spec("D-TRM-005")
def test_an_ended_sequence_confirms_terminate_and_knows_nothing_else(rm: RMVersion) -> None:
    silent = {Trigger.EXPIRED, Trigger.FAILED, Trigger.ABANDONED, Trigger.ACCUSED, Trigger.OPERATOR_CLOSE}
    others = set(Trigger) - silent - {Trigger.TERMINATE, Trigger.TERMINATE_CONTRADICTED}
    for state in ENDED:
        ended = TRANSITIONS[rm.label][state]
        assert ended[Trigger.TERMINATE] == Cell(Act.CONFIRM, state)
        assert ended[Trigger.TERMINATE_CONTRADICTED].act is faults.SequenceTerminated
        known = faults.SequenceTerminated if state is State.FAILED else faults.UnknownSequence
        assert {ended[event].act for event in others} == {known}


@VERSIONS
@pytest.mark.spec("F-025", "F-026")
def test_no_fault_of_the_source_is_answered_with_one(rm: RMVersion) -> None:
    for state in State:
        assert isinstance(TRANSITIONS[rm.label][state][Trigger.ABANDONED].act, Act)
        assert TRANSITIONS[rm.label][state][Trigger.ABANDONED].state in ENDED
        assert TRANSITIONS[rm.label][state][Trigger.ACCUSED] == Cell(Act.IGNORE, state)


@pytest.mark.parametrize(
    ("state", "event", "act", "after"),
    [
        (State.CREATED, Trigger.ABOVE_MAXIMUM, faults.MessageNumberRollover, State.CREATED),
        (State.CREATED, Trigger.LAST, faults.MalformedMessage, State.CREATED),
        (State.CREATED, Trigger.CLOSE_CONTRADICTED, faults.SequenceTerminated, State.REFUSED),
        (State.CREATED, Trigger.TERMINATE_CONTRADICTED, faults.SequenceTerminated, State.REFUSED),
        (State.CREATED, Trigger.EXPIRED, Act.END, State.EXPIRED),
        (State.CREATED, Trigger.FAILED, Act.END, State.FAILED),
        (State.CLOSED, Trigger.NEW, faults.SequenceClosed, State.CLOSED),
        (State.CLOSED, Trigger.DUPLICATE, Act.REPEAT, State.CLOSED),
        (State.CLOSED, Trigger.ABOVE_MAXIMUM, faults.SequenceClosed, State.CLOSED),
        (State.CLOSED, Trigger.ACK_REQUESTED, Act.ACKNOWLEDGE, State.CLOSED),
        (State.CLOSED, Trigger.CLOSE, Act.CONFIRM, State.CLOSED),
        (State.CLOSED, Trigger.TERMINATE, Act.TERMINATE, State.TERMINATED),
        (State.CLOSED, Trigger.CLOSE_CONTRADICTED, faults.SequenceTerminated, State.REFUSED),
        (State.CLOSED, Trigger.TERMINATE_CONTRADICTED, faults.SequenceTerminated, State.REFUSED),
        (State.CLOSED, Trigger.EXPIRED, Act.END, State.EXPIRED),
    ],
)
def test_cells_of_1_1_are_those_of_the_specification(state: State, event: Trigger, act: object, after: State) -> None:
    assert TRANSITIONS["1.1"][state][event] == (act, after)


@pytest.mark.parametrize(
    ("event", "act", "after"),
    [
        (Trigger.LAST, Act.ACCEPT, State.CREATED),
        (Trigger.ABOVE_LAST, faults.LastMessageNumberExceeded, State.REFUSED),
        (Trigger.ABOVE_MAXIMUM, faults.MessageNumberRollover, State.REFUSED),
        (Trigger.LAST_CONTRADICTED, faults.SequenceTerminated, State.REFUSED),
        (Trigger.CLOSE, faults.MalformedMessage, State.CREATED),
        (Trigger.TERMINATE, Act.TERMINATE, State.TERMINATED),
    ],
)
def test_cells_of_1_0_differ_where_the_specification_does(event: Trigger, act: object, after: State) -> None:
    assert TRANSITIONS["1.0"][State.CREATED][event] == (act, after)
