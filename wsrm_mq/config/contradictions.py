"""Options that contradict each other, each pair with advice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from wsrm_mq.config.settings import Partner, Settings
from wsrm_mq.queue.policy import Acknowledge, Mode, OnFault
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.terms import DeliveryAssurance

Of = Callable[[str], Any]


def _discards(of: Of) -> bool:
    return of("behavior") is not IncompleteSequenceBehavior.NO_DISCARD or of("on_incomplete") == "dead_letter"


_CONTRADICTIONS: Final[tuple[tuple[Callable[[Of], bool], str], ...]] = (
    (
        lambda of: (
            of("behavior") is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE
            and of("acknowledge") is Acknowledge.DELIVERED
        ),
        'behavior = "DiscardEntireSequence" delivers nothing before the sequence is complete, and '
        'acknowledge = "delivered" acknowledges nothing before it is delivered: each waits for the other. '
        'Set acknowledge = "stored", or another behavior.',
    ),
    (
        lambda of: not of("ordered") and _discards(of),
        "ordered = false delivers across gaps at once, so nothing is left to discard. "
        'Set behavior = "NoDiscard" and on_incomplete = "deliver", or ordered = true.',
    ),
    (
        lambda of: of("assurance") is DeliveryAssurance.AT_MOST_ONCE and _discards(of),
        'assurance = "at_most_once" delivers across gaps at once, so nothing is left to discard. '
        'Set behavior = "NoDiscard" and on_incomplete = "deliver", or another assurance.',
    ),
    (
        lambda of: of("assurance") is DeliveryAssurance.AT_MOST_ONCE and of("on_fault") is OnFault.DEAD_LETTER,
        'assurance = "at_most_once" settles a message before the service sees it, so on_fault = "dead_letter" has '
        'nothing left to put aside. Set on_fault = "settle", or another assurance.',
    ),
    (
        lambda of: of("mode") is Mode.PULL and of("assurance") is DeliveryAssurance.AT_MOST_ONCE,
        'mode = "pull" delivers a message again whose consumer died, and assurance = "at_most_once" promises the '
        'source that it does not. Set another assurance, or mode = "dispatch".',
    ),
)
"""Contradictions of options that a partner may have too: a test, and the sentence for the user."""

_FROM_PROXIES: Final = "connection_header", "address_header", "client_name_header"


class _NotKnown(Exception):
    """The value of this option is wrong, so its contradictions are not known."""


def contradictions(settings: Settings, wrong: Collection[str] = ()) -> Iterator[str]:
    """Answer a sentence for each contradiction in ``settings``. The options ``wrong`` have no valid value, and
    contradict nothing."""

    def known(partner: Partner | None = None) -> Of:
        def of(option: str) -> Any:
            if option in wrong:
                raise _NotKnown
            return settings.effective(option, partner)

        return of

    general = [text for contradicts, text in _CONTRADICTIONS if _holds(contradicts, known())]
    yield from general
    for name, partner in settings.partners.items():
        for contradicts, text in _CONTRADICTIONS:
            if text not in general and _holds(contradicts, known(partner)):
                yield f"partner.{name}: {text}"
        if _puts_off_for_nothing(partner, known()):
            yield (
                f"partner.{name}: acknowledgement_interval puts acknowledgements off, and every answer carries one. "
                'Set one_way_answer = "empty" or decoupled, or leave acknowledgement_interval out.'
            )
    if _holds(lambda of: of("tls_key") is not None and of("tls_certificate") is None, known()):
        yield "tls_key is the key of tls_certificate, and there is none. Name that too, or leave tls_key out."
    for option in _FROM_PROXIES:
        if _holds(lambda of, option=option: of(option) is not None and not of("trusted_proxies"), known()):  # type: ignore[misc]
            yield (
                f"{option} is believed from trusted_proxies only, and there are none. "
                f"Name the proxies, or leave {option} out."
            )


def _holds(contradicts: Callable[[Of], bool], of: Of) -> bool:
    try:
        return contradicts(of)
    except _NotKnown:
        return False


def _puts_off_for_nothing(partner: Partner, of: Of) -> bool:
    if partner.acknowledgement_interval is None or partner.one_way_answer == "empty":
        return False
    return _holds(lambda of: not of("decoupled"), of)
