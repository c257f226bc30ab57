import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.errors import RequestError
from node.simulated.disk import SimulatedDisk
from node.tables import subscription_group_table
from node.tables.subscription_group_table import (
    SYSTEM_GROUPS,
    SubscriptionGroupTable,
    group_complaint,
)
from store.machine.errors import StoreFullError, TableFileError
from store.machine.real_disk import RealDisk
from store.machine.table_file import TableFile
from tandem.wire.request_headers import DataVersion
from tandem.wire.response_code import ResponseCode
from tandem.wire.subscription_group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from tests.support.paths import GOLDEN

TABLE = GOLDEN / "config-json/config/subscriptionGroup.json"
NAME = "subscriptionGroup.json"


class FullDisk(RealDisk):
    def replace(self, path: str, data: bytes) -> None:
        raise StoreFullError(f"{path}: no room for {len(data)} bytes", path=path)


def table(directory: Path, disk: RealDisk | None = None) -> SubscriptionGroupTable:
    return SubscriptionGroupTable(
        TableFile(disk or RealDisk(), str(directory / NAME)), lambda: 1234
    )


def forbid(groups: SubscriptionGroupTable, group: str, topic: str, bits: int) -> None:
    groups.set_forbidden(group, groups.with_forbidden(group, topic, bits))


def saved(directory: Path) -> dict[str, dict[str, Any]]:
    return msgspec.json.decode((directory / NAME).read_bytes(), type=dict[str, dict[str, Any]])


def test_the_groups_of_rocketmq_are_read_and_written_alike(tmp_path: Path) -> None:
    shutil.copy(TABLE, tmp_path)
    groups = table(tmp_path)
    assert groups.get("TOOLS_CONSUMER") == SubscriptionGroupConfig("TOOLS_CONSUMER")
    forbid(groups, "g", "T", 1)
    forbid(groups, "g", "T", 0)
    golden = msgspec.json.decode(TABLE.read_bytes())
    ours = saved(tmp_path)
    assert list(ours) == list(golden)
    assert ours["forbiddenTable"] == {}
    name = "TOOLS_CONSUMER"
    theirs = golden["subscriptionGroupTable"][name]
    assert list(ours["subscriptionGroupTable"][name].items()) == list(theirs.items())
    text = (tmp_path / NAME).read_text()
    record = TABLE.read_text().split(f'"{name}":')[1].split("\n\t\t}")[0]
    assert f'"{name}":{record}' in text


def test_groups_that_are_always_there_need_no_file(tmp_path: Path) -> None:
    """SubscriptionGroupManager.init."""
    groups = table(tmp_path)
    assert all(groups.get(name) == SubscriptionGroupConfig(name) for name in SYSTEM_GROUPS)
    assert not (tmp_path / NAME).exists()


def test_an_unknown_group_has_the_defaults_and_is_not_written(tmp_path: Path) -> None:
    groups = table(tmp_path)
    assert groups.get("g") is None
    assert groups.find("g") == SubscriptionGroupConfig("g")
    assert groups.unknown_of(["g", "TOOLS_CONSUMER", "g", "a b"]) == [SubscriptionGroupConfig("g")]
    assert not (tmp_path / NAME).exists()


def test_groups_may_have_to_be_set_up(tmp_path: Path) -> None:
    groups = SubscriptionGroupTable(
        TableFile(RealDisk(), str(tmp_path / NAME)), lambda: 0, auto_create=False
    )
    with pytest.raises(RequestError, match=r"\[g\] does not exist.*set it up first") as refused:
        groups.find("g")
    assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert groups.unknown_of(["g"]) == []
    groups.update(SubscriptionGroupConfig("g"))
    assert groups.find("g") == SubscriptionGroupConfig("g")


