"""One conversation that makes a destination send every message it can, for tests about all that is sent."""

from __future__ import annotations

import uuid

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
    answers |= _sent_in_an_offered_sequence(source)
    return {name: answer for name, answer in answers.items() if answer.body}


def _sent_in_an_offered_sequence(source: Source) -> dict[str, HTTPAnswer]:
    speak, offered = source.speak, uuid.uuid4().urn
    accepted = source.post(speak.create_sequence(offer=offered, expires="PT1H"))
    assert accepted.reply.created is not None
    identifier = accepted.reply.created.identifier
    answers = {
        "CreateSequenceResponse with Accept": accepted,
        "reply in the offered sequence": source.echo(identifier, 1, "one"),
        "InvalidAcknowledgement": source.post(speak.acknowledgement(offered, (1, 9))),
    }
    if speak.rm.has_last_message:
        answers["LastMessage"] = source.post(speak.last_message(identifier, 2))
        acknowledged = speak.acknowledgement_header(offered, (1, 2))
        answers["TerminateSequence"] = source.post(speak.terminate(identifier, headers=acknowledged))
    return answers
