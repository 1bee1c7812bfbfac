"""What is replayed is delivered under the key that it came under."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.support.in_process import InProcess, taken, until
from wsrm_mq.queue.replaying import add_replay, replays_of
from wsrm_mq.queue.withdrawing import stored
from wsrm_mq.store.outside import run_once
from wsrm_mq.store.transaction import Transaction


class Service:
    """Takes messages once it is ``repaired``."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.repaired = False

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        self.calls.append(environ)
        if not self.repaired:
            raise OSError("the disk is full")
        return taken(start_response)


def replay_all(tx: Transaction) -> None:
    for (letter,) in tx.execute("SELECT id FROM entry WHERE outcome = 'dead' ORDER BY id").fetchall():
        one = stored(tx, letter)
        add_replay(tx, letter, replays_of(tx, one.lane, one.home))


def test_the_service_sees_the_first_key_in_the_first_order_marked_as_a_redelivery(tmp_path: Path) -> None:
    service = Service()
    wsrm = InProcess(tmp_path, service, retry=(), on_poison="dead_letter")
    try:
        identifier = wsrm.create()
        for number in (1, 2, 3):
            wsrm.put(identifier, number)
        assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'dead'") == [(3,)])
        service.calls.clear()
        service.repaired = True
        run_once(wsrm.path, replay_all)
        assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(3,)])
        seen = [(call["wsrm.sequence_id"], call["wsrm.message_number"]) for call in service.calls]
        assert seen == [(identifier, number) for number in (1, 2, 3)]
        assert {(call["wsrm.redelivery"], call["wsrm.attempt"], call["wsrm.replay_id"]) for call in service.calls} == {
            (True, 1, "")
        }
    finally:
        wsrm.middleware.close(5)
