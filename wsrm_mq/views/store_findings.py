"""Findings on the store as a whole: whether it takes messages, who serves it, what it refused; in words,
with proposals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wsrm_mq.acts import Step, others
from wsrm_mq.store.applications import OUTGOING
from wsrm_mq.store.counting import Refusal
from wsrm_mq.views.overview import Fact, Room, Sight
from wsrm_mq.views.rows import key_of
from wsrm_mq.views.words import counted, moment, size, span

_DOCTOR: Final = others.DOCTOR.step("looks at processes, proxy, clock and store, and says how to mend them")
_FREE: Final = "Free space on the disk: delete other files there."
_LETTERS: Final = others.LETTERS.step("what is discarded of them may be pruned a minute later")


def make_room(sight: Sight) -> tuple[Step, ...]:
    """The steps that free some of the store, if any does."""
    room = sight.room or Room()
    if room.older_than:
        freed = f"{counted(room.messages, 'message', 'messages')} or more ({size(room.size)}), settled that long ago"
        return (others.PRUNE.step(f"deletes {freed}", older_than=room.older_than), _DOCTOR)
    return (_LETTERS, _DOCTOR) if any(sight.at.dead_letters.values()) else (_DOCTOR,)


def _nothing_to_prune(sight: Sight, remedy: str) -> str:
    """Empty where something is."""
    if sight.room is None or sight.room.older_than:
        return ""
    archived = ", or is in no archive yet" if sight.archive_within is not None else ""
    kept = f"what is there is undelivered, a dead letter, or was settled just now{archived}"
    return f" Nothing may be pruned: {kept}. {remedy}"


def locked(sight: Sight) -> list[Fact]:
    what = sight.obstacle.what if sight.obstacle is not None else ""
    return [Fact(f"No message is taken: {what}.", (_DOCTOR,))]


def over_max_store(sight: Sight) -> list[Fact]:
    used = f"{size(sight.at.used_bytes)} of {size(sight.max_store or 0)}"
    text = f"max_store is reached ({used}): only what fills a gap is taken."
    return [Fact(text + _nothing_to_prune(sight, "Raise max_store, and start the service anew."), make_room(sight))]


def doubt(sight: Sight) -> list[Fact]:
    return [Fact(f"Not served: the store {sight.doubt}", (others.ADOPT.step("what that loses", dry_run=True),))]


def reserve_spent(sight: Sight) -> list[Fact]:
    free = size(sight.at.disk_free)
    text = f"The disk is full: no message is taken until there is room ({free} free)."
    return [Fact(text + _nothing_to_prune(sight, _FREE), make_room(sight))]


def disk_free(sight: Sight) -> list[Fact]:
    if sight.at.is_reserve_spent:  # which is told
        return []
    text = f"The disk of the store is nearly full: {size(sight.at.disk_free)} free."
    return [Fact(text + _nothing_to_prune(sight, _FREE), make_room(sight))]


def instances(sight: Sight) -> list[Fact]:
    left = sum(one.ready for queue, one in sight.at.waiting.items() if not queue.startswith(OUTGOING))
    waits = f"; {counted(left, 'message waits', 'messages wait')} for it" if left else ""
    start = "" if sight.doubt else ": start the service"
    return [Fact(f"No process of the service lives{waits}{start}.", () if sight.doubt else (_DOCTOR,), left)]


def dead_instances(sight: Sight) -> list[Fact]:
    died = counted(sight.at.dead_instances, "process has", "processes have")
    return [Fact(f"{died} died, and no live one has noticed.", (_DOCTOR,), sight.at.dead_instances)]


def unserved(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"Messages of {one.queue} wait for {one.application or 'an application without a name'}, which no process "
            "serves: start it.",
            (
                others.RENAME.step("it is the same one, under a new name", one.application or "none"),
                _DOCTOR,
            ),
            queue=one.queue,
        )
        for one in sight.at.unserved
    ]


# refusals

_REFUSED: Final = {
    "max_store": ("max_store is reached", None),
    "disk_full": ("the disk is full", None),
    "store_locked": ("another program had the store locked", _DOCTOR),
    "store_unavailable": ("the store could not be used", _DOCTOR),
    "overloaded": ("more came than can be written", _DOCTOR),
    "max_held": (
        "max_held messages wait behind a gap",
        others.SEQUENCES.step("whose gap it is", verdict="waiting"),
    ),
    "window": (
        "the first missing number is further away than window",
        others.SEQUENCES.step("whose gap it is", verdict="waiting"),
    ),
    "max_sequences": ("max_sequences are open", others.SEQUENCES.step("which are open", state="created")),
    "max_per_connection": (
        "a connection has max_per_connection messages undelivered",
        others.CONNECTIONS.step("which one it is"),
    ),
    "misconfigured": ("a hook of the middleware is at fault; its log says which (request.misconfigured)", _DOCTOR),
}
"""The meaning of each reason, and what to do; ``None``: make room."""


def _refusals(refused: list[Refusal], sight: Sight) -> list[Fact]:
    told = []
    for one in refused:
        why, step = _REFUSED.get(one.reason, (f"there was no room ({one.reason})", _DOCTOR))
        whose = f" of {one.partner}" if one.partner else ""
        text = (
            f"Messages{whose} were refused, the last {span(sight.now - one.last_at)} ago: {why} "
            f"({counted(one.times, 'time', 'times')} in all)."
        )
        told.append(Fact(text, make_room(sight) if step is None else (step,), one.times, one.last_at))
    return told


_LASTS: Final[dict[str, Callable[[Sight], bool | None]]] = {
    "store_locked": lambda sight: sight.is_locked if sight.obstacle is None or sight.is_locked else None,
    "disk_full": lambda sight: sight.at.is_reserve_spent,
    "max_store": lambda sight: sight.is_over if sight.max_store is not None else None,
}
"""Whether a reason lasts that has a finding of its own while it does; ``None``: that is not known here."""


def _lasts(one: Refusal, sight: Sight) -> bool | None:
    """Whether a refusal goes on; ``None``: that is not known. Of most reasons a message that was taken since tells that
    they are over."""
    if one.reason in _LASTS:
        found = _LASTS[one.reason](sight)
        return None if found is False and one.reason in sight.at.unwritten else found
    return False if sight.at.newest_at > one.last_at else None


def nothing_taken(sight: Sight) -> list[Fact]:
    return _refusals([one for one in sight.at.takes_nothing(sight.now) if _lasts(one, sight) is None], sight)


def recovered(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"It is well now. The last message that was refused, as {_REFUSED[one.reason][0]}, came at "
            f"{moment(one.last_at)} ({span(sight.now - one.last_at)} ago; {counted(one.times, 'time')} in all).",
            (_DOCTOR,),
            one.times,
            one.last_at,
        )
        for one in sight.at.takes_nothing(sight.now)
        if _lasts(one, sight) is False
    ]


def refused(sight: Sight) -> list[Fact]:
    all_ = sight.at.takes_nothing(sight.now)
    return _refusals([one for one in sight.at.refused_lately(sight.now) if one not in all_], sight)


def turned_away(sight: Sight) -> list[Fact]:
    """Partners of the configuration that were turned away lately, with the reasons."""
    return _turned_away([one for one in sight.at.turned_away(sight.now) if one.partner], sight)


def strangers_turned_away(sight: Sight) -> list[Fact]:
    """Peers that fit no partner of the configuration and were turned away lately: any client may be one."""
    return _turned_away([one for one in sight.at.turned_away(sight.now) if not one.partner], sight)


def _turned_away(refused: list[Refusal], sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"{one.partner or 'A source that fits no partner'} gets no sequence, and so sends nothing: refused "
            f"{counted(one.times, 'time')}, the last {span(sight.now - one.last_at)} ago. {one.said}".rstrip(),
            (others.FAILURE.step("why, and which option would allow it", key_of(one)),),
            one.times,
            one.last_at,
        )
        for one in refused
    ]


def not_sent(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"Acknowledgements or faults that are sent to addresses of sources were not taken there, the last "
            f"{span(sight.now - one.last_at)} ago ({counted(one.times, 'time', 'times')} in all): their sources send "
            "their messages again. The log names the addresses (acknowledgement.not_sent).",
            (others.SEQUENCES.step("which sources are there", state="created"),),
            one.times,
            one.last_at,
        )
        for one in sight.at.not_sent_lately(sight.now)
    ]


def unsent(sight: Sight) -> list[Fact]:
    since = sight.at.unsent
    if since is None or not sight.at.instances:
        return []
    text = (
        f"Acknowledgements or replies have waited for {span(sight.now - since)} to be sent, and no process takes them "
        "up: the option decoupled allows no addresses where the service is started, or endpoints hang."
    )
    return [Fact(text, (_DOCTOR,), since=since)]
