"""The policy of a queue that is declared: what it promises its producers and consumers.

It is stored with the queue as JSON, without what is as by default. Times are in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.policy import OnPoison
from wsrm_mq.queue.policy import QueuePolicy as DispatchPolicy

MAX_PRIORITY: Final = 9
FOREVER: Final = 253_402_300_799_000
"""ms since the epoch, the end of year 9999: when a lease ends that lasts until its holder goes."""

Durability = Literal["recoverable", "relaxed", "express"]
"""The degree of safety of a message: recoverable, it survives a loss of power; relaxed, the death of all processes;
express, nothing but the process that put it: it is in the memory of one, and gone with that."""
Scope = Literal["node", "site", "enterprise"]
_BOUNDS: Final = (
    *("max_backlog", "max_failures", "max_cancels", "max_deliveries"),
    *("max_messages", "max_bytes", "memory_limit"),
)


class QueuePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The options of a queue, as ``declare`` takes them."""

    lease: float | None = 30.0
    """How long a consumer has a message to itself; ``None``: as long as it lives."""
    max_backlog: int | None = None
    """The most messages that one subscription may have leased at a time."""
    max_failures: int | None = 10
    max_cancels: int | None = None
    max_deliveries: int | None = None
    """A message that has failed, was given back, or was delivered so often goes to the dead letters."""
    retry: tuple[float, ...] = (0, 1, 5, 30, 300)
    """How long a message waits after its first, second, … failure; after more of them as long as after the last."""
    ttl: float | None = None
    """A message that is not settled after so long goes to the dead letters; its own ``ttl`` counts before this."""
    max_messages: int | None = None
    max_bytes: int | None = None
    overflow: Literal["reject", "drop_head", "block"] = "reject"
    """The fate of a message that finds no room: its producer is told, the next one to be delivered is a dead letter
    in its place, or its producer waits."""
    access: Literal["shared", "exclusive"] = "shared"
    scope: Scope = "node"
    """Which nodes see the queue, and may look at it and take from it: this one alone, those of its site, or all of the
    enterprise. How far each may is said by its token."""
    peek: bool = True
    leasing: Literal["strict", "sublet"] = "strict"
    """Whether a consumer may settle what another one has leased."""
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    fairness: Literal["proportional", "fast", "round_robin"] = "proportional"
    """How what is ready is shared among subscriptions: the next message goes to the smallest part of a backlog in use,
    in whatever process; to the first that asks and has room; or, among those of one process, to one after the other.
    """
    on_poison: Literal["block", "skip"] = "block"
    """The fate of an ordered group whose next message has failed for good: it stops, or goes on without it."""
    dead_letter: bool = True
    """A message that is given up is kept among the dead letters; else it is discarded."""
    retain: float = 0.0
    """How long the body of a settled message is kept."""
    dedupe_window: float = 600.0
    """The time within which a message of the same id is the same message."""
    journal: bool = False
    """Each message that comes is recorded in the queue's journal, with what becomes of it (``journaling``)."""
    durability: Durability = "recoverable"
    """The durability of a message that is put there without one of its own."""
    barrier: str | None = None
    """A filter: a message that fits it waits for all before it, and goes to every subscription; all behind it waits
    for it (``barriers``)."""
    memory_limit: int = 64 * 1024 * 1024
    """The bytes of memory that its express messages may have in the process that keeps them; beyond it they overflow
    into a file."""
    properties: dict[str, str] = {}
    """An XPath or a path into JSON by property: what is taken from a body when it is stored (``promoting``)."""

    def __post_init__(self) -> None:
        for name in _BOUNDS:
            value = getattr(self, name)
            if value is not None and not 1 <= value < 2**63:
                raise ValueError(f"`{name}` is {value}; it is at least 1 and below 2**63, or None for no bound")
        if self.lease == 0:
            raise ValueError("`lease` is 0; it is more than 0 seconds, or None: as long as its consumer lives")
        for name in ("lease", "ttl", "retain", "dedupe_window", "retry"):
            value = getattr(self, name)
            times = value if isinstance(value, tuple) else (value,)
            if any(one is not None and not 0 <= one <= FOREVER / 1000 for one in times):
                raise ValueError(f"`{name}` is {value}; a time is seconds, at least 0, and ends before the year 9999")

    @property
    def lease_ms(self) -> int | None:
        """How long a lease lasts, in ms; ``None``: until its holder goes."""
        return None if self.lease is None or self.delivery == "at_most_once" else ms(self.lease)

    def lease_end(self, now: int, lease: int | None) -> int:
        """When a lease that begins now ends, by the clock of leases. ``lease``: ms, ``None``: as the queue says."""
        lasts = self.lease_ms if lease is None else lease
        return FOREVER if lasts is None else now + lasts

    @property
    def dispatch(self) -> DispatchPolicy:
        """The same, for the verbs of deliveries: the ladder of a group or of a message by itself."""
        return _dispatch(self.retry, self.max_failures, self.on_poison)


