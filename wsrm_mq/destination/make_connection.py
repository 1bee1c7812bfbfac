"""MakeConnection: the messages that it may ask for, its answer, and the time when a message need not be asked for
again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from wsrm_mq.destination import answers
from wsrm_mq.destination.answers import EMPTY, Answer
from wsrm_mq.destination.commits import asking
from wsrm_mq.destination.exchange import Commit, Request
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.queue.arrival import Sender
from wsrm_mq.queue.polling import FetchReceipt, fetch
from wsrm_mq.sequence import faults
from wsrm_mq.sequence.elements import EndpointReference, MakeConnection


class Fetching:
    """``is_waiting`` looks whether anything waits for an address, and ``left`` writes down that the message at a
    position is gone."""

    def __init__(self, is_waiting: Callable[[Sender, str], bool], left: Callable[[int], object]) -> None:
        self._is_waiting = is_waiting
        self._left = left

    def begin(self, request: Request, sender: Sender, element: MakeConnection) -> Answer | Commit:
        """Where nothing waits the answer is empty, whether the address is known or not (SEC-029)."""
        headers = request.headers
        check_selection(element, headers)
        address = element.address or ""
        if sender.rm.is_fetched(address) and self._is_waiting(sender, address):
            policy, asked = request.peer.policy, headers.ack_requested
            verb = partial(fetch, sender=sender, address=address, policy=policy, ack_requested=asked)
            return Commit(verb, request)
        return asking(request, sender) if headers.ack_requested or headers.acknowledgements else EMPTY

    def answer(self, receipt: FetchReceipt, headers: Headers) -> Answer:
        """The message that waited, or the acknowledgements alone."""
        found, element = receipt.fetched, headers.body
        assert isinstance(element, MakeConnection)
        if found is None:
            return answers.acknowledgement(headers, receipt.others, EndpointReference(element.address or ""))
        answer = answers.fetched(found)
        return answer if found.place is not None else self.leaving(answer, found.position)

    def leaving(self, answer: Answer, position: int) -> Answer:
        """``answer`` carries the message at ``position``, which is not numbered: gone is gone."""
        return answer._replace(left=partial(self._left, position))


def check_selection(element: MakeConnection, headers: Headers) -> None:
    """Raises ``EnvelopeError`` for anything but an Address, which alone the Reliable Secure Profile knows (MC-004,
    MC-005, RSP-006, RSP-007)."""
    if element.unsupported:
        named = ", ".join(local for _namespace, local in element.unsupported)
        reason = f"Messages are selected by Address only; this MakeConnection has {named}."
        raise EnvelopeError(faults.UnsupportedSelection(reason, elements=element.unsupported), headers)
    if element.address is None:
        raise EnvelopeError(faults.MissingSelection("MakeConnection has no Address to select messages by."), headers)
