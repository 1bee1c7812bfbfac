"""The orders service of the tests for ``wsrm-mq serve``: ``application``. SERVICE_DB is where it records what it did,
BOUNDS a JSON object of bounds to lower; ONCE: with the help of the inbox; TAKES: each operation so many seconds longer.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from tests.servers.bounds import lower
from tests.servers.orders import orders

lower(json.loads(os.environ.get("BOUNDS", "{}")))
_orders: Final = orders(Path(os.environ["SERVICE_DB"]), exactly_once="ONCE" in os.environ)
_TAKES: Final = float(os.environ.get("TAKES", "0"))


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    time.sleep(_TAKES)
    return _orders(environ, start_response)
