"""Spyne: import it on Python 3.12 and later, and answer the questions of the middleware about a Spyne application.

Spyne 2.14 brings a six of its own, whose importer speaks only the protocol that Python 3.12 removed. Once
this module is imported, ``spyne.util.six.moves`` comes from the six on PyPI; on 3.11 nothing is changed::

    import wsrm_mq.contrib.spyne_compat  # before spyne
    from spyne import Application

``pip install wsrm-mq[spyne]`` brings what it needs: six, and on 3.13 legacy-cgi. Nothing here imports Spyne.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import ModuleType
from typing import Any, Final

_MOVES: Final = "spyne.util.six.moves"
_INSTALL: Final = "Install what Spyne needs on this Python: pip install 'wsrm-mq[spyne]'."


class SixMoves(MetaPathFinder, Loader):
    """Finds ``spyne.util.six.moves`` and all below it in six."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == _MOVES or fullname.startswith(f"{_MOVES}."):
            return spec_from_loader(fullname, self)
        return None

    def exec_module(self, module: ModuleType) -> None:
        # Said here, where Spyne is known to be wanted: its own error would name the part and not the cure.
        for needed in ("six", "cgi"):
            if find_spec(needed) is None:
                raise ModuleNotFoundError(f"No module named {needed!r}. {_INSTALL}", name=needed)
        # The import system takes what it finds in sys.modules over the empty module that it made.
        sys.modules[module.__name__] = import_module(module.__name__.removeprefix("spyne.util."))


if sys.version_info >= (3, 12) and not any(isinstance(finder, SixMoves) for finder in sys.meta_path):
    sys.meta_path.append(SixMoves())


def is_spyne(app: object) -> bool:
    """Whether ``app`` is a Spyne ``Application`` or a server around one, such as ``WsgiApplication``."""
    return application_of(app) is not None


def speaks_soap(app: object) -> bool:
    """Whether ``app`` is a Spyne application that takes SOAP. It takes nothing else: Spyne has one protocol to an
    application, and does not look at the media type."""
    application = application_of(app)
    return application is not None and "soap" in application.in_protocol.type


def one_way_operations(app: object) -> frozenset[str]:
    """The operations of a Spyne application that answer nothing, as ``{namespace}name`` of the Body element.

    Such an operation returns no value and no header and declares no fault. Empty for any other application.
    """
    return frozenset(
        name
        for name, operation in _operations(app)
        if not (_members(operation.out_message) or operation.out_header or operation.faults)
    )


def has_replies(app: object) -> bool:
    """Whether an operation of a Spyne application answers something; of any other application that is not known."""
    return not (names := {name for name, _operation in _operations(app)}) or names > one_way_operations(app)


def understood_headers(app: object) -> frozenset[str]:
    """The namespaces of the SOAP headers that a Spyne application declares with ``__in_header__``."""
    headers = (header for _name, operation in _operations(app) for header in operation.in_header or ())
    return frozenset(header.get_namespace() for header in headers)


def application_of(app: Any) -> Any | None:
    """The Spyne ``Application`` that ``app`` is or is a server around; ``None`` for any other application."""
    application = getattr(sys.modules.get("spyne.application"), "Application", None)
    if application is None:
        return None  # Spyne is not imported
    return next((each for each in (app, getattr(app, "app", None)) if isinstance(each, application)), None)


def _operations(app: object) -> Iterator[tuple[str, Any]]:
    """Name and Spyne's ``MethodDescriptor`` of each operation; the first is the one whose answer is sent."""
    application = application_of(app)
    if application is not None:
        for name, operations in application.interface.service_method_map.items():
            yield name, operations[0]


def _members(message: Any) -> bool:
    """Answer whether an output message can carry anything. A bare message is the type of its value."""
    members = getattr(message, "_type_info", None)
    return members is None or len(members) > 0
