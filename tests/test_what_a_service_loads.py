"""A wrapped service: its process loads what each service needs, and while the store is written nothing more."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

MOST: Final = 114
"""Modules; each that comes has to be one that every service needs."""
STOREYS: Final = {
    *("wsrm_mq.contrib.spyne_errors", "wsrm_mq.tracing.making", "wsrm_mq.delivery.hearing", "wsrm_mq.delivery.posting"),
    *("wsrm_mq.envelope.arrived_fault", "wsrm_mq.envelope.wsdl", "wsrm_mq.node", "wsrm_mq.outbound", "wsrm_mq.source"),
    *(f"wsrm_mq.queue.{name}" for name in ("declaring", "policies", "polling", "promoting", "reporting", "topics")),
    *(f"wsrm_mq.queue.{name}" for name in ("routing", "express", "journaling", "unsequenced", "hopping")),
    *("wsrm_mq.routes", "wsrm_mq.server", "wsrm_mq.views"),
}

USE: Final = """
    import json, sys
    from pathlib import Path
    from tests.support.in_process import FACTORY, TWO_WAY, InProcess, taken, until

    def loaded():
        return {name for name in sys.modules if name.startswith("wsrm_mq")}

    def answered(environ, start_response):
        body = environ["wsgi.input"].read()
        start_response("200 OK", [("Content-Type", environ["CONTENT_TYPE"])])
        return [body]

    options = json.loads(sys.argv[2])
    wsrm = InProcess(Path(sys.argv[1]), answered, **options)
    wsrm.middleware.start()
    before = loaded()
    identifier = wsrm.create()
    for number in (1, 3, 2):
        assert wsrm.put(identifier, number, reply_to=FACTORY.none).startswith("20")
    if not options:
        assert wsrm.put(identifier, 4, reply_to=TWO_WAY).startswith("200")
        assert until(lambda: wsrm.rows("SELECT count(*) FROM entry WHERE outcome = 'delivered'") == [(4,)])
    assert wsrm.post(FACTORY.terminate(identifier, 4))[0].startswith("20")
    print(json.dumps(sorted(loaded() - before)))
    wsrm.middleware.close(10)
"""


def printed(code: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-E", "-c", dedent(code), *arguments]
    return list(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def test_a_wrapped_service_loads_no_storey_that_few_use() -> None:
    assert all(map(find_spec, STOREYS))
    names = printed("import json, sys, wsrm_mq.wsgi; print(json.dumps([*sys.modules]))")
    ours = {name for name in names if name.startswith("wsrm_mq")}
    assert ours & STOREYS == set()
    assert len(ours) <= MOST


@pytest.mark.parametrize("options", [{}, {"mode": "pull"}], ids=["called", "consumed"])
def test_from_its_first_message_to_the_end_of_a_sequence_a_service_loads_nothing(
    tmp_path: Path, options: dict[str, str]
) -> None:
    assert printed(USE, str(tmp_path), json.dumps(options)) == []
