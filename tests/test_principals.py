"""What is remembered of one client is not what the next one gets: who it is, is asked of every request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import FACTORY, InProcess, taken
from wsrm_mq.testing import Reply

ALICE, MALLORY = {"REMOTE_USER": "alice"}, {"REMOTE_USER": "mallory"}


@pytest.mark.spec("SEC-002", versions=("1.1",))
def test_a_stranger_s_message_like_the_last_one_is_not_taken_into_its_sequence(tmp_path: Path) -> None:
    """The same bytes but for number and MessageID, from the same address, after the owner's: only the server knows that
    it is another user."""
    delivered: list[int] = []

    def service(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        delivered.append(environ["wsrm.message_number"])
        return taken(start_response)

    server = InProcess(tmp_path, service)
    created = Reply.parse(server.post(FACTORY.create_sequence(), **ALICE)[1]).created
    assert created is not None
    for number in (1, 2, 3):
        status, answer = server.post(FACTORY.message(created.identifier, number), **ALICE)
        assert Reply.parse(answer).ack.ranges == ((1, number),), status
    for who in (MALLORY, {}):
        fault = Reply.parse(server.post(FACTORY.message(created.identifier, 4), **who)[1]).fault
        assert fault is not None, who
        assert fault.subcode == "UnknownSequence"
    status, answer = server.post(FACTORY.message(created.identifier, 4), **ALICE)
    assert Reply.parse(answer).ack.ranges == ((1, 4),)
    server.middleware.close()
    assert delivered == [1, 2, 3, 4]
