"""Settings as a file, and as plain values; and the purpose of each option, which the file tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from wsrm_mq.config.loading import FILE_NAME
from wsrm_mq.config.options import toml
from wsrm_mq.config.settings import NODE_OPTIONS, OPTIONS, PARTNER_DEFAULTS, PARTNER_OPTIONS, FarNode, Settings

DEVELOPER: Final = "developer"
INTEGRATOR: Final = "integration engineer"
OPERATOR: Final = "operator"


class Purpose(NamedTuple):
    who: str
    when: str
    """The situation in which the default is not right."""


PURPOSES: Final = {
    "store": Purpose(OPERATOR, "the data belong on another disk than the working directory"),
    "app": Purpose(OPERATOR, "`serve` is started without a name"),
    "application": Purpose(OPERATOR, "several applications share a store, or `app` was renamed"),
    "host": Purpose(OPERATOR, "clients are on other machines"),
    "port": Purpose(OPERATOR, "the port is taken, or clients know another one"),
    "threads": Purpose(OPERATOR, "operations that wait for other services answer late while the processor is idle"),
    "max_connections": Purpose(OPERATOR, "the log tells of `serve.crowded`"),
    "keep_alive": Purpose(OPERATOR, "a load balancer keeps idle connections longer, and answers 502 now and then"),
    "log_level": Purpose(OPERATOR, "a fault is looked for, or the log is too long"),
    "log_format": Purpose(OPERATOR, "a program collects the log"),
    "observe_host": Purpose(OPERATOR, "Prometheus runs on another machine"),
    "observe_port": Purpose(OPERATOR, "a monitor reads metrics or health"),
    "queues": Purpose(OPERATOR, "programs on other machines take what came, or put messages there"),
    "tls_certificate": Purpose(OPERATOR, "clients are on other machines, and no proxy stands in front"),
    "tls_key": Purpose(OPERATOR, "the key is in a file of its own"),
    "behind_proxy": Purpose(OPERATOR, "the proxy that has TLS is on another machine"),
    "stomp_port": Purpose(OPERATOR, "consumers have a library of STOMP"),
    "stomp_websocket_port": Purpose(OPERATOR, "consumers are pages in browsers"),
    "client_name_header": Purpose(OPERATOR, "programs that use the queues have certificates in place of tokens"),
    "node_name": Purpose(OPERATOR, "the name that other nodes know this one by is chosen"),
    "site": Purpose(OPERATOR, "some of the other nodes are at another site"),
    "paths": Purpose(DEVELOPER, "the application serves pages or other services too"),
    "one_way": Purpose(
        DEVELOPER,
        "the log tells of `one_way.unknown`, or old clients of a Spyne service wait for the answer of a void operation",
    ),
    "headers": Purpose(DEVELOPER, "the service answers RM headers with a MustUnderstand fault"),
    "understood": Purpose(DEVELOPER, "the service does not check mandatory headers by itself"),
    "keep_headers": Purpose(DEVELOPER, "the service misses a header; the log names it in `request.header_dropped`"),
    "require_rm": Purpose(DEVELOPER, "a message that may be lost or doubled is worse than one that is refused"),
    "announce_rm": Purpose(DEVELOPER, "the WSDL tells of reliability by itself, or clients must not find out by it"),
    "public_url": Purpose(OPERATOR, "a proxy stands in front, and the WSDL names the address behind it"),
    "sender_fault_status": Purpose(INTEGRATOR, "a partner demands the status of the SOAP 1.2 binding"),
    "strict_addressing": Purpose(INTEGRATOR, "a partner's stack is tested for conformance"),
    "verify_body": Purpose(DEVELOPER, "broken bodies are acknowledged, fail in the service and block their sequence"),
    "mode": Purpose(DEVELOPER, "other programs take the messages at their own pace, or are told of them"),
    "queue": Purpose(
        DEVELOPER, "programs know the queue by another name, or one queue has what comes to several paths"
    ),
    "acknowledge": Purpose(INTEGRATOR, "a partner takes an acknowledgement for proof that the service has worked"),
    "assurance": Purpose(DEVELOPER, "doing an operation twice is worse than never, or its effects may repeat"),
    "ordered": Purpose(DEVELOPER, "messages are independent of one another, and a gap delays them"),
    "behavior": Purpose(DEVELOPER, "messages behind a lost one must not be processed"),
    "on_incomplete": Purpose(DEVELOPER, "an operator is to decide about messages behind a gap that stays"),
    "retry": Purpose(OPERATOR, "what the service depends on is away longer, or recovers sooner"),
    "retry_faults": Purpose(DEVELOPER, "the service answers a fault for what will pass, as while its database is away"),
    "on_poison": Purpose(DEVELOPER, "later messages are worth more than the order, or the source has to be told"),
    "on_fault": Purpose(
        DEVELOPER, "what the service turns down is repaired and delivered again, or the sender is told"
    ),
    "queue_one_way": Purpose(DEVELOPER, "clients without WS-ReliableMessaging send messages that must not be lost"),
    "connection_on_poison": Purpose(DEVELOPER, "messages without WS-ReliableMessaging depend on one another"),
    "max_expires": Purpose(INTEGRATOR, "a client keeps one sequence for longer than a week"),
    "inactivity": Purpose(OPERATOR, "clients leave sequences open, and reach `max_sequences`"),
    "max_sequences": Purpose(
        OPERATOR, "`status` shows refused CreateSequences, or many clients have a proxy's address"
    ),
    "max_held": Purpose(OPERATOR, "a source that never fills its gaps fills the disk"),
    "window": Purpose(INTEGRATOR, "a client is to send no faster than its gaps are filled, or in order only"),
    "hold_timeout": Purpose(
        INTEGRATOR, "a stack sends again what it is asked for (gSOAP), or gaps are to be told sooner"
    ),
    "max_per_connection": Purpose(OPERATOR, "one client floods the store, and others wait behind it"),
    "max_store": Purpose(OPERATOR, "the disk is shared, and must not be filled"),
    "max_body": Purpose(DEVELOPER, "requests are answered 413, or the service never takes so much"),
    "max_reply": Purpose(DEVELOPER, "deliveries fail because the answer is too large"),
    "retain": Purpose(OPERATOR, "content may not be kept so long, or must be kept longer"),
    "retain_until_archived": Purpose(OPERATOR, "nothing may be deleted here before an archive has it"),
    "replay_targets": Purpose(OPERATOR, "messages are replayed to a service in a private network, or on this machine"),
    "decoupled": Purpose(INTEGRATOR, "a partner gives an address of its own for acknowledgements and replies"),
    "resend": Purpose(OPERATOR, "a partner's endpoint is away for longer than a day, or is to be given up sooner"),
    "send_timeout": Purpose(OPERATOR, "a partner's endpoint answers later, or what hangs is to be given up sooner"),
    "send_ca": Purpose(OPERATOR, "a partner's certificate is of an authority that the system does not know"),
    "send_certificate": Purpose(INTEGRATOR, "a partner's endpoint asks for a certificate of the client"),
    "send_proxy": Purpose(OPERATOR, "this machine reaches partners through a proxy only"),
    "hold_wait": Purpose(INTEGRATOR, "clients or proxies give up sooner, or operations run longer"),
    "max_waiting": Purpose(OPERATOR, "two-way requests get an empty 202 while the server has threads to spare"),
    "max_waiting_peer": Purpose(OPERATOR, "the waiting requests of one client shut out those of others"),
    "trusted_proxies": Purpose(OPERATOR, "a proxy stands in front"),
    "address_header": Purpose(OPERATOR, "`status` and `explain` show a proxy's address in place of the sender's"),
    "connection_header": Purpose(OPERATOR, "the order of messages without WS-ReliableMessaging has to survive a proxy"),
    "connection_idle": Purpose(OPERATOR, "a server that does not show the end of connections keeps idle ones longer"),
    "principal": Purpose(INTEGRATOR, "the partner is authenticated"),
    "path": Purpose(DEVELOPER, "an endpoint needs other promises than the rest"),
    "address": Purpose(INTEGRATOR, "only the address tells the partner apart"),
    "description": Purpose(OPERATOR, "the name of the section does not tell who the partner is"),
    "contact": Purpose(OPERATOR, "an operator at night has to reach the partner"),
    "one_way_answer": Purpose(INTEGRATOR, "a client reports an error for an answer with content to a one-way message"),
    "acknowledgement_interval": Purpose(
        INTEGRATOR,
        "a client gets empty answers, never asks, and sends again; or acknowledgements are sent to it too often",
    ),
    "stack": Purpose(
        INTEGRATOR,
        "a WCF client with flow control ends its sequence when it gets 503; the User-Agent of a CXF client does not "
        "come through",
    ),
}
"""The purpose of every option, general or of a partner."""


def as_values(settings: Settings) -> dict[str, Any]:
    """Convert every option to a value of JSON; a partner has only the options that it sets."""
    values: dict[str, Any] = msgspec.to_builtins(settings)
    for name, partner in settings.partners.items():
        kept = values["partners"][name]
        values["partners"][name] = {
            option: kept[option]
            for option, default in PARTNER_DEFAULTS.items()
            if getattr(partner, option) is not default
        }
    values["nodes"] = {name: _given(one) for name, one in settings.nodes.items()}
    return values


def _given(node: FarNode) -> dict[str, str]:
    return {option: value for option, value in msgspec.structs.asdict(node).items() if value is not None}


def as_toml(settings: Settings, origins: Mapping[str, str] | None = None) -> str:
    """Write ``settings`` as a file that ``load`` reads to equal settings. Each option has its meaning as a comment; an
    option with its default is commented out. ``origins`` are noted behind the values."""
    lines = [f"# {FILE_NAME}: options of wsrm_mq. Flags and WSRM_MQ_<OPTION> stand above this file."]
    defaults = Settings()
    for option, kind in OPTIONS.items():
        value = getattr(settings, option)
        mark = "# " if value == getattr(defaults, option) else ""
        origin = f"  # {origins[option]}" if origins else ""
        purpose = PURPOSES[option]
        lines += ["", f"# {kind.description}", f"# Changed by the {purpose.who}: {purpose.when}."]
        lines += [f"# {kind.allowed}", f"{mark}{option} = {toml(value)}{origin}"]
    lines += [
        "",
        "# A partner: the principal, path and address given all have to fit; what may differ for it is",
        f"# {', '.join(option for option in PARTNER_OPTIONS if option in OPTIONS)}.",
        "# [partner.NAME]",
    ]
    for option, kind in PARTNER_OPTIONS.items():
        if option not in OPTIONS:
            lines += [f"# {option} = {toml(PARTNER_DEFAULTS[option])}  # {kind.description}"]
    for name, partner in settings.partners.items():
        own = {option: getattr(partner, option) for option in PARTNER_OPTIONS}
        lines += ["", f"[partner.{toml(name)}]"]
        lines += [f"{option} = {toml(v)}" for option, v in own.items() if v is not PARTNER_DEFAULTS[option]]
    lines += [
        "",
        "# Another node, whose queues are seen and mirrored here, and which sees those here.",
        "# [node.NAME]",
    ]
    lines += [f"# {option} = {toml(None)}  # {kind.description}" for option, kind in NODE_OPTIONS.items()]
    for name, node in settings.nodes.items():
        lines += ["", f"[node.{toml(name)}]", *(f"{option} = {toml(value)}" for option, value in _given(node).items())]
    return "\n".join(lines) + "\n"