def test_a_change_survives_a_restart_and_moves_the_version(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.update(SubscriptionGroupConfig("g"))
    groups.update(SubscriptionGroupConfig("g"))
    assert groups.configs.data_version == DataVersion(0, 1234, 1)
    assert table(tmp_path).get("g") == SubscriptionGroupConfig("g")


def test_a_change_that_may_come_late_is_on_disk_with_the_next_save(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.update_soon(SubscriptionGroupConfig("g"))
    assert groups.get("g") == SubscriptionGroupConfig("g")
    assert not (tmp_path / NAME).exists()
    groups.save()
    assert table(tmp_path).configs == groups.configs
    (tmp_path / NAME).unlink()
    groups.save()
    assert not (tmp_path / NAME).exists()


def test_a_copy_is_written_by_save_alone(tmp_path: Path) -> None:
    file = TableFile(RealDisk(), str(tmp_path / NAME))
    groups = SubscriptionGroupTable(file, lambda: 1234, is_copy=True)
    groups.replace_groups({"g": SubscriptionGroupConfig("g", retry_max_times=3)}, {"g": {"T": 1}})
    assert not (tmp_path / NAME).exists()
    groups.save()
    again = table(tmp_path)
    assert again.configs == groups.configs
    assert again.find("g").retry_max_times == 3
    assert again.forbidden("g", "T") == 1
    groups.replace_groups({}, {})
    assert groups.get("g") is None
    assert groups.get("TOOLS_CONSUMER") is not None


def test_a_slave_takes_over_the_table_of_its_master(tmp_path: Path) -> None:
    groups = table(tmp_path)
    theirs = SubscriptionGroupWrapper(
        table(tmp_path / "master").configs.subscription_group_table
        | {"g": SubscriptionGroupConfig("g")},
        {"g": {"T": 1}},
        DataVersion(1, 2, 3),
    )
    groups.replace_all(theirs)
    assert groups.configs == theirs == table(tmp_path).configs


def test_there_is_a_bound_to_the_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = table(tmp_path)
    monkeypatch.setattr(subscription_group_table, "GROUPS_MAX", len(SYSTEM_GROUPS) + 1)
    groups.check(SubscriptionGroupConfig("g"))
    groups.update(SubscriptionGroupConfig("g"))
    groups.check(SubscriptionGroupConfig("g", retry_max_times=1))
    with pytest.raises(RequestError) as caught:
        groups.check(SubscriptionGroupConfig("h"))
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    "config",
    [
        SubscriptionGroupConfig("g", retry_queue_nums=65_536),
        SubscriptionGroupConfig("g", attributes={"a": "x" * 20_000}),
        SubscriptionGroupConfig(" "),
        SubscriptionGroupConfig("x" * 256),
        SubscriptionGroupConfig("a b"),
    ],
)
def test_an_impossible_configuration_is_refused(
    tmp_path: Path, config: SubscriptionGroupConfig
) -> None:
    with pytest.raises(RequestError) as refused:
        table(tmp_path).check(config)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER


def test_every_part_of_a_group_survives_a_restart(tmp_path: Path) -> None:
    config = SubscriptionGroupConfig(
        "g",
        retry_max_times=3,
        group_retry_policy=GroupRetryPolicy(
            "EXPONENTIAL", ExponentialRetryPolicy(1, 2, 3), CustomizedRetryPolicy([4, 5])
        ),
        subscription_data_set=[SimpleSubscriptionData("T", "SQL92", "a > 1", 7)],
        attributes={"a": "b"},
    )
    table(tmp_path).update(config)
    assert table(tmp_path).get("g") == config
    assert "null" not in (tmp_path / NAME).read_text()


def test_what_we_know_nothing_of_is_written_again(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(
        '{"subscriptionGroupTable":{"g":{"groupName":"g","liteBindTopic":{"x":[1,{"y":null}]},'
        '"retryMaxTimes":5}}}'
    )
    groups = table(tmp_path)
    groups.update(SubscriptionGroupConfig("g", retry_max_times=6))
    record = saved(tmp_path)["subscriptionGroupTable"]["g"]
    assert record["liteBindTopic"] == {"x": [1, {"y": None}]}
    assert record["retryMaxTimes"] == 6
    assert list(record) == sorted(record)


def test_a_file_of_rocketmq_4_is_read(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(
        '{ "subscriptionGroupTable" : { "g" : {"groupName":"g","consumeEnable":false} } }'
    )
    config = table(tmp_path).get("g")
    assert config is not None
    assert not config.consume_enable


def test_a_deleted_group_is_gone_with_what_it_may_not_read(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.update(SubscriptionGroupConfig("g"))
    forbid(groups, "g", "T", 1)
    groups.delete("g")
    groups.delete("g")
    assert groups.get("g") is None
    assert table(tmp_path).forbidden("g", "T") == 0


def test_what_is_forbidden_survives_a_restart(tmp_path: Path) -> None:
    groups = table(tmp_path)
    forbid(groups, "g", "T", 3)
    forbid(groups, "g", "U", 1)
    forbid(groups, "g", "U", 0)
    again = table(tmp_path)
    assert (again.forbidden("g", "T"), again.forbidden("g", "U")) == (3, 0)
    assert saved(tmp_path)["forbiddenTable"] == {"g": {"T": 3}}


def test_an_update_that_changes_nothing_is_not_written(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.update(SubscriptionGroupConfig("TOOLS_CONSUMER"))
    forbid(groups, "g", "T", 0)
    assert not (tmp_path / NAME).exists()


def test_a_full_disk_refuses_the_change_and_changes_nothing(tmp_path: Path) -> None:
    groups = table(tmp_path, FullDisk())
    with pytest.raises(RequestError) as caught:
        groups.update(SubscriptionGroupConfig("g"))
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert groups.get("g") is None
    assert groups.configs.data_version == DataVersion()


@pytest.mark.parametrize("group", ["g", "%RETRY%g", "CID_ONS-HTTP-PROXY", "x" * 255])
def test_a_good_name_has_no_complaint(group: str) -> None:
    assert group_complaint(group) is None


@pytest.mark.parametrize(
    ("group", "complaint"),
    [(" ", "is blank"), ("x" * 256, "max length 255"), ("a b", "illegal"), ("g\n", "illegal")],
)
def test_a_bad_name_is_refused(tmp_path: Path, group: str, complaint: str) -> None:
    """TopicValidator and Validators: the words are RocketMQ's."""
    with pytest.raises(RequestError, match=complaint) as refused:
        table(tmp_path).find(group)
    assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize(
    "text",
    [
        '{"subscriptionGroupTable":{"g":{"groupName":7}}}',
        '{"subscriptionGroupTable":{"g":{}}}',
        '{"subscriptionGroupTable":{"g":[]}}',
        '{"subscriptionGroupTable":[]}',
        '{"forbiddenTable":{"g":{"T":99999999999}}}',
    ],
)
def test_a_file_that_is_no_table_is_an_error_with_a_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(TableFileError, match=r"subscriptionGroup\.json: .*restore"):
        table(tmp_path)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["subscriptionGroupTable", "forbiddenTable", "dataVersion", "groupName"]
                )
                | st.text(max_size=3),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_file_is_a_table_or_the_error(content: object) -> None:
    disk = SimulatedDisk()
    disk.replace("/t.json", msgspec.json.encode(content))
    with suppress(TableFileError):
        SubscriptionGroupTable(TableFile(disk, "/t.json"), lambda: 0).find("g")


def test_what_changes_while_the_table_is_saved_is_in_the_next_file(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.update_soon(SubscriptionGroupConfig("g"))
    for step, _ in enumerate(groups.save_in_steps()):
        groups.update_soon(SubscriptionGroupConfig(f"h{step}"))
    groups.save()
    assert table(tmp_path).configs == groups.configs
    assert groups.get("h0") is not None


def test_a_group_that_was_changed_at_once_is_not_written_again_by_a_save(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.update_soon(SubscriptionGroupConfig("g"))
    groups.update(SubscriptionGroupConfig("h"))
    assert table(tmp_path).configs == groups.configs
    (tmp_path / NAME).unlink()
    groups.save()
    assert not (tmp_path / NAME).exists()


def test_what_a_group_may_not_do_goes_with_it_though_nobody_set_it_up(tmp_path: Path) -> None:
    groups = table(tmp_path)
    forbid(groups, "g", "T", 1)
    groups.delete("g")
    assert groups.forbidden("g", "T") == 0
    assert table(tmp_path).forbidden("g", "T") == 0


def test_a_group_of_the_system_is_never_gone(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.update(SubscriptionGroupConfig("TOOLS_CONSUMER", retry_max_times=1))
    groups.delete("TOOLS_CONSUMER")
    assert groups.get("TOOLS_CONSUMER") == SubscriptionGroupConfig("TOOLS_CONSUMER")


def test_more_groups_than_there_is_room_for_can_still_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = table(tmp_path)
    groups.update(SubscriptionGroupConfig("g"))
    monkeypatch.setattr(subscription_group_table, "GROUPS_MAX", 1)
    groups.check(SubscriptionGroupConfig("g", retry_max_times=1))


def test_what_we_know_nothing_of_goes_with_its_group(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(
        '{"subscriptionGroupTable":{"g":{"groupName":"g","someday":{"x":1}}}}'
    )
    groups = table(tmp_path)
    groups.delete("g")
    groups.update(SubscriptionGroupConfig("g"))
    assert "someday" not in (tmp_path / NAME).read_text()
