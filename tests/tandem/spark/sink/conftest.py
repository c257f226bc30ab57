from collections.abc import Iterator

import pytest

from tandem.testing import RunningCluster, running_cluster


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A master and its slave; `topic()` gives each test a topic of its own."""
    settings = {"store": {"max_message_size_bytes": 256 * 1024}}
    with running_cluster(tmp_path_factory.mktemp("sink"), settings=settings) as running:
        yield running
