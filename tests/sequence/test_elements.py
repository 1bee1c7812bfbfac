from __future__ import annotations

import dataclasses

import pytest

from wsrm_mq.sequence import elements
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior

VALUES = [kind for kind in vars(elements).values() if dataclasses.is_dataclass(kind)]


def test_the_behaviors_are_spelled_as_on_the_wire() -> None:
    assert {behavior.value for behavior in IncompleteSequenceBehavior} == {
        "NoDiscard",
        "DiscardEntireSequence",
        "DiscardFollowingFirstGap",
    }


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_an_element_is_a_frozen_hashable_value(kind: type) -> None:
    required = [
        field
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    made = kind(**{field.name: "x" for field in required})
    assert hash(made) == hash(kind(**{field.name: "x" for field in required}))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, dataclasses.fields(kind)[0].name, "y")
