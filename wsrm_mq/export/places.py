"""Places of exports and archives, which lie on this machine."""

from __future__ import annotations

import os
import re
from typing import Final

from wsrm_mq.errors import ConfigurationError

_FILE: Final = re.compile(r"^file:(//(localhost)?)?(?=/)", re.I)
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def on_this_machine(path: str) -> str:
    """The path that ``path`` is, also where it is an address ``file:``. Raises ``ConfigurationError`` for any other
    address: its name would become that of a directory here."""
    plain = _FILE.sub("", path)
    if (address := _ADDRESS.match(plain)) and not os.path.lexists(plain):
        raise ConfigurationError(
            f"{path}: addresses with {address[1]}: are not supported yet. Mount it, or copy it to this machine, and "
            "name its path."
        )
    return plain
