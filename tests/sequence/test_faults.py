from __future__ import annotations

import dataclasses

import pytest

from wsrm_mq.sequence import faults
from wsrm_mq.sequence.faults import Fault, FaultCode, FaultFamily

KINDS = sorted(
    (
        kind
        for name, kind in vars(faults).items()
        if isinstance(kind, type) and issubclass(kind, Fault) and kind != Fault and not name.startswith("_")
    ),
    key=lambda kind: kind.__name__,
)
RM_SUBCODES = {
    "SequenceTerminated",
    "UnknownSequence",
    "InvalidAcknowledgement",
    "MessageNumberRollover",
    "LastMessageNumberExceeded",
    "SequenceClosed",
    "CreateSequenceRefused",
    "WSRMRequired",
}
"""WS-RM 1.1 §4, and 1.0."""


def test_the_rm_faults_are_those_of_the_specifications() -> None:
    assert {kind.subcode for kind in KINDS if kind.family is FaultFamily.RM} == RM_SUBCODES


def test_faults_about_a_sequence_travel_in_a_header_under_soap_1_1_and_create_sequence_refused_does_not() -> None:
    in_header = {kind.subcode for kind in KINDS if kind.is_header_fault}
    assert in_header == RM_SUBCODES - {"CreateSequenceRefused", "WSRMRequired"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_blame_is_the_senders_unless_the_cause_is_ours(kind: type[Fault]) -> None:
    assert kind("a reason").blame is kind.code
    assert kind("a reason", ours=True).blame is FaultCode.RECEIVER


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_fault_is_a_frozen_value_with_a_name(kind: type[Fault]) -> None:
    fault = kind("a reason", "urn:uuid:1")
    assert fault == kind("a reason", "urn:uuid:1")
    assert fault.name == (kind.subcode or kind.code.value[0])
    with pytest.raises(dataclasses.FrozenInstanceError):
        fault.reason = "another"  # type: ignore[misc]


def test_only_a_failure_of_ours_and_the_selections_of_make_connection_are_the_receivers_by_nature() -> None:
    of_receiver = {kind for kind in KINDS if kind.code is FaultCode.RECEIVER}
    assert {kind for kind in KINDS if kind.family is FaultFamily.MAKE_CONNECTION} < of_receiver
    assert {kind.__name__ for kind in of_receiver if kind.family is FaultFamily.SOAP} == {"ServiceFailure"}
