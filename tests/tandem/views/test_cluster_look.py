from pathlib import Path

import msgspec
from trio.testing import MockClock

from tandem.cluster_file.choices import CoordinatorKind
from tandem.cluster_file.coordinator_settings import CoordinatorSettings
from tandem.views.classic_nodes import classic_nodes
from tandem.views.cluster_look import coordinator_of, look
from tests.support.secret import write_secret
from tests.tandem.cluster.fakes import fake_spec
from tests.tandem.views.fake_group import Nodes, group_of

SPEC = fake_spec(Path("/nowhere"), "m", "s")


async def test_a_cluster_of_which_no_node_answers_is_silent(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    nodes.brokers.clear()
    async with group_of(nodes) as group:
        assert (await look(classic_nodes(SPEC), group.admin, [group])).is_silent


async def test_a_coordinator_that_cannot_be_used_is_words(tmp_path: Path) -> None:
    broken = CoordinatorSettings(kind=CoordinatorKind.ETCD, endpoints=["no port"])
    async with coordinator_of(msgspec.structs.replace(SPEC, coordinator=broken)) as coordinator:
        assert isinstance(coordinator, str)
        assert "'no port' is not an endpoint of a coordinator" in coordinator
    spec = msgspec.structs.replace(SPEC, secret_file=tmp_path / "secret")
    async with coordinator_of(spec) as coordinator:
        assert isinstance(coordinator, str)
        assert f"{spec.secret_file} cannot be read" in coordinator
    write_secret(spec.secret_file)
    async with coordinator_of(spec) as coordinator:
        assert not isinstance(coordinator, str)
