from pathlib import Path

import pytest
import yaml

from tandem.cluster_file.errors import ClusterConfigError
from tandem.cluster_file.store_settings import StoreSettings, check_store
from tandem.cluster_file.yaml_reader import Reader


def read(text: str) -> tuple[StoreSettings, list[str]]:
    """The settings of a `store:` section, and the complaints about it."""
    reader = Reader(Path("cluster.yaml"))
    root = reader.mapping(yaml.compose(f"store:\n{text}", Loader=yaml.SafeLoader), "")
    settings = reader.record(StoreSettings, root["store"], "store")
    assert settings is not None
    check_store(reader, settings)
    try:
        reader.problems.raise_if_any()
    except ClusterConfigError as error:
        return settings, error.problems
    return settings, []


CASES = {
    "odd file size": (
        "  mapped_file_size_commit_log_bytes: 67108865\n",
        "2: store.mapped_file_size_commit_log_bytes: 67108865 is not a multiple of 4096"
        " (a memory page); give 67112960",
    ),
    "odd consume queue": (
        "  mapped_file_size_consume_queue_bytes: 21\n",
        "2: store.mapped_file_size_consume_queue_bytes: 21 is not a multiple of 20 (one unit);"
        " give 40",
    ),
    "file too small for a message": (
        "  mapped_file_size_commit_log_bytes: 4194304\n",
        "2: store.mapped_file_size_commit_log_bytes: 4194304 is too small for a message of"
        " store.max_message_size_bytes (4194304); give at least 4263936, or lower the message size",
    ),
    "thorough flush more often than the flush": (
        "  flush_commit_log_thorough_interval_ms: 100\n",
        "2: store.flush_commit_log_thorough_interval_ms: 100 is below"
        " store.flush_interval_commit_log_ms (500); give at least as much",
    ),
    "an index file that Java cannot map": (
        "  max_index_num: 100000000\n  max_hash_slot_num: 100000000\n",
        "2: store.max_index_num: an index file of 100000000 slots and 100000000 entries would take"
        " 2400000040 bytes, more than Java maps; give at most 87374180",
    ),
    "a file of a compaction topic without room for a message": (
        "  compaction_mapped_file_size_bytes: 8192\n  compaction_cq_mapped_file_size_bytes: 4600\n",
        "2: store.compaction_mapped_file_size_bytes: 23000 bytes, made of whole files of units, are"
        " too few for a message of store.max_message_size_bytes (4194304); give at least 4259848,"
        " or lower the message size",
    ),
    "an hour there is not": (
        "  delete_when: 24\n",
        "2: store.delete_when: '24' is not valid; give a whole number from 0 to 23 (an hour) or"
        " hours such as '04;16'",
    ),
    "hours with the wrong separator": (
        "  delete_when: 04,16\n",
        "2: store.delete_when: '04,16' is not valid; give a whole number from 0 to 23 (an hour) or"
        " hours such as '04;16'",
    ),
    "a ratio above the range": (
        "  disk_max_used_space_ratio: 96\n",
        "2: store.disk_max_used_space_ratio: '96' is not valid; give a whole number from 10 to 95"
        " (percent)",
    ),
    "deleting whatever the age too early": (
        "  disk_space_clean_forcibly_ratio: 60\n",
        "2: store.disk_space_clean_forcibly_ratio: 60 is below store.disk_max_used_space_ratio"
        " (75): files would be deleted whatever their age before the expired ones are; give at"
        " least as much",
    ),
    "refusing too early": (
        "  disk_space_warning_level_ratio: 90\n",
        "2: store.disk_space_warning_level_ratio: 90 is below"
        " store.disk_space_clean_forcibly_ratio (98): messages would be refused before anything is"
        " done for room; give at least as much",
    ),
    "a checksum that is asked for but not written": (
        "  force_verify_prop_crc: true\n",
        "2: store.force_verify_prop_crc: recovery would cut the log at the first record, for none"
        " has the checksum; set store.enabled_append_prop_crc too, before there are records",
    ),
    "a pool in front of a disk that is waited for": (
        "  flush_disk_type: SYNC_FLUSH\n  transient_store_pool_enable: true\n",
        "3: store.transient_store_pool_enable: a put that waits for the disk gains nothing from a"
        " buffer before it; set store.flush_disk_type to ASYNC_FLUSH, or leave the pool out",
    ),
    "a delay without a unit": (
        "  message_delay_level: 1s 5\n",
        "2: store.message_delay_level: '5' is not a delay; write numbers with s, m, h or d,"
        " separated by one space, such as '1s 10s 5m 2h'",
    ),
    "a delay of years": (
        "  message_delay_level: 1s 367d\n",
        "2: store.message_delay_level: level 2 is above a year; give at most 366d",
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_settings_that_do_not_go_together_are_named_with_a_remedy(text: str, expected: str) -> None:
    _, found = read(text)
    assert found == [f"cluster.yaml:{expected}"]


def test_a_real_rocketmq_configuration_is_accepted() -> None:
    settings, problems = read(
        "  max_hash_slot_num: 5000000\n  max_index_num: 20000000\n"
        "  disk_space_clean_forcibly_ratio: 85\n  disk_space_warning_level_ratio: 90\n"
    )
    assert problems == []
    assert settings.disk_space_warning_level_ratio == 90


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("04", (4,)),
        ("'04'", (4,)),
        ("08", (8,)),
        ("23", (23,)),
        ("04;16", (4, 16)),
        ("'0;9;23'", (0, 9, 23)),
    ],
)
def test_hours_are_written_as_in_rocketmq(text: str, hours: tuple[int, ...]) -> None:
    settings, problems = read(f"  delete_when: {text}\n")
    assert problems == []
    assert settings.delete_hours == hours


def test_a_local_disk_that_is_nearly_full_of_other_things_refuses_nothing() -> None:
    """RocketMQ's 85 and 90 would delete and refuse on many a developer's machine."""
    settings = StoreSettings()
    assert settings.disk_space_clean_forcibly_ratio == 98
    assert settings.disk_space_warning_level_ratio == 99
