"""What must hold of the requests of a source, whatever the order of steps: each is done once and in order, or told as
failed.

It knows what was stored to be sent, what has arrived and what the services have taken, from the commits of both sides.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.simulator.oracle import Oracle, Truth, Violation
from tests.simulator.policies import SOURCED
from tests.simulator.source import Terms
from tests.simulator.stored import Request, Standing, Stored
from tests.simulator.wire import Place, Wire
from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.queue.requests import NOT_ACKNOWLEDGED
from wsrm_mq.store.words import REPLAYED

_TEXT: Final = re.compile(rb"<n>(\d+)</n>")
_NAME: Final = re.compile(rb"<MessageID[^>]*>([^<]*)<")


class Calls:
    def __init__(
        self, oracle: Oracle, outbox: Stored, services: Stored, wire: Wire, terms: Terms, counts: Counter[str]
    ) -> None:
        self._oracle = oracle
        self._counts = counts
        self._outbox = outbox
        self._services = services
        self._wire = wire
        self._terms = terms
        self.requests: dict[str, Request] = {}
        """By the text of each."""
        self.standing: dict[int, Standing] = {}
        """As each stood last, by its position, also where retention has taken it since."""
        self._arrived: dict[str, set[Place]] = {}
        """Where each has arrived, by its text."""
        self._came: dict[str, dict[int, int]] = {}
        """Position by number, of what has arrived in a sequence."""
        self._taken: dict[str, list[Place]] = {}
        """Where the services have taken each, by its text."""
        self._stored_upto = self._arrived_upto = 0
        self._forgotten: set[str] = set()
        """Sequences of services that have lost their state."""

    def summary(self) -> list[object]:
        of_each = [(len(self._arrived.get(text, ())), len(self._taken.get(text, ()))) for text in self.requests]
        return [of_each, [one.outcome for one in self.standing.values()], sorted(self._wire.left.values())]

    # commits

    @contextmanager
    def sent_by(self, _process: str, _instance: int) -> Iterator[None]:
        """A commit of a source."""
        yield
        self.look()

    @contextmanager
    def taken_by(self, process: str, instance: int) -> Iterator[None]:
        """A commit of a service."""
        with self._oracle.commit_of(process, instance):
            yield
        for identifier, partner in self._services.sequences():
            if identifier not in self._oracle.truths:
                self._oracle.truths[identifier] = Truth(identifier, SOURCED[partner], partner)
        for position, identifier, number, body in self._services.arrived(self._arrived_upto):
            self._arrived_upto = position
            self._oracle.truths[identifier].accepted.add(number)
            self._arrives(identifier, number, text_of(body))

    def look(self) -> None:
        """Something was committed in the outbox."""
        for request in self._outbox.sent(self._stored_upto):
            self._stored_upto = request.position
            self.requests[text_of(request.body)] = request
        for one in self._outbox.requests():
            before = self.standing.get(one.position)
            if before is not None and before.entry > one.entry:  # retention has taken that
                continue
            self.standing[one.position] = one
            if before is not None and before.entry != one.entry:
                self._counts["requests carried on"] += 1
                self._check_carried_on(before)
            if one.outcome is not None and (before is None or before.outcome is None or before.entry != one.entry):
                self._check_settled(one)

    def _check_carried_on(self, before: Standing) -> None:
        """Only a sequence that its service does not know any more is left with what it had acknowledged. What the
        ledger names as in doubt may be acknowledged by an answer that the same commit has taken behind it."""
        state, acknowledged = self._outbox.heard(before.identifier)
        is_known = state != "failed" and acknowledged and _has(acknowledged, before.number)
        if is_known and not self._is_in_doubt(before.identifier, before.number):
            text = self._text_at(before.position)
            raise Violation(f"request {text} was acknowledged in {before.identifier}, and has another number")

    def _check_settled(self, one: Standing) -> None:
        text = self._text_at(one.position)
        where, place = f"request {text}", (one.identifier, one.number)
        self._counts["requests done" if one.outcome == "delivered" else "requests told as failed"] += 1
        if one.outcome == "delivered":
            is_replied = any(self._is_reply(said, text) for said in self._wire.heard)
            if not (is_replied if self.requests[text].is_two_way else place in self._wire.acknowledged):
                raise Violation(f"{where} is settled as delivered, and no answer has said so (I13)")
            if not self._arrived.get(text):
                raise Violation(f"{where} is settled as delivered, and has not arrived (I13)")
        elif one.outcome == "dead" and one.reason == NOT_ACKNOWLEDGED:
            least = len(self._terms.policy.resend.ladder) + 1
            if (left := self._wire.left[place]) < least:
                raise Violation(f"{where} is given up, and has left {left} times instead of {least}")
        elif one.outcome == "dead" and not one.reason:
            raise Violation(f"{where} is given up, and nothing says why")
        elif one.reason == REPLAYED:
            raise Violation(f"{where} was to go on in another sequence, and does not")

    def _is_reply(self, said: bytes, text: str) -> bool:
        """Of the service, or a fault in its place."""
        name = _NAME.search(self.requests[text].body)
        assert name is not None
        return f"<n>{text}</n>".encode() in said or b">%s</RelatesTo>" % name[1] in said

    def _text_at(self, position: int) -> str:
        return next(text for text, one in self.requests.items() if one.position == position)

    # what arrives, and what the services see

    def _arrives(self, identifier: str, number: int, text: str) -> None:
        where, request = f"request {text}, number {number} of {identifier}", self.requests.get(text)
        if request is None:
            raise Violation(f"{where} arrives, and was never stored")
        came = self._came.setdefault(identifier, {})
        came[number] = request.position
        in_order = [came[one] for one in sorted(came)]
        if in_order != sorted(in_order):
            raise Violation(f"{where} has its number behind one that was stored after it")
        if not self._arrived.get(text):
            self._check_order(request, identifier, where)
        self._arrived.setdefault(text, set()).add((identifier, number))

    def _check_order(self, request: Request, identifier: str, where: str) -> None:
        """Nothing that was stored before it, and has not come, waits in another sequence than its own."""
        if self.standing[request.position].identifier != identifier:
            return  # its sequence was left meanwhile, with all that was in it
        for other, before in self.requests.items():
            standing = self.standing[before.position]
            waits = standing.outcome is None and not (standing.is_given_up or self._arrived.get(other))
            waits = waits and before.to == request.to
            if before.position < request.position and waits and standing.identifier != identifier:
                raise Violation(f"{where} arrives while request {other} waits in {standing.identifier}")

    def called(self, delivery: Delivery) -> str:
        """Answers the text of the request."""
        text, place = text_of(delivery.body.open().read()), (delivery.key.identifier, delivery.key.number)
        for identifier, number in self._taken.get(text, ()):
            if identifier == place[0]:
                continue
            self._counts["requests done twice, and named"] += 1
            if identifier not in self._forgotten and not self._is_in_doubt(identifier, number):
                raise Violation(f"request {text} is done in {place[0]}, was in {identifier}, and nothing says so")
        return text

    def returned(self, delivery: Delivery, text: str, *, is_taken: bool) -> None:
        if is_taken:
            self._taken.setdefault(text, []).append((delivery.key.identifier, delivery.key.number))

    def _is_in_doubt(self, identifier: str, number: int) -> bool:
        return any(
            told.endswith(f" of {identifier}") and _has(told.partition(": ")[2].partition(" of ")[0], number)
            for told in self._outbox.in_doubt()
        )

    def state_is_lost(self) -> None:
        """The services know nothing any more."""
        self._forgotten |= set(self._oracle.truths)
        self._oracle.truths.clear()

    # the end

    @property
    def waiting(self) -> list[str]:
        """The texts of the requests that are neither done nor told as failed."""
        return [text for text, one in self.requests.items() if self.standing[one.position].outcome is None]

    def check_end(self, replied: dict[str, bytes | None]) -> None:
        """``replied``: what its program is answered for each request that is done, by text."""
        if (broken := self._outbox.broken()) is not None:
            raise Violation(f"in the outbox: {broken}")
        if waiting := self.waiting:
            raise Violation(f"the requests {waiting} are neither done nor told as failed")
        for text, content in replied.items():
            if content is None or not self._is_reply(content, text):
                raise Violation(f"request {text} is done, and its program is answered {content!r}")


def text_of(body: bytes) -> str:
    """What tells it from the others: its text, or its MessageID where it has none, as the last message of 1.0."""
    found = _TEXT.search(body) or _NAME.search(body)
    assert found is not None, body
    return found[1].decode()


def _has(ranges: str, number: int) -> bool:
    bounds = [part.split("-") for part in ranges.split(",")]
    return any(int(one[0]) <= number <= int(one[-1]) for one in bounds)
