"""The options as keywords of Python: their names, and the types of values that a program may give.

``Settings`` says the same of values that are checked; here times may be written as texts (``"P7D"``), enumerations as
their words, and tuples as any collection. Type checkers read it where a middleware is constructed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from wsrm_mq.config.settings import FarNode, Partner
from wsrm_mq.queue.policy import Acknowledge, Mode, OnFault, OnPoison
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.terms import DeliveryAssurance

Time = float | str
"""Seconds, or a duration such as ``"PT30S"``."""
Names = list[str] | tuple[str, ...] | set[str] | frozenset[str]
"""Not a text alone, which would be a list of its letters."""


class SharedKeywords(TypedDict, total=False):
    """Options that a partner may have of his own."""

    one_way: Names | Literal["auto"]
    mode: Mode | Literal["dispatch", "pull", "copy"]
    acknowledge: Acknowledge | Literal["stored", "delivered"]
    assurance: DeliveryAssurance | Literal["exactly_once", "at_least_once", "at_most_once"]
    ordered: bool
    behavior: IncompleteSequenceBehavior | Literal["NoDiscard", "DiscardFollowingFirstGap", "DiscardEntireSequence"]
    on_incomplete: Literal["deliver", "dead_letter"]
    retry: Sequence[Time]
    resend: Sequence[Time]
    on_poison: OnPoison | Literal["block", "dead_letter", "terminate"]
    on_fault: OnFault | Literal["settle", "dead_letter"]
    max_expires: Time
    inactivity: Time | None
    retain: Time | None
    retain_until_archived: bool
    max_held: int | None
    window: int | None
    require_rm: bool
    sender_fault_status: Literal[400, 500]
    strict_addressing: bool


class PartnerKeywords(SharedKeywords, total=False):
    """A partner's section."""

    principal: str | None
    path: str | None
    address: str | None
    description: str | None
    contact: str | None
    one_way_answer: Literal["acknowledgement", "empty"]
    acknowledgement_interval: Time | None
    stack: Literal["cxf", "wcf"] | None


class NodeKeywords(TypedDict, total=False):
    """The section of another node."""

    url: str | None
    site: str | None
    token_env: str | None
    ca: str | None
    certificate: str | None


class OptionKeywords(SharedKeywords, total=False):
    """All but ``store``, which a middleware has as its second argument, and ``app``, which it has as its first."""

    application: str | None
    host: str
    port: int
    threads: int
    max_connections: int
    keep_alive: Time
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["text", "json"]
    observe_host: str
    observe_port: int | None
    queues: bool
    tls_certificate: str | None
    tls_key: str | None
    behind_proxy: bool
    stomp_port: int | None
    stomp_websocket_port: int | None
    client_name_header: str | None
    node_name: str | None
    site: str | None
    paths: Names | None
    headers: Literal["pass", "demote", "strip"]
    understood: Names | None
    keep_headers: Names
    queue: str | None
    announce_rm: bool
    public_url: str | None
    verify_body: bool
    retry_faults: bool
    queue_one_way: bool
    connection_on_poison: OnPoison | Literal["block", "dead_letter", "terminate"]
    max_sequences: int | None
    hold_timeout: Time | None
    max_per_connection: int | None
    max_store: int | None
    max_body: int
    max_reply: int
    replay_targets: Names
    decoupled: Names
    send_timeout: Time
    send_ca: str | None
    send_certificate: str | None
    send_proxy: str | None
    hold_wait: Time
    max_waiting: int
    max_waiting_peer: int | None
    trusted_proxies: Names
    address_header: str | None
    connection_header: str | None
    connection_idle: Time
    partners: Mapping[str, Partner | PartnerKeywords]
    nodes: Mapping[str, FarNode | NodeKeywords]
