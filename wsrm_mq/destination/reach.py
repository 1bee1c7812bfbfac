"""The endpoints that this side sends to: those that a list of the operator's allows, and none where there is no list.

They are judged before anything is stored, and the addresses that they resolve to are judged again when something is
sent (``outbound``). Nothing here waits for a name server: a name that has to be looked up first is raised, and the
front knows how to wait. The refusal that the sender gets does not say the addresses of a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from wsrm_mq.envelope.headers import Headers
from wsrm_mq.errors import NotAllowed
from wsrm_mq.remembered import Recent
from wsrm_mq.sequence.elements import EndpointReference
from wsrm_mq.versions import ADDRESSING_VERSIONS, MAKE_CONNECTION_NAMESPACE, WSRM_1_1

if TYPE_CHECKING:
    from wsrm_mq.outbound.addresses import Allowed
    from wsrm_mq.outbound.names import Names

OPTION: Final = "decoupled"
_SCHEMES: Final = ("http", "https")
_SYMBOLS: Final = (MAKE_CONNECTION_NAMESPACE, *ADDRESSING_VERSIONS)
"""The beginnings of addresses that stand for something (anonymous, none, to be fetched) and have the form of a host's:
a message that names one of another version means no web server of W3C or OASIS."""
_LONGEST: Final = 2_048
"""Characters: it is shown to operators, and stands in the log with each attempt."""
_JUDGED: Final = 1_024
"""Addresses that are known to be allowed: they are judged again when something is sent there."""


class Reach:
    """Judges endpoints by ``listed``, the value of the option ``decoupled``."""

    def __init__(self, listed: Sequence[str] = ()) -> None:
        self._allowed: Allowed | None = None
        self.names: Names
        """The names that were looked up; only where something is ``listed``."""
        if listed:
            from wsrm_mq.outbound.addresses import Allowed
            from wsrm_mq.outbound.names import Names

            self._allowed, self.names = Allowed.listed(OPTION, listed), Names()
        self._judged: Recent[str, bool] = Recent(_JUDGED)

    def refusal(self, endpoint: EndpointReference | None, header: str, headers: Headers) -> str:
        """The reason why nothing is sent to the endpoint in ``header``; empty: something may be, or nothing has to be.
        Raises ``NameNotKnown`` and ``NameServerSilent``."""
        addressing, rm = headers.addressing, headers.rm or WSRM_1_1
        assert addressing is not None
        if endpoint is None or endpoint.address == addressing.anonymous or rm.is_fetched(endpoint.address):
            return ""
        if len(endpoint.address) > _LONGEST:
            return f"{header} is no address that can be sent to: it has more than {_LONGEST} characters."
        scheme, host = _place(endpoint.address)
        is_address = scheme in _SCHEMES and bool(host) and endpoint.address != addressing.none
        if not is_address:
            return f"{header} is no address that can be sent to: it has to begin with http:// or https://."
        if endpoint.address.startswith(_SYMBOLS):
            return f"{header} is {endpoint.address}, which stands for no place in the versions of this message."
        if self._may_be_sent_to(endpoint.address):
            return ""
        return (
            f"{header} has to be the anonymous address {addressing.anonymous}: nothing is sent to "
            f'{scheme}://{host} from here. An operator can allow it: {OPTION} = ["{scheme}://{host}"].'
        )

    def _may_be_sent_to(self, url: str) -> bool:
        if self._allowed is None:
            return False
        if self._judged.get(url):
            return True
        from wsrm_mq.outbound.addresses import check_url

        try:
            check_url(url, self._allowed, self.names.known)
        except NotAllowed:
            return False
        if len(url) < 1_024:
            self._judged.keep(url, True)
        return True


def _place(address: str) -> tuple[str, str]:
    """Scheme and host; both empty where it is no URL."""
    try:
        parts = urlsplit(address)
    except ValueError:  # http://[::1
        return "", ""
    return parts.scheme, parts.netloc
