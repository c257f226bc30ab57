from pathlib import Path

import msgspec

from tandem.cluster_file.choices import GroupKind
from tandem.drill.options import DrillOptions
from tandem.drill.plan import TargetFacts
from tests.tandem.drill import samples


def test_every_round_plays_all_scenarios_under_names_of_its_own() -> None:
    once = [name for name, _ in samples.plan().rounds()]
    assert once == ["slave-loss", "master-loss"]
    twice = [name for name, _ in samples.plan(repeat=2).rounds()]
    assert twice == ["slave-loss 1", "master-loss 1", "slave-loss 2", "master-loss 2"]


def test_a_plan_is_told_in_one_line() -> None:
    assert samples.plan(repeat=3).headline() == (
        "drill of broker-a (classic, 3 nodes): slave-loss, master-loss, 3 times, 9 s under load"
        " of 20 sends a second"
    )
    assert ", 1 times" not in samples.plan().headline()


def test_every_node_is_a_name_server() -> None:
    assert samples.plan().name_servers == ["127.0.0.1:3", "127.0.0.2:3", "127.0.0.3:3"]


def test_only_a_fenced_group_elects() -> None:
    assert samples.plan(kind=GroupKind.FENCED).is_fenced
    assert not samples.plan().is_fenced


def test_patience_is_that_of_the_target_and_of_the_person_together() -> None:
    plan = samples.plan()
    plan = msgspec.structs.replace(
        plan,
        options=DrillOptions(patience=2.0),
        target=TargetFacts(patience=3.0),
    )
    assert plan.patience == 6.0


def test_another_group_has_a_topic_producers_and_files_of_its_own() -> None:
    whole = samples.plan(kind=GroupKind.FENCED)
    group = msgspec.structs.replace(whole.group, name="broker-b")
    other = whole.for_group(group, {"broker-b-0": Path("b")})
    assert (whole.topic, other.topic) == ("tandem-drill", "tandem-drill-broker-b")
    assert [each.name for each in other.producers] == [each.name for each in whole.producers]
    assert not {*map(id, other.producers)} & {*map(id, whole.producers)}
    assert other.out == whole.out / "groups" / "broker-b"
    assert other.stores == {"broker-b-0": Path("b")}
    assert not other.target.has_consumers
    both = msgspec.structs.replace(whole, others=[other])
    assert "3 nodes, beside broker-b)" in both.headline()
