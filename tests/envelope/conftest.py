"""The combinations of versions that go together, and an envelope factory for each."""

from __future__ import annotations

import pytest

from tests.support.source import combination
from wsrm_mq.envelope.headers import Headers
from wsrm_mq.envelope.scan import scan
from wsrm_mq.envelope.stream import Limits
from wsrm_mq.errors import EnvelopeError
from wsrm_mq.testing import EnvelopeFactory
from wsrm_mq.versions import RM_VERSIONS, AddressingVersion, RMVersion, SOAPVersion

COMBINATIONS = [
    combination(rm, soap, addressing)
    for rm in RM_VERSIONS.values()
    for soap in SOAPVersion
    for addressing in rm.addressings
]

every_version = pytest.mark.parametrize(("rm", "soap", "addressing"), COMBINATIONS)
each_rm = pytest.mark.parametrize(
    ("rm", "soap", "addressing"),
    [pytest.param(rm, SOAPVersion.SOAP_1_2, rm.addressings[0], id=f"rm{rm.label}") for rm in RM_VERSIONS.values()],
)


@pytest.fixture
def speak(rm: RMVersion, soap: SOAPVersion, addressing: AddressingVersion) -> EnvelopeFactory:
    return EnvelopeFactory(rm, soap, addressing)


def read(speak: EnvelopeFactory, envelope: bytes, limits: Limits | None = None) -> Headers:
    """The headers of an envelope that came with the factory's Content-Type."""
    return scan(envelope, speak.content_type, None, limits or Limits())


def refusal(speak: EnvelopeFactory, envelope: bytes, limits: Limits | None = None) -> EnvelopeError:
    """The error of an envelope that has to be refused."""
    with pytest.raises(EnvelopeError) as raised:
        read(speak, envelope, limits)
    return raised.value
