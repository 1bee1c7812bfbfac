"""Each server that has a page on deployment, as the page deploys it, and the default client of each stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.page import HOWTO, Page
from tests.support.orders_server import within

from .java_client import JavaClient

NAMES = sorted(path.stem for path in HOWTO.glob("deploy-*.md"))


@pytest.mark.live
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NAMES)
def test_a_deployed_service_takes_the_default_client_of_each_stack(
    name: str, shared_cxf: JavaClient, metro: JavaClient, tmp_path: Path
) -> None:
    with Page(name, tmp_path) as page:
        url = f"http://127.0.0.1:{page.url_port}/"
        shared_cxf.open_page(address=url)
        shared_cxf.put(1, 3)
        assert shared_cxf.unacknowledged() == 0
        shared_cxf.close()
        metro.open_page(address=url, wsdl=f"{url}?wsdl")
        metro.put(1, 3)  # and is not closed: that takes it 8 seconds
        seen = within(10, lambda: reliable(page), lambda calls: len(calls) == 6)
        page.kill()  # some servers wait for their idle connections
    assert [number for _identifier, number in seen] == [1, 2, 3, 1, 2, 3]
    assert len({identifier for identifier, _number in seen}) == 2


def reliable(page: Page) -> list[tuple[str, int]]:
    """Sequence and number of what came in a sequence: not the WSDL."""
    calls = ((call["wsrm.sequence_id"], call["wsrm.message_number"]) for call in page.seen())
    return [call for call in calls if call[0] is not None]
