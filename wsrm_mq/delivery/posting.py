"""What leaves in a request of this side's own: a stored message is posted, with what is true when it leaves.

It is called for a delivery as the application is, and what comes of it is recorded the same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Protocol

from wsrm_mq.delivery.delivery import Call, Delivery, Outcome
from wsrm_mq.envelope import content_type_of, fault_in, piggyback, reply_headers
from wsrm_mq.errors import NotAllowed, NotAnswered
from wsrm_mq.queue.diagnosis import Diagnosis
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.storable import storable
from wsrm_mq.store.store import Store
from wsrm_mq.versions import SOAPVersion

__all__ = ["Answered", "Post", "Posting", "posted"]

_SUCCESS: Final = range(200, 300)


class Answered(Protocol):
    """An HTTP answer."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> list[tuple[str, str]]: ...

    @property
    def content(self) -> bytes: ...


class Post(Protocol):
    """Posts to an address that may be sent to. Raises ``NotAllowed`` and ``NotAnswered``."""

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> Answered: ...


class Posting:
    """Posts what is sent, and has the application ``call``ed for everything else."""

    def __init__(self, store: Store, post: Post, call: Call) -> None:
        self._store = store
        self._post = post
        self._call = call

    def __call__(self, delivery: Delivery) -> Outcome:
        channel = delivery.channel
        if channel is None:
            return self._call(delivery)
        try:
            content_type = json.loads(delivery.environ)["CONTENT_TYPE"]
            body = self._as_it_leaves(delivery, delivery.body.open().read(), content_type)
            failure = posted(self._post, channel.endpoint.address, content_type, delivery.action, body)
        except Exception as error:
            return Outcome(error=storable(f"{type(error).__name__}: {error}"), diagnosis=Diagnosis("exception"))
        if failure is not None:
            return Outcome(error=storable(failure), diagnosis=Diagnosis("not_sent"))
        # What an operator has sent again is settled by that: acknowledgements are of the message that it was.
        return Outcome(is_sent=channel.is_numbered and delivery.source is None)

    def _as_it_leaves(self, delivery: Delivery, body: bytes, content_type: str) -> bytes:
        """With its place in the offered sequence, and the acknowledgement of now where acknowledgements go there too
        (D-ACK-028)."""
        channel = delivery.channel
        assert channel is not None
        with self._store.reader() as db:
            record = SequenceRecord.read(db, channel.answers)
        terms, place = record.value.terms, None
        if channel.is_numbered and record.outgoing is not None:
            place = record.outgoing.value.header(delivery.key.number)
        acks = (record.value.acknowledgement(),) if record.acks_to == channel.endpoint else ()
        fragment = reply_headers(terms.soap, terms.rm, place, acks)
        return piggyback(body, content_type, fragment) if fragment else body


def posted(post: Post, url: str, content_type: str, action: str | None, body: bytes) -> str | None:
    """Post an envelope; answers why it was not taken, ``None``: it was."""
    headers = {"Content-Type": content_type}
    if content_type.startswith(SOAPVersion.SOAP_1_1.media_type):
        headers["SOAPAction"] = f'"{action or ""}"'
    try:
        answer = post(url, headers, body)
    except (NotAllowed, NotAnswered) as error:
        return str(error)
    fault = fault_in(answer.content, content_type_of(answer.headers)) if answer.content else None
    if fault is not None:
        return f"{url}: answered {answer.status} with a fault: {fault.code or 'without a code'}"
    return None if answer.status in _SUCCESS else f"{url}: answered {answer.status}"
