"""What was sent is sent again, byte for byte, by someone who recorded it: at once, after the end, after a restart."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer
from tests.support.source import Source, each_rm, every_version
from wsrm_mq.cli import program
from wsrm_mq.testing import HTTPAnswer

from .test_offer import offering


class Recording:
    """A whole exchange, and the requests it was made of."""

    def __init__(self, source: Source) -> None:
        self._source, speak = source, source.speak
        self.requests: list[bytes] = []
        created = self._record(speak.create_sequence()).reply.created
        assert created is not None
        self.identifier = created.identifier
        for number in (1, 3, 2):
            self._record(speak.put(self.identifier, number))
        self._record(speak.echo(self.identifier, 4, "four"))
        if speak.rm.has_close:
            self._record(speak.close(self.identifier, 4))
        self._record(speak.terminate(self.identifier, 4 if speak.rm.has_close else None))
        assert source.delivered(self.identifier) == [1, 2, 3, None], "the last has no n"

    def _record(self, envelope: bytes) -> HTTPAnswer:
        self.requests.append(envelope)
        return self._source.post(envelope)

    def played_again(self) -> list[HTTPAnswer]:
        """The answers to all of it once more; nothing of it is delivered, nor held for later."""
        source, before = self._source, self._source.calls(self.identifier)
        seen = source.server.mark()
        answers = [source.post(envelope) for envelope in self.requests]
        assert seen.calls() == []
        assert source.calls(self.identifier) == before
        assert source.store.unsettled(self.identifier) == 0
        return answers


@pytest.mark.spec("SEC-020", "D-SEQ-003", "D-TRM-008")
@every_version
def test_a_whole_exchange_that_is_played_again_after_its_end_delivers_nothing(source: Source) -> None:
    recording = Recording(source)
    created, *messages = recording.played_again()[:4]
    assert created.reply.created is not None
    assert created.reply.created.identifier != recording.identifier, "another sequence, which no message of it names"
    for answer in messages:
        assert answer.reply.fault is not None
        assert answer.reply.fault.subcode == "UnknownSequence"
        assert answer.acked is None


@pytest.mark.spec("SEC-021", "D-DUR-004")
@each_rm
def test_a_whole_exchange_that_is_played_again_after_a_restart_delivers_nothing(
    mortal: OrdersServer, speak: Orders
) -> None:
    with Source(mortal, speak) as source:
        recording = Recording(source)
        received = source.store.received(recording.identifier)
        mortal.kill()
        mortal.start()
        source.reconnect()
        recording.played_again()
        assert source.store.received(recording.identifier) == received == [(1, 4)], "its tombstone"


@pytest.mark.spec("A-014", "D-CRE-003")
@every_version
def test_each_new_message_has_a_message_id_of_its_own_and_a_reply_that_is_sent_again_keeps_its(source: Source) -> None:
    mine, _offered = offering(source)
    request = source.speak.echo(mine, 1, "one")
    first, again = source.post(request), source.post(request)
    assert first.reply.message_id == again.reply.message_id
    others = [source.echo(mine, 2, "one"), source.put(mine, 3), source.ask(mine), source.ask(mine)]
    others += [source.post(source.speak.create_sequence()), source.put("urn:example:unknown", 1)]
    said = [answer.reply.message_id for answer in (first, *others)]
    assert None not in said
    assert len(set(said)) == len(said)


@pytest.mark.spec("SEC-020", "D-TRM-005")
@each_rm
def test_the_numbers_of_an_ended_sequence_are_known_for_longer_than_its_messages_are_kept(
    mortal: OrdersServer, speak: Orders
) -> None:
    mortal.set_clock(-7_200)
    with Source(mortal, speak) as source:
        recording = Recording(source)
        mortal.set_clock(0)
        command = ["store", "prune", "--older-than", "60", "--store", str(mortal.store), "--yes", "--reason", "room"]
        pruned = CliRunner().invoke(program, command, prog_name="wsrm-mq")
        assert pruned.exit_code == 0, pruned.output
        assert source.store.outcomes(recording.identifier) == {}
        recording.played_again()
        assert source.store.received(recording.identifier) == [(1, 4)]
        if speak.rm.has_close:
            again = source.terminate(recording.identifier, 4).reply.ack
            assert (again.ranges, again.final) == (((1, 4),), True)
