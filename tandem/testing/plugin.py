"""The plugin of pytest: fixtures that are clusters. It is found by itself once this is installed.

    def test_orders_survive_the_loss_of_a_slave(tandem_cluster):
        with tandem.BlockingProducer(tandem_cluster.name_servers, group="test") as producer:
            tandem_cluster.kill("broker-a-1")
            result = producer.send(tandem.Message("orders", b"one"))

| fixture | what is up | for |
| --- | --- | --- |
| `tandem_node` | one node of a classic group | a test |
| `tandem_cluster` | a classic group: a master and a slave that it waits for | a test |
| `tandem_fenced_cluster` | a fenced group of three, which replaces a lost master | a test |
| `tandem_session_node`, ... | the same | all tests of a process, which recovers after each |
| `make_tandem_cluster` | what it is asked for | a test |
| `make_tandem_session_cluster` | the same | all tests of a process |

They serve plain tests and those of asyncio, trio and anyio alike, for they need no event loop.
Each cluster has addresses of its own and its files in a temporary directory. No process is left,
whatever happens to the test. This needs Linux.

A run that uses none of this pays for the import of this module, and that is next to nothing: all
else is imported when the first fixture is used.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Protocol, Self

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tandem.testing import RunningCluster
    from tandem.testing.cluster_files import Settings


class MakeTandemCluster(Protocol):
    """What `make_tandem_cluster` is."""

    def __call__(
        self,
        *,
        nodes: int = ...,
        fenced: bool = ...,
        settings: Settings | None = ...,
        disk_mib: int = ...,
    ) -> RunningCluster:
        """Have one more cluster up till the end of the test, or of the session.

        `nodes`: how many, of one group; 3 unless said otherwise. `fenced`: whether they elect their
        master. `settings`: sections of a cluster file, such as `{"broker":
        {"auto_create_topic_enable": False}}`. `disk_mib`: the size of a small disk of its own for
        each store, for `fill_disk`; where there can be none, the test is skipped.
        """


class _Clusters:
    """The clusters of a fixture, each in a directory of its own. They end with its `with` block."""

    def __init__(self, paths: pytest.TempPathFactory) -> None:
        self._paths = paths
        self._stack = ExitStack()
        self.up: list[RunningCluster] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.up.clear()
        self._stack.close()

    def make(
        self,
        *,
        nodes: int = 3,
        fenced: bool = False,
        settings: Settings | None = None,
        disk_mib: int = 0,
    ) -> RunningCluster:
        from tandem.cluster.errors import OrderRefusedError  # noqa: PLC0415 - see the module's docstring
        from tandem.cluster.private_disks import PrivateDisksError  # noqa: PLC0415
        from tandem.testing.start import running_group  # noqa: PLC0415

        try:
            cluster = self._stack.enter_context(
                running_group(
                    self._paths.mktemp("tandem"),
                    kind="fenced" if fenced else "classic",
                    nodes_count=nodes,
                    settings=settings or {},
                    proxied=nodes > 1,
                    disk_mib=disk_mib,
                )
            )
        except OrderRefusedError as error:
            if error.refusal == PrivateDisksError.__name__:
                pytest.skip(str(error))
            raise
        self.up.append(cluster)
        return cluster


_FIXTURES: Final = frozenset({"make_tandem_cluster", "make_tandem_session_cluster"})
"""Every other fixture asks for one of them."""

_session_clusters: Final[list[_Clusters]] = []
"""Those that live longer than a test."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin early with what the first cluster waits for, if a test wants one.

    Not in a worker of xdist: it has collected all tests, and may get none of these.
    """
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    if any(_FIXTURES & set(getattr(item, "fixturenames", ())) for item in session.items):
        from tandem.testing.fork_server import fork_server  # noqa: PLC0415

        fork_server()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Undo what a test has done to a cluster that others use after it."""
    try:
        yield
    finally:
        for cluster in [each for clusters in _session_clusters for each in clusters.up]:
            if cluster.is_hurt:
                cluster.recover()


@pytest.fixture
def make_tandem_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeTandemCluster]:
    """A function that starts a cluster for this test; its arguments say which."""
    with _Clusters(tmp_path_factory) as clusters:
        yield clusters.make


@pytest.fixture
def tandem_node(make_tandem_cluster: MakeTandemCluster) -> RunningCluster:
    """One node of a classic group: no replication, and up in a moment."""
    return make_tandem_cluster(nodes=1)


@pytest.fixture
def tandem_cluster(make_tandem_cluster: MakeTandemCluster) -> RunningCluster:
    """A classic group: a master, and a slave that it waits for."""
    return make_tandem_cluster(nodes=2)


@pytest.fixture
def tandem_fenced_cluster(make_tandem_cluster: MakeTandemCluster) -> RunningCluster:
    """A fenced group of three nodes: it replaces a lost master."""
    return make_tandem_cluster(fenced=True)


@pytest.fixture(scope="session")
def make_tandem_session_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MakeTandemCluster]:
    """A function that starts a cluster for all tests; it recovers after each test that hurt it."""
    with _Clusters(tmp_path_factory) as clusters:
        _session_clusters.append(clusters)
        yield clusters.make
        _session_clusters.remove(clusters)


@pytest.fixture(scope="session")
def tandem_session_node(make_tandem_session_cluster: MakeTandemCluster) -> RunningCluster:
    """One node for all tests; `topic()` gives each a topic of its own."""
    return make_tandem_session_cluster(nodes=1)


@pytest.fixture(scope="session")
def tandem_session_cluster(make_tandem_session_cluster: MakeTandemCluster) -> RunningCluster:
    """A classic group of two for all tests; `topic()` gives each a topic of its own."""
    return make_tandem_session_cluster(nodes=2)


@pytest.fixture(scope="session")
def tandem_session_fenced_cluster(make_tandem_session_cluster: MakeTandemCluster) -> RunningCluster:
    """A fenced group of three for all tests; `topic()` gives each a topic of its own."""
    return make_tandem_session_cluster(fenced=True)
