"""The MakeConnection messages of an RM Source, as the Reliable Secure Profile has them; in 1.0 there is none."""

from __future__ import annotations

from typing import Final

import pytest

from tests.source.conftest import Open
from tests.source.partner import THERE, Partner
from tests.source.test_listening import put, taking
from tests.source.test_polling import polls, polls_within
from tests.source.test_replies import ask
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.testing import WSRM_1_0, WSRM_1_1

MAKE_CONNECTION: Final = "http://docs.oasis-open.org/ws-rx/wsmc/200702"


@pytest.mark.spec("RSP-004", "RSP-005", half="source")
@pytest.mark.parametrize("rm", [WSRM_1_1], ids=["rm1.1"])
def test_a_make_connection_has_an_address_and_names_no_sequence(open_source: Open, partner: Partner) -> None:
    source = open_source(polls=True)
    silent = partner.answered(202)
    taking(partner)
    says = partner.says
    partner.says = lambda received: silent if received.body_name == "MakeConnection" else says(received)
    put(source)
    assert polls_within(source, 1)
    for one in polls(partner):
        assert one.body.tag == f"{{{MAKE_CONNECTION}}}MakeConnection"
        ((child,),) = [[*one.body]]
        assert child.tag == f"{{{MAKE_CONNECTION}}}Address"
        assert (child.text or "").startswith(f"{MAKE_CONNECTION}/anonymous?id=")
        assert (one.to, one.sequence) == (THERE, None)


@pytest.mark.spec("MC-020", half="source")
@pytest.mark.parametrize("rm", [WSRM_1_0], ids=["rm1.0"])
def test_with_1_0_no_address_of_make_connection_is_ever_given(open_source: Open, partner: Partner) -> None:
    with pytest.raises(ConfigurationError, match=r"1\.0 has no MakeConnection; write rm='1\.1'"):
        open_source(polls=True)
    source = open_source(offers=True)
    taking(partner)
    ask(source)
    assert partner.within(lambda: len(partner.places) == 1)
    assert not any(MAKE_CONNECTION.encode() in body for body in partner.bodies)
