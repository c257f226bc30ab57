from collections.abc import Iterator

import pytest

from tandem.testing import RunningCluster, running_cluster
from tests.tandem.spark.sink.patient import PATIENT_MS


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A master and its slave; `topic()` gives each test a topic of its own.

    What is sent is counted. So a busy machine has time for each message: nothing is sent again.
    """
    settings = {
        "store": {"max_message_size_bytes": 256 * 1024},
        "replication": {"slave_timeout_ms": PATIENT_MS},
    }
    with running_cluster(tmp_path_factory.mktemp("sink"), settings=settings) as running:
        yield running
