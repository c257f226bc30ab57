"""RocketMQ's gRPC clients at our nodes, without a proxy: the scenarios of `test_proxy`."""

from pathlib import Path
from typing import Final

import pytest

from tests.compat.programs import NotToBeHadError, classpath
from tests.compat.proxy import Proxy
from tests.compat.proxy_scenarios import SERVED, scenarios
from tests.compat.targets import TargetName, running_target

pytestmark = [pytest.mark.long, pytest.mark.timeout(550), pytest.mark.xdist_group("rocketmq")]

OURS: Final[tuple[TargetName, ...]] = ("classic", "fenced")


@pytest.mark.parametrize("name", OURS)
def test_applications_at_our_nodes(tmp_path: Path, name: TargetName) -> None:
    try:
        jars = classpath("pom.xml", "grpc")
    except NotToBeHadError as error:
        pytest.skip(f"RocketMQ's clients cannot be fetched: {error}")
    with running_target(name, tmp_path) as target:
        # Every node is a name server, too, at the same port.
        node = target.name_servers.split(";")[-1]
        said = scenarios(jars, tmp_path, target.name_servers, Proxy(node, node, tmp_path / "said"))
    ours = {row: words for row, words in said.items() if row.startswith("gRPC: ")}
    assert {row: words for row, words in ours.items() if words != "ok"} == {}
    assert set(ours) == {row for row in SERVED if row.startswith("gRPC: ")}
