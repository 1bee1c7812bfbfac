"""Queues are offered on this machine alone, unless a principal may use them and what they show is not read on the
way."""

from __future__ import annotations

from ipaddress import ip_address

from wsrm_mq.errors import ConfigurationError


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_exposed(host: str, *, has_tokens: bool, has_tls: bool, behind_proxy: bool) -> None:
    """Raises ``ConfigurationError`` where other machines reach ``host`` and that is not safe, or of no use."""
    if is_loopback(host):
        return
    problems = []
    if not has_tokens:
        problems.append(
            f"host {host} is reached from other machines, and no token lets anybody use the queues. Make one first: "
            "`wsrm-mq token add`."
        )
    if not (has_tls or behind_proxy):
        problems.append(
            f"host {host} is reached from other machines, and tokens and messages would be read on the way. Name "
            "tls_certificate, or set behind_proxy = true where a proxy in front has TLS, or listen on 127.0.0.1."
        )
    if problems:
        raise ConfigurationError(*problems)
