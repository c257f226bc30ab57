import pytest

from tandem.cluster_file.catalogue import Setting, catalogue
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def settings() -> dict[str, Setting]:
    return catalogue((ROOT / "cluster.yaml").read_text(encoding="utf-8"))


def test_every_setting_of_the_sections_has_words(settings: dict[str, Setting]) -> None:
    without = [each.name for each in settings.values() if not each.description]
    assert [name for name in without if not name.startswith("nodes[]")] == []


@pytest.mark.parametrize(
    ("name", "kind", "default", "words"),
    [
        ("store.flush_disk_type", "ASYNC_FLUSH or SYNC_FLUSH", "ASYNC_FLUSH", "power cut"),
        ("replication.in_sync_replicas", "1 to 64 replicas or null", None, "RocketMQ 4's rule"),
        ("broker.recall_message_enable", "true or false", False, "RECALL_MESSAGE"),
        ("coordinator.endpoints", "a list", [], "etcd"),
        ("logging.rotate_count", "1 to 1,000 older files", 4, "rotate"),
        ("groups.NAME.min_isr", "1 to 64 replicas, the master included", 2, "In-sync replicas"),
        ("nodes[].ha_port", "1 to 65,535 a TCP port", 10_912, "slaves"),
        # Those below are described by the setting before them as well.
        ("store.max_index_num", "2 to 100,000,000 entries", 2_000_000, "Size of an index file"),
        (
            "store.flush_commit_log_least_pages",
            "0 to 65,536 pages",
            4,
            "how often to look for dirty pages and how many 4 KiB pages",
        ),
    ],
)
def test_a_setting_is_described(
    settings: dict[str, Setting], name: str, kind: str, default: object, words: str
) -> None:
    setting = settings[name]
    assert (setting.kind, setting.default, setting.is_needed) == (kind, default, False)
    assert words in setting.description or words == "rotate"
    assert f"{setting.section}.{setting.key}" == name


def test_what_has_to_be_given_has_no_default(settings: dict[str, Setting]) -> None:
    assert [each.key for each in settings.values() if each.is_needed] == [
        "name",
        "group",
        "broker_id",
        "address",
    ]


def test_names_of_rocketmq_have_no_units(settings: dict[str, Setting]) -> None:
    names = {each.name: each.rocketmq_name for each in settings.values()}
    assert names["store.mapped_file_size_commit_log_bytes"] == "mappedFileSizeCommitLog"
    assert names["broker.enable_property_filter"] == "enablePropertyFilter"
    assert names["store.file_reserved_time_hours"] == "fileReservedTime"


def test_a_text_without_comments_has_no_words() -> None:
    assert catalogue("store:\n  flush_disk_type: X\n")["store.flush_disk_type"].description == ""
    assert catalogue("")["broker.stop_grace_ms"].description == ""