ENDLESS: Final = 10_000
"""The steps of a ladder that has no end."""


@lru_cache(64)
def _dispatch(retry: tuple[float, ...], max_failures: int | None, on_poison: str) -> DispatchPolicy:
    steps = (ENDLESS if max_failures is None else max_failures) - 1
    last = retry[-1] if retry else 0.0
    ladder = (*retry[:steps], *[last] * (steps - len(retry)))
    poison = OnPoison.BLOCK if on_poison == "block" else OnPoison.DEAD_LETTER
    return DispatchPolicy(retry=tuple(ms(step) for step in ladder), on_poison=poison, connection_on_poison=poison)


def ms(seconds: float) -> int:
    return round(seconds * 1000)


@lru_cache(1024)
def decoded(policy: str) -> QueuePolicy:
    return msgspec.json.decode(policy, type=QueuePolicy)


def encoded(policy: QueuePolicy) -> str:
    return msgspec.json.encode(policy).decode()


def as_values(policy: QueuePolicy) -> dict[str, Any]:
    """Option → value, as JSON has it."""
    return {**msgspec.structs.asdict(policy), "retry": list(policy.retry)}


def refuse_unknown(options: Iterable[str]) -> None:
    """Raise ``ConfigurationError`` for what is no option of a queue."""
    unknown = sorted(set(options) - set(QueuePolicy.__struct_fields__))
    if unknown:
        known = ", ".join(QueuePolicy.__struct_fields__)
        raise ConfigurationError(f"A queue has no option `{unknown[0]}`; it has {known}.")


def changed(policy: QueuePolicy, options: dict[str, Any]) -> QueuePolicy:
    """``policy`` with these ``options``. Raises ``ConfigurationError`` for what is none, or no value of it."""
    refuse_unknown(options)
    values = {name: getattr(policy, name) for name in QueuePolicy.__struct_fields__}
    try:
        return msgspec.convert({**values, **options}, QueuePolicy)
    except (msgspec.ValidationError, ValueError) as error:
        where = _OPTION.search(str(error))
        wrong = str(error) if where is None else f"`{where[1]}` is {options[where[1]]!r}; it is {_allowed(where[1])}"
        raise ConfigurationError(f"The queue cannot be declared so: {wrong}.") from None


_OPTION: Final = re.compile(r" - at `\$\.(\w+)")


def _allowed(option: str) -> str:
    """The values that an option may have."""
    kind = get_type_hints(QueuePolicy)[option]
    if get_origin(kind) is Literal:
        *others, last = map(repr, get_args(kind))
        return f"{', '.join(others)} or {last}"
    return _KINDS[kind]


_KINDS: Final[dict[Any, str]] = {
    bool: "True or False",
    int: "a whole number of bytes",
    int | None: "a whole number, at least 1, or None for no bound",
    float: "a number of seconds",
    float | None: "a number of seconds, or None for no end",
    str | None: "a filter, as a text, or None",
    tuple[float, ...]: "a list of seconds, such as [0, 1, 5]",
    dict[str, str]: "a path for each name, such as {'amount': '/order/amount'}",
}

DEFAULT: Final = QueuePolicy()
JOURNAL: Final = QueuePolicy(dead_letter=False, max_failures=None)
"""The policy of a journal that is not declared: what is in it goes when a consumer or an operator has done with it, or
its ``ttl`` has passed."""
OF_JOURNAL: Final = frozenset(
    ("lease", "max_backlog", "retry", "ttl", "max_messages", "max_bytes", "access", "peek", "leasing", "fairness")
)
"""The options that a journal has."""
