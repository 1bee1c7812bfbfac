"""What leaves in a request of this side's own: a stored message is posted, with what is true when it leaves.

It is called for a delivery as the application is, and what comes of it is recorded the same way.
"""

from __future__ import annotations

import json
from typing import Final

from wsrm_mq.delivery.delivery import Call, Delivery, Outcome
from wsrm_mq.delivery.hearing import Hearing
from wsrm_mq.delivery.posted import Post, posted
from wsrm_mq.envelope import piggyback, reply_headers
from wsrm_mq.queue.diagnosis import NOT_TOLD, Diagnosis
from wsrm_mq.store.channels import Channel
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.storable import storable
from wsrm_mq.store.store import Store
from wsrm_mq.versions import RM_VERSIONS

__all__ = ["Posting"]

_CODE_LENGTH = 200
"""Characters of a fault's code."""
_ENDS: Final = frozenset(rm.action("TerminateSequence") for rm in RM_VERSIONS.values())
_ENDS_TRIED: Final = 3
"""So often the end of a sequence is sent to one that does not take it: it may have gone, and nothing depends on it."""


class Posting:
    """Posts what is sent, and has the application ``call``ed for everything else."""

    def __init__(self, store: Store, post: Post, hearing: Hearing, call: Call) -> None:
        self._store = store
        self._post = post
        self._hearing = hearing
        self._call = call

    def __call__(self, delivery: Delivery) -> Outcome:
        channel = delivery.channel
        if channel is None:
            return self._call(delivery)
        try:
            return self._sent(delivery, channel)
        except Exception as error:
            return Outcome(error=storable(f"{type(error).__name__}: {error}"), diagnosis=Diagnosis("exception"))

    def _sent(self, delivery: Delivery, channel: Channel) -> Outcome:
        content_type = json.loads(delivery.environ)["CONTENT_TYPE"]
        body = self._as_it_leaves(delivery, channel, delivery.body.open().read(), content_type)
        answer = posted(self._post, channel.endpoint.address, content_type, delivery.action, body)
        self._hearing.hear(channel.answers, answer)
        if answer.failure is not None:
            is_over = delivery.action in _ENDS and delivery.attempt >= _ENDS_TRIED and not answer.left_alone
            code = None if answer.code is None else storable(answer.code, _CODE_LENGTH)
            diagnosis = Diagnosis(NOT_TOLD if is_over else "not_sent", code)
            return Outcome(error=storable(answer.failure), diagnosis=diagnosis, left_alone=answer.left_alone)
        # What an operator has sent again is settled by that: acknowledgements are of the message that it was.
        return Outcome(is_sent=channel.is_numbered and delivery.source is None)

    def _as_it_leaves(self, delivery: Delivery, channel: Channel, body: bytes, content_type: str) -> bytes:
        """With its place in the offered sequence, and the acknowledgement of now where acknowledgements go there too
        (D-ACK-028)."""
        with self._store.reader() as db:
            record = SequenceRecord.read(db, channel.answers)
        terms, place = record.value.terms, None
        if channel.is_numbered and record.outgoing is not None:
            place = record.outgoing.value.header(delivery.key.number)
        acks = (record.value.acknowledgement(),) if record.acks_to == channel.endpoint else ()
        fragment = reply_headers(terms.soap, terms.rm, place, acks)
        return piggyback(body, content_type, fragment) if fragment else body
