"""Sequences of requests, as they are asked for, closed and ended: what is to be said about each is found from its
state, and stored to be sent as any message is; and what the answer to a request comes to.

``tend`` goes through all that are open, so whatever a process that died has left undone is done by the next look.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from wsrm_mq.delivery.delivery import Delivery
from wsrm_mq.delivery.outgoing_messages import own_message, tell_end_of_outbound
from wsrm_mq.delivery.posted import Posted
from wsrm_mq.envelope.render import acknowledgement_request, create_sequence
from wsrm_mq.queue.hearing import Said
from wsrm_mq.queue.outbound import lanes_of, step_of
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.requests import close_element, go_on, is_over, pass_gap, refused, seal
from wsrm_mq.queue.sending import NOT_SENT, Sent, send
from wsrm_mq.queue.settle import ServiceReply
from wsrm_mq.sequence.elements import CloseSequenceResponse, CreateSequenceResponse, SequenceAcknowledgement
from wsrm_mq.sequence.faults import SequenceClosed, WSRMRequired
from wsrm_mq.sequence.outbound import Own
from wsrm_mq.sequence.outbound_states import OutboundState
from wsrm_mq.sequence.ranges import AckRange
from wsrm_mq.store import channels, entries
from wsrm_mq.store import outbound as outbounds
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.versions import ADDRESSING_VERSIONS, MAX_MESSAGE_NUMBER, RM_VERSIONS

_RESPONSES: Final = {
    **{rm.action("CreateSequence"): CreateSequenceResponse for rm in RM_VERSIONS.values()},
    **{rm.action("CloseSequence"): CloseSequenceResponse for rm in RM_VERSIONS.values() if rm.has_close},
}
"""The element that has to come in answer, by Action."""
_CREATES: Final = frozenset(rm.action("CreateSequence") for rm in RM_VERSIONS.values())
_BAD_REQUEST: Final = 400
_TEMPORARY: Final = frozenset(("Server", "Receiver", "EndpointUnavailable"))
_INSECURE: Final = frozenset(
    (
        *("InvalidSecurity", "InvalidSecurityToken", "SecurityTokenUnavailable", "FailedAuthentication", "FailedCheck"),
        *("UnsupportedAlgorithm", "UnsupportedSecurityToken", "MessageExpired", "BadContextToken"),
    )
)
"""The codes of faults about WS-Security."""
_NO_ENTRY: Final = frozenset((401, 403, 407))
_NOT_TAKEN: Final = _INSECURE | frozenset(
    (
        *("MustUnderstand", "VersionMismatch", "InvalidAddressingHeader", "MessageAddressingHeaderRequired"),
        *("DestinationUnreachable", "ActionNotSupported", "EndpointUnavailable"),
    )
)
"""Codes of SOAP, WS-Addressing and WS-Security: a message that is refused so has not come to its sequence."""
_UNSPECIFIED: Final = tuple(f"{namespace}/unspecified" for namespace in ADDRESSING_VERSIONS)
_NOT_SEEN: Final = "it has seen no Sequence in the request, so it may speak another version: see rm"
_GONE: Final = frozenset(("UnknownSequence", "SequenceTerminated", "SequenceClosed"))


def judge(delivery: Delivery, about: OutboundRecord, answer: Posted) -> Posted:
    """Judge what ``answer`` means for a message about a sequence of requests. A fault without an identifier is about
    that sequence, as gSOAP writes it. Where there will be no sequence, the message that asks for it has done its
    work."""
    if answer.left_alone is not None:
        return answer
    terms, expected = about.value.terms, _RESPONSES.get(delivery.action or "")
    said, fault = answer.said, None if answer.said is None else answer.said.fault
    if said is not None:  # what is asked of the offered sequence is said with the next message
        relates_to = None if said.relates_to in _UNSPECIFIED else said.relates_to
        asked = tuple(a for a in said.ack_requested if a.identifier != about.offered)
        said = said._replace(ack_requested=asked, relates_to=relates_to)
        answer = answer._replace(said=said)
    if fault is not None and fault.code == WSRMRequired.subcode:
        answer = answer._replace(failure=f"{answer.failure} ({fault.code}: {_NOT_SEEN})")
    if delivery.action in _CREATES and answer.relates_to not in (None, delivery.message_id, *_UNSPECIFIED):
        why = f"{_to(about)}: answered what relates to another message, {answer.relates_to}"
        return answer._replace(failure=why, said=None)
    if delivery.action in _CREATES and _is_refusal(about, answer):
        return answer._replace(failure=None, said=Said(terms.rm, refusal=answer.failure))
    if answer.failure is None and expected is not None and not isinstance(said and said.response, expected):
        return answer._replace(failure=f"{_to(about)}: answered without {expected.__name__}")
    name, number = delivery.message_id, delivery.number
    reply = reply_in(answer, about, name, number) if delivery.wants_reply else None
    if reply is not None:
        said = with_taken(said, about, number)._replace(reply=(delivery.position, reply))
        return answer._replace(failure=None, said=said)
    answer = answer._replace(reply=None)
    if said is None or fault is None or fault.identifier not in (None, terms.identifier, about.offered):
        return answer
    answer = answer._replace(said=said._replace(rm=terms.rm, fault=replace(fault, identifier=terms.identifier)))
    is_request = expected is None and delivery.channel is not None and delivery.channel.is_numbered
    stays = fault.code == SequenceClosed.subcode and number in about.value.acknowledged
    return answer._replace(left_alone=0.0) if is_request and fault.code in _GONE and not stays else answer


def _is_refusal(about: OutboundRecord, answer: Posted) -> bool:
    """Whether there will be no sequence: a fault says so, or a bare 400 of a destination that cannot read an offer. Who
    is not let in is told nothing of sequences."""
    if is_not_let_in(answer):
        return False
    if not answer.code:
        return answer.status == _BAD_REQUEST and bool(about.offered)
    return _TEMPORARY.isdisjoint(answer.code.split("."))


def is_not_let_in(answer: Posted) -> bool:
    """Whether the credentials of this side are refused, not the message."""
    return not _INSECURE.isdisjoint((answer.code or "").split(".")) or answer.status in _NO_ENTRY


def with_taken(said: Said | None, about: OutboundRecord, number: int) -> Said:
    """Add to an answer that the request has been taken: its reply shows that, whether it is said too or not."""
    terms = about.value.terms
    said = Said(terms.rm) if said is None else said
    taken = SequenceAcknowledgement(terms.identifier, ((number, number),))
    return said._replace(acknowledgements=(*said.acknowledgements, taken))


def reply_in(answer: Posted, about: OutboundRecord, message_id: str | None, number: int) -> ServiceReply | None:
    """The answer of an application to the request of this MessageID and number. A fault is one only where it shows that
    the request has come, by an acknowledgement, or without any by its RelatesTo: a gateway or a filter may have written
    it, and what lies behind a request that has not come would never be delivered."""
    if answer.relates_to not in (None, message_id, *_UNSPECIFIED):
        return None
    ranges = ranges_in(answer, about)
    if answer.code is None or any(lower <= number <= upper for lower, upper in ranges):
        return answer.reply
    is_about_it = answer.relates_to == message_id and not ranges
    return answer.reply if is_about_it and _NOT_TAKEN.isdisjoint(answer.code.split(".")) else None


def ranges_in(answer: Posted, about: OutboundRecord) -> list[AckRange]:
    """The ranges of the sequence that an answer acknowledges, as it has written them."""
    said = () if answer.said is None else answer.said.acknowledgements
    return [range_ for one in said if one.identifier == about.value.terms.identifier for range_ in one.ranges]


def _to(about: OutboundRecord) -> str:
    return "" if about.endpoint is None else about.endpoint.address


def ask(tx: Transaction, outbound: OutboundRecord, policy: QueuePolicy) -> Sent:
    """Ask the destination for a sequence, unless something of an earlier one may be sent yet: its messages come
    first."""
    tx.write_lanes()
    before = tx.execute(outbounds.REQUESTING_BEFORE, {"queue": outbound.queue, "id": outbound.id}).fetchone()
    if before is not None:
        return NOT_SENT
    terms, to = outbound.value.terms, outbound.endpoint
    assert to is not None
    versions = (terms.soap, terms.addressing, terms.rm)
    offered, acks_to = outbound.offered or None, outbound.principal
    body = create_sequence(*versions, to, terms.identifier, policy.max_expires, offered, acks_to)
    return send(tx, outbound, own_message(to, body, terms.soap))


def tend(tx: Transaction, policy: QueuePolicy) -> tuple[Claim, ...]:
    """Do what is due about the sequences of requests; answers the claims on what is to be sent because of it."""
    claims: list[Claim] = []
    for (key,) in tx.execute(outbounds.TO_TEND, {"now": tx.reached}).fetchall():
        outbound = tx.outbound(key)
        if outbound is not None:
            claims += _tend(tx, outbound, policy)
    for (key,) in tx.execute(outbounds.QUIET, {"before": quiet_since(policy, tx.reached)}).fetchall():
        outbound = tx.outbound(key)
        if outbound is not None and not _is_told(tx, outbound):
            claims += _keep_alive(tx, outbound).claims
    return tuple(claims)


def quiet_since(policy: QueuePolicy, now: int) -> int:
    """A sequence in which nothing was said after this is to be kept alive: for half the time after which its
    destination ends one. ``-1``: it does not."""
    return -1 if policy.inactivity is None else now - policy.inactivity // 2


def tell_replied(tx: Transaction, outbound: OutboundRecord) -> tuple[Claim, ...]:
    """Acknowledge the replies that have come by themselves in a request of its own, where others are to come and no
    request is to leave that would do: Metro keeps the next reply back until then, and reads no HTTP response."""
    left = [tx.execute(channels.LAST_LEFT, {"lane": lane.id}).fetchone() for lane in lanes_of(tx, outbound)]
    is_due = any(row is not None and row[0] is not None for row in left)
    return _keep_alive(tx, outbound).claims if is_due and not _is_told(tx, outbound) else ()


def _keep_alive(tx: Transaction, outbound: OutboundRecord) -> Sent:
    """Ask the destination for an acknowledgement, for something to be said in a sequence."""
    terms, to = outbound.value.terms, outbound.endpoint
    assert to is not None
    body = acknowledgement_request(terms.soap, terms.addressing, terms.rm, terms.identifier, to)
    return send(tx, outbound, own_message(to, body, terms.soap))


def _tend(tx: Transaction, outbound: OutboundRecord, policy: QueuePolicy) -> tuple[Claim, ...]:
    if is_over(outbound, tx.reached) and any(lane.owner is not None for lane in lanes_of(tx, outbound)):
        return ()  # what has left a moment ago may be about to be acknowledged
    step_of(tx, outbound, Own.TIME_PASSED)  # S-TRM-008
    state = outbound.value.state
    if state is OutboundState.CREATED:
        pass_gap(tx, outbound)
        state = outbound.value.state
    if state in (OutboundState.CREATING, OutboundState.CLOSING) and not _is_told(tx, outbound):
        why = _dead(tx, outbound)
        if why is None:
            return (
                ask(tx, outbound, policy)
                if state is OutboundState.CREATING
                else tell_end_of_outbound(tx, close_element(outbound))
            ).claims
        if state is OutboundState.CREATING:
            refused(tx, outbound, why)
        else:
            step_of(tx, outbound, Own.CLOSE_CONFIRMED)  # no more will be said
    element = go_on(tx, outbound)
    if state is OutboundState.CREATED and outbound.value.last_number is not None:
        element = seal(tx, outbound)
    return () if element is None else tell_end_of_outbound(tx, element).claims


def _is_told(tx: Transaction, outbound: OutboundRecord) -> bool:
    """Whether something about it waits to be sent, or to be answered."""
    tx.write_lanes()
    bounds = {"lower": 1, "upper": MAX_MESSAGE_NUMBER}
    return any(
        tx.execute(entries.NEXT_LIVE, {**bounds, "lane": lane}).fetchone()[0] is not None
        for (lane,) in tx.execute(channels.CHANNELS_BESIDE, {"outbound": outbound.id}).fetchall()
    )


def _dead(tx: Transaction, outbound: OutboundRecord) -> str | None:
    """Why what is said about it is a dead letter; ``None``: nothing is."""
    for (lane,) in tx.execute(channels.CHANNELS_BESIDE, {"outbound": outbound.id}).fetchall():
        found = tx.execute(channels.DEAD_IN, {"lane": lane}).fetchone()
        if found is not None:
            return found[1] or "it was sent as often as resend says"
    return None
