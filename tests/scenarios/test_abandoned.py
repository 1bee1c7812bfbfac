"""Sequences that their sources left behind: in the end the process keeps nothing of them."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.support.in_process import FACTORY, InProcess, taken, until
from wsrm_mq.sequence.inbound import InboundSequence
from wsrm_mq.testing import ManualClock


@pytest.mark.peer("P-31")
@pytest.mark.spec("SEC-010", versions=("1.1",))
def test_of_abandoned_sequences_nothing_stays_in_memory(tmp_path: Path) -> None:
    clock = ManualClock()
    service = InProcess(
        tmp_path, lambda _environ, start: taken(start), one_way=["urn:example:orders/put"], inactivity=60, clock=clock
    )

    def known() -> list[InboundSequence]:
        gc.collect()
        return [one for one in gc.get_objects() if isinstance(one, InboundSequence)]

    try:
        abandoned = [service.create() for _ in range(5)]
        for identifier in abandoned:
            for number in (1, 3):
                service.put(identifier, number)
        assert len(known()) >= 5
        clock.advance(60_000)
        left = "SELECT count(*) FROM entry WHERE outcome IS NULL"
        assert until(lambda: service.rows(left) == [(0,)]), "what was held is delivered at the end"
        assert until(lambda: {row[0] for row in service.rows("SELECT state FROM sequences")} == {"ended"})
        assert until(lambda: not known())
        _status, body = service.post(FACTORY.message(abandoned[0], 2))
        assert b"UnknownSequence" in body
        assert not known(), "nor after they were spoken of"
    finally:
        service.middleware.close()
