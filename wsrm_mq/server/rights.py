"""The rights of a principal to queues and topics.

A grant is a right and a pattern. In the pattern of queues ``*`` stands for any characters; one of topics is written
``topic:orders/#``, with the wildcards of topics.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, NamedTuple, get_args

from wsrm_mq.errors import ConfigurationError, RightMissing
from wsrm_mq.queue.declaring import unknown
from wsrm_mq.queue.routing import compiled
from wsrm_mq.queue.topics import check_pattern

Right = Literal["put", "consume", "peek", "admin", "route"]
RIGHTS: Final[tuple[Right, ...]] = get_args(Right)
_MEANS: Final[dict[Right, str]] = {
    "put": "put messages there",
    "consume": "take messages from there",
    "peek": "look at what is there",
    "admin": "declare, bind, purge or redrive it",
    "route": "hand over messages for it as another node",
}
TOPIC: Final = "topic:"
"""The beginning of a grant's pattern that is of topics."""


class Grant(NamedTuple):
    right: Right
    pattern: str

    def covers(self, queue: str) -> bool:
        return not self.pattern.startswith(TOPIC) and compiled(self.pattern).fullmatch(queue) is not None

    def covers_topics(self, asked: str) -> bool:
        """Whether every topic that the pattern ``asked`` takes is one of this grant's."""
        return self.pattern.startswith(TOPIC) and _takes_all(self.pattern.removeprefix(TOPIC).split("/"), asked)


class Principal(NamedTuple):
    """Who asks. What it made is known by its name."""

    name: str
    grants: tuple[Grant, ...]
    since: int = 0
    """When its token was made, ms since the epoch: another one of that name is another principal."""
    offered: Collection[str] | None = None
    """The queues whose scope it is in, where it is another node; ``None``: it is a program."""

    def may(self, right: Right, queue: str) -> bool:
        """Whether it has the right to a queue; dead letters and a journal are their queue's. What another node puts
        goes to queues of any scope."""
        of = queue.partition("#")[0]
        if right != "put" and self.offered is not None and of not in self.offered:
            return False
        return any(grant.right == right and grant.covers(of) for grant in self.grants)

    def require(self, right: Right, queue: str) -> None:
        """Raises ``UnknownQueue`` where it has no right to a queue of this name, be there one or not, and
        ``RightMissing`` where it has another one."""
        if self.may(right, queue):
            return
        if any(self.may(one, queue) for one in RIGHTS):
            raise RightMissing(
                f"{self.name} may not {_MEANS[right]}: {queue}. An operator grants that: `wsrm-mq token add`."
            )
        raise unknown(queue)

    def may_topics(self, right: Right, pattern: str) -> bool:
        """Whether it has the right to all topics of ``pattern``, which may be one topic."""
        return any(grant.right == right and grant.covers_topics(pattern) for grant in self.grants)

    def require_topics(self, right: Right, pattern: str) -> None:
        """Raises ``RightMissing``: which topics there are is no secret that this tells."""
        if not self.may_topics(right, pattern):
            raise RightMissing(
                f"{self.name} has not the right `{right}` to the topics {pattern}. "
                f"An operator grants that: `wsrm-mq token add … --{right} '{TOPIC}{pattern}'`."
            )


def check_grant(right: str, pattern: str) -> Grant:
    """A grant, as it is written. Raises ``ConfigurationError``."""
    known = next((one for one in RIGHTS if one == right), None)
    if known is None:
        raise ConfigurationError(f"{right!r} is no right: write {', '.join(RIGHTS)}.")
    if pattern.startswith(TOPIC):
        check_pattern(pattern.removeprefix(TOPIC))
    elif not pattern or "#" in pattern or not pattern.isprintable():
        raise ConfigurationError(
            f"{pattern!r} is no pattern of queues: write a name, in which * stands for any characters. "
            f"One of topics begins with `{TOPIC}`."
        )
    return Grant(known, pattern)


def _takes_all(granted: list[str], asked: str) -> bool:
    levels = asked.split("/")
    if granted[-1] == "#":
        fixed = granted[:-1]
        levels, is_as_long = levels[: len(fixed)], len(levels) >= len(fixed)
    else:
        fixed, is_as_long = granted, len(levels) == len(granted)
    return is_as_long and all(
        mine == its or (mine == "*" and its != "#") for mine, its in zip(fixed, levels, strict=True)
    )
