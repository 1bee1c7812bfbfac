"""Checks of what a program asks with: each refusal is a ``ConfigurationError`` that says what is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.node.message import Message
from wsrm_mq.node.payload import LATEST
from wsrm_mq.queue import filters
from wsrm_mq.queue.clearing import ACTIONS
from wsrm_mq.queue.declaring import check_text
from wsrm_mq.queue.policies import Durability
from wsrm_mq.store.filtering import Filter

Gone = Literal["raise", "wait"]


def names_of(queue: object) -> list[str]:
    """The names of one queue, or of several."""
    names: list[Any] = list(queue) if isinstance(queue, Iterable) and not isinstance(queue, str | bytes) else [queue]
    for name in names:
        check_text(name)
    return names


def check_who(option: str, name: object) -> None:
    """Check the name of a client, or of another that is known by a name."""
    if name is not None and not isinstance(name, str):
        raise ConfigurationError(f"`{option}` is {name!r}; it is a text.")


def check_seconds(option: str, seconds: object) -> None:
    if not isinstance(seconds, int | float) or not -LATEST <= seconds <= LATEST:
        raise ConfigurationError(f"`{option}` is {seconds!r}; it is seconds.")


def check_durability(durability: Durability) -> Durability:
    if durability not in get_args(Durability):
        raise ConfigurationError(f"`durability` is {durability!r}; it is one of {', '.join(get_args(Durability))}.")
    return durability


def check_waits(gone: Gone, timeout: float | None) -> None:
    """Check the way in which a put waits."""
    if timeout is not None:
        check_seconds("timeout", timeout)
    if gone not in get_args(Gone):
        raise ConfigurationError(f"`gone` is {gone!r}; it is one of {', '.join(get_args(Gone))}.")


def check_bodies(bodies: object) -> None:
    if isinstance(bodies, str | bytes | bytearray | memoryview | Mapping) or not isinstance(bodies, Iterable):
        raise ConfigurationError("`bodies` is one body, not several: use `put`, or a list of it.")


def check_number(option: str, value: object, least: int = 0) -> None:
    """Check a position, or a number of messages or bytes."""
    if not isinstance(value, int) or not least <= value < 2**63:
        raise ConfigurationError(f"`{option}` is {value!r}; it is a whole number, at least {least} and below 2**63.")


def check_receive(queue: object, max: object, max_bytes: object, wait: object) -> list[str]:
    """Check what is to be received; answers the names of the queues."""
    names = names_of(queue)
    if not names:
        raise ConfigurationError("There is no queue to receive from: name one, or several.")
    check_number("max", max, 1)
    check_seconds("wait", wait)
    if max_bytes is not None:
        check_number("max_bytes", max_bytes, 1)
    return names


def check_id(message_id: object) -> None:
    if not isinstance(message_id, str):
        raise ConfigurationError(f"`message_id` is {message_id!r}; it is a text.")


def check_action(action: object) -> None:
    """Check the act on what fits a filter."""
    if action not in ACTIONS:
        raise ConfigurationError(f"`action` is {action!r}; it is one of {', '.join(ACTIONS)}.")


def check_positions(positions: object) -> None:
    if isinstance(positions, str | bytes) or not isinstance(positions, Sequence | set | frozenset):
        raise ConfigurationError(f"`positions` is {positions!r}; it is a list of positions: `[message.position]`.")
    for position in positions:
        check_number("positions", position)


def check_messages(messages: object) -> None:
    if not isinstance(messages, Sequence) or not all(isinstance(one, Message) for one in messages):
        raise ConfigurationError(f"`messages` is {messages!r:.200}; it is a list of messages that were received.")


def filter_of(filter: str | Filter | None) -> Filter | None:
    """The filter that a program has asked for, if any."""
    return filter if filter is None or isinstance(filter, Filter) else filters.parse(filter)
