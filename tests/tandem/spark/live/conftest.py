from collections.abc import Iterator

import pytest

from tandem.testing import RunningCluster, running_cluster


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """One node for all tests of the live source; `topic()` gives each a topic of its own."""
    with running_cluster(tmp_path_factory.mktemp("live"), slaves_count=0) as running:
        yield running
