from collections.abc import AsyncIterator

import pytest

from tandem.coordinator.client import EtcdClient
from tests.tandem.coordinator.contract import (
    COORDINATOR_CONTRACTS,
)
from tests.tandem.coordinator.embedded import connected, running_server


@pytest.fixture
async def client() -> AsyncIterator[EtcdClient]:
    async with running_server() as (_, port), connected(port) as client:
        yield client


@pytest.mark.parametrize("name", COORDINATOR_CONTRACTS)
async def test_the_embedded_one_is_a_coordinator(client: EtcdClient, name: str) -> None:
    await COORDINATOR_CONTRACTS[name](client, "/checked/")
