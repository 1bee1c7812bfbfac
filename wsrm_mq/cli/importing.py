"""An application by its name, as an operator writes it."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from wsrm_mq.cli.exits import Exit, Stopped, in_a_line
from wsrm_mq.errors import WSRMError


def imported(name: str) -> Any:
    """The application that ``name`` means: ``module:attribute``."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise Stopped(f"{name!r} names no application; write MODULE:ATTRIBUTE, for example orders:app.", Exit.USAGE)
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise Stopped(f"{module} needs {error.name}, which is not installed.", Exit.USAGE) from error
        raise Stopped(f"there is no module {error.name} in {os.getcwd()} or on the Python path.", Exit.USAGE) from error
    except WSRMError:
        raise
    except Exception as error:
        raise Stopped(f"{module} cannot be imported: {in_a_line(error)}", Exit.USAGE) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Stopped(f"{module} has no attribute {attribute}.", Exit.USAGE)
        found = getattr(found, part)
    if not callable(found):
        raise Stopped(f"{name} is no application: it cannot be called.", Exit.USAGE)
    return found
