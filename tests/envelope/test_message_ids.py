"""The parts of what a destination says."""

from __future__ import annotations

import os
import uuid

from wsrm_mq.envelope.render import new_message_id


def test_a_message_id_is_a_version_4_uuid_and_never_the_same() -> None:
    ids = [new_message_id() for _ in range(10_000)]
    assert len(set(ids)) == len(ids)
    for text in ids[::1000]:
        made = uuid.UUID(text.removeprefix("urn:uuid:"))
        assert (made.urn, made.version, made.variant) == (text, 4, uuid.RFC_4122)


def test_a_forked_worker_makes_ids_of_its_own() -> None:
    before = new_message_id()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, new_message_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    of_child, after = os.read(read, 100).decode(), new_message_id()
    os.close(read)
    os.close(write)
    assert len({before[:33], of_child[:33]}) == 2
    assert after[:28] == before[:28]
