"""One conversation that makes a destination send every message it can, for tests about all that is sent."""

from __future__ import annotations

from tests.support.source import Source
from wsrm_mq.testing import HTTPAnswer

UNKNOWN = "urn:uuid:00000000-0000-4000-8000-000000000000"


def everything_sent(source: Source) -> dict[str, HTTPAnswer]:
    """What a destination answers, by what it is; only answers that hold an envelope."""
    rm, speak = source.speak.rm, source.speak
    identifier, failed = source.create(expires="PT1H"), source.create()
    answers = {
        "CreateSequenceResponse": source.post(speak.create_sequence(expires="PT1H")),
        "acknowledgement of nothing": source.ask(identifier),
        "acknowledgement of a message": source.put(identifier, 1),
        "reply": source.echo(identifier, 2, "two"),
        "acknowledgement with a gap": source.put(identifier, 4),
        "acknowledgement of a duplicate": source.put(identifier, 4),
        "acknowledgement by itself": source.ask(identifier),
        "CreateSequenceRefused": source.post(speak.create_sequence(acks_to=None)),
        "UnknownSequence": source.put(UNKNOWN, 1),
        "MessageNumberRollover": source.put(failed, 2**63),
        "malformed": source.put(identifier, 0),
        "without Action": source.put(identifier, 5, action=None),
        "CloseSequenceResponse": source.close(identifier),
        "acknowledgement when closed": source.ask(identifier),
        "SequenceClosed": source.put(identifier, 5),
        "TerminateSequenceResponse": source.terminate(identifier),
        "after the end": source.put(identifier, 6),
    }
    if not rm.has_close:
        for name in ("CloseSequenceResponse", "acknowledgement when closed", "SequenceClosed"):
            del answers[name]  # 1.0 has no close: the sequence goes on, and ends without a response
    return {name: answer for name, answer in answers.items() if answer.body}
