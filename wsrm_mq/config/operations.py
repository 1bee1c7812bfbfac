"""The operations that ``one_way`` names: one by one, or all in a WSDL that have no output."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from wsrm_mq.errors import ConfigurationError

__all__ = ["named_operations"]


def named_operations(names: Iterable[str]) -> frozenset[str]:
    """``names``, a path of a ``.wsdl`` file replaced by the operations without output in it. A file that cannot be
    read is a ``ConfigurationError``: an operation taken for two-way by mistake would be waited for."""
    return frozenset(
        operation
        for name in names
        for operation in (_operations_of(Path(name)) if name.lower().endswith(".wsdl") else (name,))
    )


def _operations_of(wsdl: Path) -> frozenset[str]:
    from wsrm_mq.envelope.wsdl import one_way_operations  # lxml, which few configurations need

    try:
        return one_way_operations(wsdl)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error  # an OSError's own text repeats the path
        raise ConfigurationError(f"one_way: {wsdl} cannot be read as a WSDL: {why}.") from error
