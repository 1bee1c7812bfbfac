from __future__ import annotations

import pytest

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.server.exposure import refuse_exposed


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_on_this_machine_queues_are_offered_without_anything(host: str) -> None:
    refuse_exposed(host, has_tokens=False, has_tls=False, behind_proxy=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "localhost.example", ""])
def test_where_other_machines_reach_them_a_token_and_tls_have_to_be_there(host: str) -> None:
    refuse_exposed(host, has_tokens=True, has_tls=True, behind_proxy=False)
    refuse_exposed(host, has_tokens=True, has_tls=False, behind_proxy=True)
    with pytest.raises(ConfigurationError, match="no token lets anybody") as refused:
        refuse_exposed(host, has_tokens=False, has_tls=False, behind_proxy=False)
    assert len(refused.value.problems) == 2
    with pytest.raises(ConfigurationError, match="would be read on the way"):
        refuse_exposed(host, has_tokens=True, has_tls=False, behind_proxy=False)
