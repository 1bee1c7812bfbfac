"""The orders service of the tests for ``wsrm-mq serve``: ``application``. SERVICE_DB is where it records what it did,
BOUNDS a JSON object of bounds to lower.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.servers.bounds import lower
from tests.servers.orders import orders

lower(json.loads(os.environ.get("BOUNDS", "{}")))
application = orders(Path(os.environ["SERVICE_DB"]))
