"""What the environment says of the witness's service behind a server that imports its application.

WITNESS='{"store": …, "service_db": …, "clock": …, "work": 0.0, "options": {}}'
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.servers.clock import shifted_clock
from tests.servers.witness import NAMESPACE, Death, service


def given() -> tuple[Callable[..., Iterable[bytes]], dict[str, Any]]:
    """The service, and the arguments of a middleware around it."""
    said = json.loads(os.environ["WITNESS"])
    options = {
        "store": said["store"],
        "clock": shifted_clock(Path(said["clock"])),
        "one_way": (f"{NAMESPACE}/put_order",),
        **said["options"],
    }
    return service(Path(said["service_db"]), Death(None), said["work"]), options
