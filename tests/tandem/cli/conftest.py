"""One cluster for all tests of the command line that only talk to it."""

from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.command_line import app
from tandem.testing import RunningCluster, running_cluster

Tandem = Callable[..., Result]


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), slaves_count=2) as running:
        yield running


@pytest.fixture
def tandem(cluster: RunningCluster) -> Tandem:
    """`tandem` in this process, with the cluster's file: `tandem("topic", "list")`."""

    def invoke(*arguments: str, input: str | bytes | None = None) -> Result:  # noqa: A002
        # Reading a cluster file takes a process; who needs only addresses is spared it.
        takes_servers = arguments[0] in ("produce", "consume", "topic", "group", "message")
        servers = [part for server in cluster.name_servers for part in ("-n", server)]
        where = servers if takes_servers else ["-c", str(cluster.spec.file)]
        line = [*arguments, *where]
        return CliRunner().invoke(
            app, line, input=input, catch_exceptions=False, prog_name="tandem"
        )

    return invoke
