"""The options: type and default; and the policy of a queue that follows from them. ``template.toml`` has the meaning of
each, and who changes it when."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from wsrm_mq.config.options import Count, Kind, Port, Seconds, Size, Span, kinds
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.policy import MAX_RANGES, Acknowledge, Mode, OnFault, OnPoison, QueuePolicy, Resend
from wsrm_mq.queue.room import Room
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.terms import Bounds, DeliveryAssurance

OnIncomplete = Literal["deliver", "dead_letter"]


class Partner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The habits and limits of a peer. A request is the peer's if it fits all marks that are given. An option that is
    left out (``None``; ``UNSET`` where ``None`` is a value) has the value of ``Settings``."""

    principal: str | None = None
    path: str | None = None
    address: str | None = None
    description: str | None = None
    contact: str | None = None
    one_way_answer: Literal["acknowledgement", "empty"] = "acknowledgement"
    acknowledgement_interval: Span | None = None
    stack: Literal["cxf", "wcf"] | None = None
    one_way: tuple[str, ...] | Literal["auto"] | None = None
    mode: Mode | None = None
    acknowledge: Acknowledge | None = None
    assurance: DeliveryAssurance | None = None
    ordered: bool | None = None
    behavior: IncompleteSequenceBehavior | None = None
    on_incomplete: OnIncomplete | None = None
    retry: tuple[float, ...] | None = None
    resend: tuple[float, ...] | None = None
    on_poison: OnPoison | None = None
    on_fault: OnFault | None = None
    max_expires: float | None = None
    inactivity: float | UnsetType | None = UNSET
    retain: float | UnsetType | None = UNSET
    retain_until_archived: bool | None = None
    max_held: int | UnsetType | None = UNSET
    window: int | UnsetType | None = UNSET
    require_rm: bool | None = None
    sender_fault_status: Literal[400, 500] | None = None
    strict_addressing: bool | None = None


class FarNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another node of the enterprise. A token of its name is what it shows here."""

    url: str | None = None
    site: str | None = None
    token_env: str | None = None
    ca: str | None = None
    certificate: str | None = None

    def token(self, name: str) -> str | None:
        """The token, without the line's end of a file that it was read from. Raises ``ConfigurationError``."""
        if self.token_env is None:
            return None
        token = os.environ.get(self.token_env, "").strip()
        if not token:
            raise ConfigurationError(
                f"node.{name}: the environment has no {self.token_env}; it has the token that {name} knows this node "
                "by: `wsrm-mq token add` makes it there."
            )
        if not token.isascii() or not token.isprintable():
            raise ConfigurationError(
                f"node.{name}: what the environment has as {self.token_env} is no token, which is one line of ASCII "
                "characters: write there what `wsrm-mq token add` has answered."
            )
        return token


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All options, as values that can be used: times in seconds, sizes in bytes. ``load`` and
    ``settings_from`` make one that is checked."""

    store: str = "wsrm.db"
    app: str | None = None
    application: str | None = None
    host: str = "127.0.0.1"
    port: Port = 8080
    threads: Count = 64
    max_connections: Count = 1_000
    keep_alive: Seconds = 120.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    observe_host: str = "127.0.0.1"
    observe_port: Port | None = None

    queues: bool = False
    tls_certificate: str | None = None
    tls_key: str | None = None
    behind_proxy: bool = False
    stomp_port: Port | None = None
    stomp_websocket_port: Port | None = None
    client_name_header: str | None = None

    node_name: str | None = None
    site: str | None = None

    paths: tuple[str, ...] | None = None
    one_way: tuple[str, ...] | Literal["auto"] = "auto"
    headers: Literal["pass", "demote", "strip"] = "pass"
    understood: tuple[str, ...] | None = None
    keep_headers: tuple[str, ...] = ()
    require_rm: bool = False
    announce_rm: bool = True
    public_url: str | None = None
    sender_fault_status: Literal[400, 500] = 500
    strict_addressing: bool = False
    verify_body: bool = False

    mode: Mode = Mode.DISPATCH
    queue: str | None = None
    acknowledge: Acknowledge = Acknowledge.STORED
    assurance: DeliveryAssurance = DeliveryAssurance.EXACTLY_ONCE
    ordered: bool = True
    behavior: IncompleteSequenceBehavior = IncompleteSequenceBehavior.NO_DISCARD
    on_incomplete: OnIncomplete = "deliver"
    retry: tuple[Seconds, ...] = (1.0, 5.0, 15.0, 60.0, 300.0)
    retry_faults: bool = False
    on_poison: OnPoison = OnPoison.BLOCK
    on_fault: OnFault = OnFault.SETTLE

    queue_one_way: bool = False
    connection_on_poison: OnPoison = OnPoison.DEAD_LETTER

    max_expires: Seconds = 7 * 86_400.0
    inactivity: Seconds | None = None
    max_sequences: Count | None = 10_000
    max_held: Size | None = 1_000_000
    window: Count | None = None
    hold_timeout: Seconds | None = 300.0
    max_per_connection: Count | None = None
    max_store: Count | None = None
    max_body: Count = 256 * 1024 * 1024
    max_reply: Annotated[int, Meta(ge=1, le=900_000_000)] = 256 * 1024 * 1024

    retain: Span | None = 7 * 86_400.0

    retain_until_archived: bool = False

    replay_targets: tuple[str, ...] = ()

    decoupled: tuple[str, ...] = ()
    resend: tuple[Seconds, ...] = (
        3.0,
        10.0,
        30.0,
        120.0,
        600.0,
        1_800.0,
        3_600.0,
        7_200.0,
        14_400.0,
        28_800.0,
        28_800.0,
    )
    send_timeout: Seconds = 30.0
    send_ca: str | None = None
    send_certificate: str | None = None
    send_proxy: str | None = None

    hold_wait: Span = 10.0
    max_waiting: Size = 4
    max_waiting_peer: Size | None = None

    trusted_proxies: tuple[str, ...] = ()
    address_header: str | None = None
    connection_header: str | None = None
    connection_idle: Seconds = 300.0

    partners: dict[str, Partner] = {}
    nodes: dict[str, FarNode] = {}

    def effective(self, option: str, partner: Partner | None = None) -> Any:
        """The value of ``option`` for ``partner``: its own, or the general one."""
        if partner is not None and option in PARTNER_DEFAULTS:
            own = getattr(partner, option)
            if own is not PARTNER_DEFAULTS[option] or option not in OPTIONS:
                return own
        return getattr(self, option)

    def replace(self, **values: Any) -> Settings:
        """These settings with other ``values``, which are taken as they are."""
        return msgspec.structs.replace(self, **values)

    def policy(self, partner: Partner | None = None) -> QueuePolicy:
        """The promises of a queue to ``partner``.

        ``on_incomplete="dead_letter"`` under NoDiscard is announced as what it is, DiscardFollowingFirstGap;
        the dead letters then say that the sequence was terminated (Q-046).
        """

        def of(option: str) -> Any:
            return self.effective(option, partner)

        behavior = of("behavior")
        gives_up = of("on_incomplete") == "dead_letter" and behavior is IncompleteSequenceBehavior.NO_DISCARD
        return QueuePolicy(
            mode=of("mode"),
            retry=tuple(map(_ms, of("retry"))),
            resend=Resend(tuple(map(_ms, of("resend")))),
            on_poison=of("on_poison"),
            on_fault=of("on_fault"),
            acknowledge=of("acknowledge"),
            behavior=IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP if gives_up else behavior,
            incomplete_reason="sequence_terminated" if gives_up else "first_gap",
            assurance=of("assurance"),
            ordered=of("ordered"),
            max_expires=_ms(of("max_expires")),
            inactivity=_ms_or_none(of("inactivity")),
            retain=_ms_or_none(of("retain")),
            retain_until_archived=of("retain_until_archived"),
            bounds=Bounds(max_held=of("max_held"), max_ranges=MAX_RANGES, window=of("window")),
            room=Room(
                max_sequences=self.max_sequences,
                max_per_connection=self.max_per_connection,
                max_store=self.max_store,
            ),
            tells_room=partner is not None and partner.stack == "wcf",
            acknowledgement_interval=None if partner is None else _ms_or_none(partner.acknowledgement_interval),
            retry_faults=self.retry_faults,
            connection_idle=_ms(self.connection_idle),
            connection_on_poison=self.connection_on_poison,
        )

    def policies(self) -> list[QueuePolicy]:
        """The policies of peers without a section, and of each partner."""
        return [self.policy(partner) for partner in (None, *self.partners.values())]

    def partner_for(self, principal: str | None, path: str, address: str | None) -> tuple[str, Partner] | None:
        """The first partner, in the order of the file, all of whose marks fit the request; with its name."""
        for name, partner in self.partners.items():
            fits = (
                partner.principal in (None, principal),
                partner.path is None or under(partner.path, path),
                partner.address is None or _inside(address, partner.address),
            )
            if all(fits):
                return name, partner
        return None


def under(prefix: str, path: str) -> bool:
    """Whether ``path`` is ``prefix`` or below it: ``/soap`` covers ``/soap/orders``, not ``/soapbox``."""
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")


def _inside(address: str | None, network: str) -> bool:
    try:
        return ipaddress.ip_address(address or "") in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _ms_or_none(seconds: float | None) -> int | None:
    return None if seconds is None else _ms(seconds)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


OPTIONS: Final[Mapping[str, Kind]] = {
    name: kind for name, kind in kinds(Settings).items() if name not in ("partners", "nodes")
}
"""Every option but the partners and the other nodes."""

PARTNER_OPTIONS: Final[Mapping[str, Kind]] = {name: OPTIONS.get(name, kind) for name, kind in kinds(Partner).items()}
PARTNER_DEFAULTS: Final = {field.name: field.default for field in msgspec.structs.fields(Partner)}
NODE_OPTIONS: Final[Mapping[str, Kind]] = kinds(FarNode)
