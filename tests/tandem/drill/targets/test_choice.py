from pathlib import Path

import pytest

from tandem.drill.errors import BadOptionsError, MissingRequirementError, Requirement
from tandem.drill.options import DrillOptions
from tandem.drill.targets.choice import target_of, witness_of
from tandem.drill.targets.rocketmq_jars import find_client
from tandem.testing import write_cluster_file
from tests.tandem.drill.targets.process_samples import document, write
from tests.tandem.drill.targets.rocketmq_samples import jars_in


def test_without_a_word_it_is_our_own_cluster(tmp_path: Path) -> None:
    config = write_cluster_file(tmp_path, 2, {}, kind="fenced")
    assert target_of(DrillOptions(config=config)).name == "tandem"


@pytest.mark.parametrize(
    "options",
    [
        DrillOptions(rocketmq="x"),
        DrillOptions(mode="controller"),
        DrillOptions(name_servers=2),
        DrillOptions(target="rocketmq", rocketmq="x", previous=Path("x")),
        DrillOptions(previous=Path("/no/such/python")),
        DrillOptions(broker_settings=("a=1",)),
        DrillOptions(target="rocketmq"),
        DrillOptions(file=Path("x")),
        DrillOptions(target="processes"),
        DrillOptions(target="processes", file=Path("/no/such/file")),
        DrillOptions(target="processes", file=Path("x"), rocketmq="y"),
        DrillOptions(target="rocketmq", rocketmq="x", broker_settings=("a",)),
        DrillOptions(target="rocketmq", rocketmq="x", groups=2),
        DrillOptions(target="processes", file=Path("x"), group="broker-b"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: DrillOptions) -> None:
    with pytest.raises(BadOptionsError):
        target_of(options)


def test_a_controller_needs_its_jar(tmp_path: Path) -> None:
    jars_in(tmp_path, "4.9.8", "rocketmq-broker", "rocketmq-namesrv")
    with pytest.raises(MissingRequirementError) as refused:
        target_of(DrillOptions(target="rocketmq", rocketmq=str(tmp_path)))
    assert refused.value.requirement is Requirement.ROCKETMQ


def test_rocketmq_is_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars_in(tmp_path, "5.3.3")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    options = DrillOptions(
        target="rocketmq",
        rocketmq=str(tmp_path),
        mode="sync-master",
        broker_settings=("inSyncReplicas=2",),
    )
    target = target_of(options)
    assert target.name == "rocketmq"
    assert target.group.kind == "classic"
    assert target.group.status_without_slaves == "FLUSH_SLAVE_TIMEOUT"


def test_a_deployed_cluster_is_what_its_file_says(tmp_path: Path) -> None:
    file = write(tmp_path, document())
    assert target_of(DrillOptions(target="processes", file=file)).name == "processes"


def test_a_witness_is_javas_client_from_where_it_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert witness_of(DrillOptions()) is None
    with pytest.raises(BadOptionsError):
        witness_of(DrillOptions(witness="java"))
    jars_in(tmp_path, "5.3.3", "rocketmq-client")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = witness_of(DrillOptions(witness="java", rocketmq=str(tmp_path)))
    assert found is not None
    assert (found.version, found.java) == ("5.3.3", str(tmp_path / "bin" / "java"))
    config = write_cluster_file(tmp_path, 2, {})
    both = DrillOptions(config=config, witness="java", rocketmq=str(tmp_path))
    assert target_of(both).name == "tandem"


def test_without_its_client_there_is_no_witness(tmp_path: Path) -> None:
    jars_in(tmp_path / "no-client", "5.3.3")
    jars_in(tmp_path / "two", "5.3.3", "rocketmq-client")
    jars_in(tmp_path / "two", "4.9.8", "rocketmq-client")
    places = [str(tmp_path / name) for name in ("no-client", "two", "none")]
    for place in (*places, "maven:../x"):
        with pytest.raises(MissingRequirementError) as refused:
            find_client(place)
        assert refused.value.requirement is Requirement.ROCKETMQ
