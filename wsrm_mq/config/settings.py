"""The options: type, default, meaning; and the policy of a queue that follows from them."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from wsrm_mq.config.options import Count, Kind, Seconds, Size, described, kinds
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.policy import MAX_RANGES, Acknowledge, Mode, OnFault, OnPoison, QueuePolicy, Resend
from wsrm_mq.queue.room import Room
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.terms import Bounds, DeliveryAssurance

OnIncomplete = Literal["deliver", "dead_letter"]


class Partner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The habits and limits of a peer. A request is the peer's if it fits all marks that are given. An option that is
    left out (``None``; ``UNSET`` where ``None`` is a value) has the value of ``Settings``."""

    principal: Annotated[str | None, described("The name that `authenticate` answers.")] = None
    path: Annotated[str | None, described("A path, with all below it.")] = None
    address: Annotated[str | None, described("An address or a network, such as 10.1.0.0/16.")] = None
    description: Annotated[str | None, described("Who or what it is, for operators.")] = None
    contact: Annotated[str | None, described("A telephone number or address, for when its messages are stuck.")] = None
    one_way_answer: Annotated[
        Literal["acknowledgement", "empty"],
        described("What answers a one-way message; an empty answer makes a Metro client resend for ever."),
    ] = "acknowledgement"
    acknowledgement_interval: Annotated[
        Annotated[float, Meta(ge=0, le=1e10)] | None,
        described(
            "How long an acknowledgement may be put off, of empty answers and to an address; none: until one is asked "
            "for, and 0.2 seconds."
        ),
    ] = None
    stack: Annotated[
        Literal["cxf", "wcf"] | None,
        described(
            "What it runs; wcf is told how many messages there is room for, in place of 503; cxf of a request with its "
            "reply alone, until that is acknowledged. CXF's User-Agent says it too."
        ),
    ] = None
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

    url: Annotated[str | None, described("Where its queue server is, such as https://host/queues.")] = None
    site: Annotated[str | None, described("The site that it is of; its neighbours there say the same.")] = None
    token_env: Annotated[
        str | None, described("The environment variable with the token that its server knows this node by.")
    ] = None
    ca: Annotated[
        str | None, described("File with the certificates, as PEM, of who vouches for its server; none: the system's.")
    ] = None
    certificate: Annotated[
        str | None, described("File with a certificate and its key, as PEM, that its server is shown.")
    ] = None

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

    store: Annotated[str, described("The store: a path or sqlite:///path; in a directory, its store.db.")] = "wsrm.db"
    app: Annotated[str | None, described("What `wsrm-mq serve` serves, as module:attribute.")] = None
    application: Annotated[
        str | None,
        described("The name of the application in a store that several use; `serve` takes that of `app`."),
    ] = None
    host: Annotated[str, described("Address that `serve` and `queue-server` listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="Its port; 0 takes a free one.")] = 8080
    threads: Annotated[
        Count,
        described("Threads for two-way operations; of an event loop, as many for requests without WS-RM."),
    ] = 64
    max_connections: Annotated[
        Count, described("Connections of `serve` at a time; an idle one is closed for a new one, else 503.")
    ] = 1_000
    keep_alive: Annotated[Seconds, described("How long `serve` keeps a connection without a request.")] = 120.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], described("What `serve` logs, on standard error.")
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"], described("How `serve` logs: lines for people, or one JSON object a line.")
    ] = "text"
    observe_host: Annotated[str, described("Address of /metrics and /healthz of `serve`.")] = "127.0.0.1"
    observe_port: Annotated[
        Annotated[int, Meta(ge=0, le=65_535)] | None,
        described("Port of /metrics and /healthz of `serve`; none: closed."),
    ] = None

    queues: Annotated[
        bool, described("Whether `serve` offers the queues of the store too, below /queues, to who has a token.")
    ] = False
    tls_certificate: Annotated[
        str | None,
        described("File with the certificate of the server and of who vouches for it, as PEM; none: no TLS."),
    ] = None
    tls_key: Annotated[str | None, described("File with the key of that; none: it is in the same file.")] = None
    behind_proxy: Annotated[
        bool, described("A proxy in front has TLS: queues may be offered without, where other machines reach them.")
    ] = False
    stomp_port: Annotated[
        Annotated[int, Meta(ge=0, le=65_535)] | None,
        described("Port where the queues are offered over STOMP too; 0 takes a free one; none: closed."),
    ] = None
    stomp_websocket_port: Annotated[
        Annotated[int, Meta(ge=0, le=65_535)] | None, described("Port of STOMP over WebSockets, in the same way.")
    ] = None
    client_name_header: Annotated[
        str | None,
        described("Header in which a trusted proxy names the TLS client, as `token add --certificate` does."),
    ] = None

    node_name: Annotated[
        str | None, described("The name of this node for the others; none: that of its host and its store.")
    ] = None
    site: Annotated[str | None, described("The site of this node, as sections [node.NAME] say those of others.")] = None

    paths: Annotated[
        tuple[str, ...] | None,
        described("Paths that speak WS-ReliableMessaging, with all below them; none: every path."),
    ] = None
    one_way: Annotated[
        tuple[str, ...] | Literal["auto"],
        described(
            'Operations without answer: actions, {namespace}names, .wsdl files; "auto" asks the service, which is '
            "Spyne or has a WSDL."
        ),
    ] = "auto"
    headers: Annotated[
        Literal["pass", "demote", "strip"],
        described("RM headers on their way to the service: as they came, without mustUnderstand, cut out."),
    ] = "pass"
    understood: Annotated[
        tuple[str, ...] | None,
        described("Header namespaces that the service understands; none: it checks by itself."),
    ] = None
    keep_headers: Annotated[
        tuple[str, ...],
        described("HTTP headers that are stored with a message, and given to the service, beside the usual ones."),
    ] = ()
    require_rm: Annotated[bool, described("Refuse messages without WS-ReliableMessaging.")] = False
    announce_rm: Annotated[
        bool,
        described("Put WS-ReliableMessaging into the WSDL: as required where `require_rm` says so, else as optional."),
    ] = True
    public_url: Annotated[
        str | None,
        described("Where clients reach the server that a proxy stands in front of; the WSDL says it. None: as it is."),
    ] = None
    sender_fault_status: Annotated[
        Literal[400, 500],
        described(
            "HTTP status of a SOAP 1.2 fault that is the sender's; CXF and WCF clients do not read one under 400."
        ),
    ] = 500
    strict_addressing: Annotated[bool, described("Refuse messages that break a MUST of WS-Addressing.")] = False
    verify_body: Annotated[bool, described("Check that a body is well-formed before it is acknowledged.")] = False

    mode: Annotated[
        Mode,
        described(
            "Who takes what arrives: the service; programs that consume one-way messages; or the service, and "
            "subscriptions get copies."
        ),
    ] = Mode.DISPATCH
    queue: Annotated[str | None, described("The name of the queue of what arrives; none: the path it came to.")] = None
    acknowledge: Annotated[Acknowledge, described("When an acknowledgement names a message.")] = Acknowledge.STORED
    assurance: Annotated[DeliveryAssurance, described("What the service is promised.")] = DeliveryAssurance.EXACTLY_ONCE
    ordered: Annotated[bool, described("Deliver in the order of the message numbers.")] = True
    behavior: Annotated[
        IncompleteSequenceBehavior, described("What becomes of a sequence that ends with numbers missing.")
    ] = IncompleteSequenceBehavior.NO_DISCARD
    on_incomplete: Annotated[
        OnIncomplete,
        described("What is held when a NoDiscard sequence ends; dead_letter announces another behavior."),
    ] = "deliver"
    retry: Annotated[
        tuple[Seconds, ...], described("Waits before the second, third, … try of a delivery that failed.")
    ] = (1.0, 5.0, 15.0, 60.0, 300.0)
    retry_faults: Annotated[bool, described("Try again after any fault of a two-way operation.")] = False
    on_poison: Annotated[OnPoison, described("What follows when the last try has failed.")] = OnPoison.BLOCK
    on_fault: Annotated[
        OnFault,
        described("A one-way message that the service answers with a Sender fault: delivered, or a dead letter."),
    ] = OnFault.SETTLE

    queue_one_way: Annotated[
        bool, described("Store one-way messages without WS-ReliableMessaging too, in order for each connection.")
    ] = False
    connection_on_poison: Annotated[
        OnPoison, described("What follows when the last try has failed for a message without WS-ReliableMessaging.")
    ] = OnPoison.DEAD_LETTER

    max_expires: Annotated[Seconds, described("Longest life that a sequence is granted.")] = 7 * 86_400.0
    inactivity: Annotated[Seconds | None, described("A sequence without traffic for so long ends.")] = None
    max_sequences: Annotated[
        Count | None, described("Open sequences of one peer: a principal, without one an address.")
    ] = 10_000
    max_held: Annotated[Size | None, described("Messages of one sequence that may wait behind a gap.")] = 1_000_000
    window: Annotated[
        Count | None,
        described("How far above the first missing number one is accepted; 1: out of order none is, and none is held."),
    ] = None
    hold_timeout: Annotated[
        Seconds | None,
        described("A gap older than that is told, and by Nack asked for where its source has an address."),
    ] = 300.0
    max_per_connection: Annotated[
        Count | None, described("Messages of one connection that may be in the store undelivered.")
    ] = None
    max_store: Annotated[Count | None, described("Bytes in the store above which only what fills a gap is taken.")] = (
        None
    )
    max_body: Annotated[Count, described("Largest request body.")] = 256 * 1024 * 1024
    max_reply: Annotated[
        Annotated[int, Meta(ge=1, le=900_000_000)], described("Largest answer of the service, expanded.")
    ] = 256 * 1024 * 1024

    retain: Annotated[
        Annotated[float, Meta(ge=0, le=1e10)] | None, described("How long a settled message is kept.")
    ] = 7 * 86_400.0

    retain_until_archived: Annotated[
        bool, described("A settled message is kept, whatever `retain` says, until an archive is known to hold it.")
    ] = False

    replay_targets: Annotated[
        tuple[str, ...],
        described(
            "Addresses that `replay` may send to although they lead into a private network, with all below them."
        ),
    ] = ()

    decoupled: Annotated[
        tuple[str, ...],
        described(
            "Where acknowledgements and replies may be sent to: https://host, with all below it, names of hosts, "
            'networks, or "public" for all of the Internet.'
        ),
    ] = ()
    resend: Annotated[
        tuple[Seconds, ...],
        described("Waits before the second, third, … sending of what was not taken, or not acknowledged."),
    ] = (3.0, 10.0, 30.0, 120.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 28_800.0, 28_800.0)
    send_timeout: Annotated[Seconds, described("How long an answer is waited for where something is sent.")] = 30.0
    send_ca: Annotated[
        str | None, described("File with the certificates, as PEM, of who vouches for servers; none: the system's.")
    ] = None
    send_certificate: Annotated[
        str | None, described("File with a certificate and its key, as PEM, that servers are shown.")
    ] = None
    send_proxy: Annotated[str | None, described("URL of a proxy that all goes through that is sent.")] = None

    hold_wait: Annotated[float, Meta(ge=0, le=1e10, description="How long a two-way request waits.")] = 10.0
    max_waiting: Annotated[Size, described("Requests that may wait at a time for a gap or a running duplicate.")] = 4
    max_waiting_peer: Annotated[
        Size | None, described("Requests of one peer that may wait at a time, for whatever.")
    ] = None

    trusted_proxies: Annotated[
        tuple[str, ...], described("Addresses and networks of proxies whose headers are believed.")
    ] = ()
    address_header: Annotated[
        str | None,
        described("Header in which trusted proxies append their client's address: X-Forwarded-For, Forwarded."),
    ] = None
    connection_header: Annotated[
        str | None, described("Header in which a trusted proxy names the client's connection.")
    ] = None
    connection_idle: Annotated[
        Seconds,
        described("A connection without a request for so long is over, where the server does not show its end."),
    ] = 300.0

    partners: dict[str, Partner] = {}
    nodes: dict[str, FarNode] = {}

    def effective(self, option: str, partner: Partner | None = None) -> Any:
        """The value of ``option`` for ``partner``: its own, or the general one."""
        if partner is not None and option in PARTNER_DEFAULTS:
            own = getattr(partner, option)
            if own is not PARTNER_DEFAULTS[option]:
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
            inactivity=None if of("inactivity") is None else _ms(of("inactivity")),
            retain=None if of("retain") is None else _ms(of("retain")),
            retain_until_archived=of("retain_until_archived"),
            bounds=Bounds(max_held=of("max_held"), max_ranges=MAX_RANGES, window=of("window")),
            room=Room(
                max_sequences=self.max_sequences,
                max_per_connection=self.max_per_connection,
                max_store=self.max_store,
            ),
            tells_room=partner is not None and partner.stack == "wcf",
            acknowledgement_interval=_interval(partner),
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


def _interval(partner: Partner | None) -> int | None:
    if partner is None or partner.acknowledgement_interval is None:
        return None
    return _ms(partner.acknowledgement_interval)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


OPTIONS: Final[Mapping[str, Kind]] = {
    name: kind for name, kind in kinds(Settings).items() if name not in ("partners", "nodes")
}
"""Every option but the partners and the other nodes."""

PARTNER_OPTIONS: Final[Mapping[str, Kind]] = {name: OPTIONS.get(name, kind) for name, kind in kinds(Partner).items()}
PARTNER_DEFAULTS: Final = {field.name: field.default for field in msgspec.structs.fields(Partner)}
NODE_OPTIONS: Final[Mapping[str, Kind]] = kinds(FarNode)
