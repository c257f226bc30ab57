"""`tandem config`, in this process; against nodes in processes of their own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.testing import RunningCluster, running_cluster
from tests.support.processes import run_tandem

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("config")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("config")) as running:
        yield running


def config(*arguments: str, at: RunningCluster | None = None) -> tuple[int, str, str]:
    where = ("--config", str(at.file)) if at is not None else ()
    done = run_tandem("config", *arguments, *where)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_one_setting_is_explained_in_words() -> None:
    status, said, _ = config("explain", "flushDiskType")
    assert status == 0
    assert said.splitlines()[:3] == [
        "setting        store.flush_disk_type",
        "may be         ASYNC_FLUSH or SYNC_FLUSH",
        "default        ASYNC_FLUSH",
    ]
    assert "power cut" in said


def test_a_section_is_a_table_and_everything_is_a_list() -> None:
    assert len(config("explain", "logging")[1].splitlines()) == 5
    records = [json.loads(line) for line in config("explain", "--format", "jsonl")[1].splitlines()]
    assert len(records) > 80
    assert {"name", "kind", "default", "description"} <= records[0].keys()


def test_an_unknown_setting_is_refused_with_the_nearest() -> None:
    status, said, error = config("explain", "flush_disk_typ")
    assert (status, said) == (2, "")
    assert error.startswith("error: there is no setting 'flush_disk_typ'; did you mean flush_disk")


def test_the_file_is_shown_with_what_it_has_changed(cluster: RunningCluster) -> None:
    changed = config("get", "--changed", "--format", "json", at=cluster)[1]
    values = {each["name"]: each for each in json.loads(changed)}
    assert values["store.mapped_file_size_commit_log_bytes"]["value"] == 1_048_576
    assert "broker.enable_property_filter" not in values
    assert "nodes.broker-a-0.name" not in values
    one = config("get", "groups.broker-a.kind", "--format", "text", at=cluster)
    assert one == (0, "classic\n", "")


def test_a_node_says_what_it_goes_by_and_takes_what_is_safe(cluster: RunningCluster) -> None:
    key = "store.file_reserved_time_hours"
    ask = ("get", key, "--node", "broker-a-1", "--format", "json")
    assert json.loads(config(*ask, at=cluster)[1]) == {"fileReservedTime": "72"}
    status, said, _ = config("set", key, "50", at=cluster)
    assert (status, said.split(",")[0]) == (0, f"{key} is 50 at 2 nodes")
    assert json.loads(config(*ask, at=cluster)[1]) == {"fileReservedTime": "50"}
    assert len(config("get", "--node", "broker-a-0", at=cluster)[1].splitlines()) > 20


def test_what_is_not_safe_is_refused_with_what_to_do(cluster: RunningCluster) -> None:
    status, said, error = config("set", "flush_disk_type", "SYNC_FLUSH", at=cluster)
    assert (status, said) == (2, "")
    assert "cannot be changed while nodes run; nothing was changed" in error
    assert "tandem cluster restart NODE" in error
    assert config("set", "fileReservedTime", "soon", at=cluster)[::2] == (
        2,
        "error: 'soon' is not a whole number of hours\n",
    )
    status, _, error = config("get", "--node", "broker-z-0", at=cluster)
    assert (status, "there are broker-a-0, broker-a-1" in error) == (2, True)


def test_a_node_that_is_down_is_named(cluster: RunningCluster) -> None:
    cluster.kill("broker-a-1")
    try:
        status, _, error = config("set", "fileReservedTime", "60", at=cluster)
        assert status == 1
        assert error.startswith("error: changed at 1 of 2 nodes\nbroker-a-1: ")
    finally:
        cluster.start("broker-a-1")


def test_a_cluster_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("store: {flush: 1}\n")
    done = run_tandem("config", "get", "--config", str(file))
    assert done.returncode == 2
    assert "store.flush" in done.stderr
