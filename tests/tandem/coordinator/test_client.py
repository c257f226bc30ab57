import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from tandem.coordinator.client import EtcdClient, endpoint_url
from tandem.coordinator.interface import CoordinatorRefusedError
from tests.tandem.coordinator.contract import (
    COORDINATOR_CONTRACTS,
    watch_is_ended_by_compaction,
)
from tests.tandem.coordinator.real_etcd import Etcd, start_etcd, stop_etcd

pytestmark = pytest.mark.fault

PREFIXES = (f"/checked/{number}/" for number in itertools.count())


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One etcd for all checks that do not hurt it."""
    members = start_etcd(tmp_path_factory.mktemp("etcd"))
    yield members[0]
    stop_etcd(members)


@pytest.fixture
async def client(etcd: Etcd) -> AsyncIterator[EtcdClient]:
    await etcd.wait_healthy()
    client = EtcdClient([etcd.endpoint])
    yield client
    await client.aclose()


@pytest.mark.parametrize("name", COORDINATOR_CONTRACTS)
async def test_etcd_is_a_coordinator(client: EtcdClient, name: str) -> None:
    await COORDINATOR_CONTRACTS[name](client, next(PREFIXES))


async def test_a_watch_of_a_compacted_past_is_ended(client: EtcdClient, etcd: Etcd) -> None:
    async def compact(revision: int) -> None:
        await etcd.post("/v3/kv/compaction", b'{"revision":"%d"}' % revision)

    await watch_is_ended_by_compaction(client, next(PREFIXES), compact)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("127.0.0.1:2379", "http://127.0.0.1:2379"),
        ("https://etcd.example:2379/", "https://etcd.example:2379"),
        ("[::1]:2379", "http://[::1]:2379"),
    ],
)
def test_an_endpoint_is_host_and_port_or_a_url(endpoint: str, url: str) -> None:
    assert endpoint_url(endpoint, "http") == url


@pytest.mark.parametrize("endpoint", ["etcd", "etcd:x", "ftp://etcd:1", "http://etcd:1/v3", ""])
def test_what_is_no_endpoint_is_refused_with_the_form(endpoint: str) -> None:
    with pytest.raises(CoordinatorRefusedError, match="write host:port"):
        EtcdClient([endpoint])
