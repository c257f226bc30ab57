import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from store.machine.real_disk import RealDisk
from tandem.cli.command_line import app
from tandem.coordinator.journal import DiskFile, Journal
from tandem.coordinator.kv import KeyValueStore
from tandem.wire.message import Message, encode_batch_body
from tests.store.store_world import open_store
from tests.support.log_builder import LogBuilder
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import (
    NAMES,
    copy_of,
    log_file,
    our_store,
    overwrite,
    take_fingerprints,
)


def tandem(*arguments: object) -> Result:
    line = ["log", *map(str, arguments)]
    return CliRunner().invoke(app, line, catch_exceptions=False, prog_name="tandem")


def records(*arguments: object) -> list[dict[str, Any]]:
    done = tandem("dump", *arguments, "--format", "jsonl")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("command", ["ls", "dump", "stat"])
def test_commands_read_every_store_of_rocketmq(command: str, name: str) -> None:
    done = tandem(command, GOLDEN / name)
    assert done.exit_code == 0
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) >= 2


@pytest.mark.parametrize("command", ["ls", "stat"])
def test_programs_get_json(command: str) -> None:
    done = tandem(command, GOLDEN / "basic", "--format", "json")
    assert isinstance(json.loads(done.stdout), dict)


def test_a_record_as_json_has_all_fields() -> None:
    found = records(GOLDEN / "basic", "--limit", 1)
    assert found[0]["topic"] == "TopicA"
    assert found[0]["body"] == "hello0"
    assert found[0]["properties"] == {"KEYS": "k1 k2", "UNIQ_KEY": "U0", "TAGS": "TagA"}
    assert found[0]["msg_id"] == "U0"
    assert found[0]["crc_ok"] is True


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--topic", "TopicA", "--queue", "1"], [0, 136, 272]),
        (["--topic", "x"], []),
        (["--offset", "1:"], [136, 272]),
        (["--queue-offset", "1"], [136]),
        (["--physical", "136"], [136]),
        (["--key", "U1"], [136]),
        (["--key", "U1", "--topic", "TopicA"], [136]),
        (["--key", "U1", "--topic", "TopicA", "--scan"], [136]),
        (["--tags", "TagB || TagA"], [0, 136, 272]),
        (["--tags", "TagB"], []),
        (["--since", "1795218857990"], [136, 272]),
        (["--until", "2026-11-20T23:54:17.980"], [0]),
        (["--limit", "2"], [0, 136]),
    ],
)
def test_filters_choose_records(options: list[str], offsets: list[int]) -> None:
    assert [record["physical_offset"] for record in records(GOLDEN / "basic", *options)] == offsets


def test_bodies_are_shown_as_text_as_hex_or_not_at_all(tmp_path: Path) -> None:
    log = LogBuilder()
    log.put(body=b"\xff\x00")
    root = log.write(tmp_path)
    assert records(root)[0]["body_base64"] == "/wA="
    assert records(root, "--body", "hex")[0]["body_hex"] == "ff00"
    assert "body" not in records(root, "--body", "none")[0]
    assert "ff00" in tandem("dump", root, "--body", "hex").stdout


def test_an_inner_batch_is_shown_message_by_message(tmp_path: Path) -> None:
    log = LogBuilder()
    body = encode_batch_body([Message("T", b"first"), Message("T", b"second")])
    log.put(body=body, sys_flag=0xC0, properties={"INNER_NUM": "2"})
    root = log.write(tmp_path)
    (record,) = records(root)
    assert [inner["body"] for inner in record["messages"]] == ["first", "second"]
    table = tandem("dump", root).stdout
    assert "batch of 2" in table
    assert "second" in table


def test_corruption_is_told_and_is_1_a_torn_end_is_told_and_is_0(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 272 + 4, b"XXXX")
    done = tandem("dump", root)
    assert done.exit_code == 0
    assert "torn" in done.stderr
    overwrite(log_file(root), 136 + 4, b"XXXX")
    overwrite(log_file(root), 272 + 4, b"\xda\xa3\x20\xa7")
    for command in ("dump", "stat"):
        done = tandem(command, root)
        assert done.exit_code == 1
        assert "position 136 (offset 136): corrupt: magic" in done.stderr


def test_diff_says_in_words_and_by_its_status(tmp_path: Path) -> None:
    other = copy_of("basic", tmp_path)
    same = tandem("diff", GOLDEN / "basic", other)
    assert (same.exit_code, same.stdout) == (0, "equal: 3 records, offsets 0 to 408\n")
    overwrite(log_file(other), 136 + 88, b"X")
    done = tandem("diff", GOLDEN / "basic", other)
    assert done.exit_code == 1
    assert "body: 6 bytes, different from byte 0: 'hello1' in A, 'Xello1' in B" in done.stdout
    as_json = json.loads(tandem("diff", GOLDEN / "basic", other, "--format", "json").stdout)
    assert as_json["offset"] == 136 + 88


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls", "/nowhere"),
        ("diff", "/nowhere", "/nowhere"),
        ("dump", GOLDEN / "basic", "--offset", "9:5"),
        ("dump", GOLDEN / "basic", "--since", "yesterday"),
        ("dump", GOLDEN / "basic", "--max-index-num", "5"),
        ("dump", GOLDEN / "basic", "--format", "yaml"),
    ],
)
def test_what_the_user_wrote_wrong_is_2(arguments: tuple[object, ...]) -> None:
    done = tandem(*arguments)
    assert done.exit_code == 2
    assert done.stderr


def test_a_store_in_use_is_read_and_said_to_be(tmp_path: Path) -> None:
    root = our_store(tmp_path, 3)
    with open_store(RealDisk(), str(root)):
        done = tandem("ls", root)
    assert done.exit_code == 0
    assert "is open in a running node" in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", NAMES)
def test_verify_finds_every_store_of_rocketmq_sound(name: str) -> None:
    done = tandem("verify", GOLDEN / name)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "sound"
    assert done.stderr == ""


def test_verify_tells_file_position_meaning_and_remedy(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 136 + 88, b"X")
    done = tandem("verify", root)
    assert done.exit_code == 1
    assert "damage: record-crc: the body is not what was stored" in done.stdout
    assert "  remedy: heal it from another node's copy of the log" in done.stdout
    assert f"  {log_file(root)}: position 136: offset 136: body CRC is" in done.stdout
    assert done.stdout.splitlines()[-1] == "DAMAGED: 1 findings"
    report = json.loads(tandem("verify", root, "--format", "json").stdout)
    assert report["damage_count"] == 1
    assert report["findings"][0]["remedy"]


def test_what_a_crash_explains_is_a_warning_unless_strict(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    (root / "abort").touch()
    overwrite(log_file(root), 408, b"garbage")
    done = tandem("verify", root)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "sound, with warnings"
    assert tandem("verify", root, "--strict").exit_code == 1


def test_verify_refuses_what_makes_no_sense() -> None:
    for options in (["--message-delay-level", "soon"], ["--max-index-num", "5"], ["-j", "0"]):
        done = tandem("verify", GOLDEN / "basic", *options)
        assert done.exit_code == 2
        assert done.stderr
    settings = ["--max-hash-slot-num", "1", "--max-index-num", "5"]
    assert tandem("verify", GOLDEN / "basic", *settings).exit_code == 2
    settings = ["--max-hash-slot-num", "100", "--max-index-num", "400"]
    assert tandem("verify", GOLDEN / "basic", *settings).exit_code == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_store_of_rocketmq_is_exported(tmp_path: Path, name: str) -> None:
    done = tandem("export", GOLDEN / name, tmp_path / "out.parquet")
    assert done.exit_code == 0
    assert "out.parquet: " in done.stdout
    assert (tmp_path / "out.parquet").read_bytes()[:4] == b"PAR1"


def test_an_export_refuses_what_makes_no_sense_and_tells_of_damage(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    assert tandem("export", GOLDEN / "basic", out, "--columns", "colour").exit_code == 2
    chosen = ["--topic", "TopicA", "--columns", "topic, body"]
    assert tandem("export", GOLDEN / "basic", out, *chosen).exit_code == 0
    assert tandem("export", GOLDEN / "basic", out).exit_code == 2
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 4, b"XXXX")
    done = tandem("export", root, out, "--force")
    assert done.exit_code == 1
    assert "corrupt" in done.stderr


def test_a_repair_is_a_dry_run_first(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    assert tandem("repair", root).stdout == "nothing to repair\n"
    queue = root / "consumequeue" / "TopicA" / "1" / f"{0:020d}"
    overwrite(queue, 20, b"damage")
    done = tandem("repair", root)
    assert done.exit_code == 0
    assert "would build the queue consumequeue/TopicA/1 anew" in done.stdout
    assert "nothing was changed" in done.stdout
    assert queue.read_bytes()[20:26] == b"damage"


@pytest.mark.slow
def test_a_repair_that_is_written_ends_with_a_sound_store(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(root / "consumequeue" / "TopicA" / "1" / f"{0:020d}", 20, b"damage")
    done = tandem("repair", root, "--write")
    assert done.exit_code == 0, done.output
    assert "kept: " in done.stdout
    assert done.stdout.splitlines()[-1] == "sound"


@pytest.mark.slow
def test_a_repair_is_a_record_for_programs(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(root / "consumequeue" / "TopicA" / "1" / f"{0:020d}", 20, b"damage")
    dry = json.loads(tandem("repair", root, "--format", "json").stdout)
    assert dry["steps"]
    assert (dry["refusal"], dry["done"]) == ("", None)
    done = json.loads(tandem("repair", root, "--write", "--format", "json").stdout)["done"]
    assert done["log_end"] > done["log_start"]
    again = json.loads(tandem("repair", root, "--format", "jsonl").stdout)
    assert (again["steps"], again["done"]) == ([], None)


def test_a_repair_that_would_lose_messages_is_refused(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 136 + 88, b"X")
    done = tandem("repair", root, "--write")
    assert done.exit_code == 1
    assert "lose 2 messages" in done.stderr
    assert tandem("repair", root, "--cut-at", "100", "--accept-loss").exit_code == 2


def test_the_journal_of_a_coordinator_is_verified(tmp_path: Path) -> None:
    journal = Journal(DiskFile(tmp_path / "coordinator"))
    journal.restore(KeyValueStore(), 0.0)
    journal.close()
    done = tandem("verify", tmp_path / "coordinator")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "sound")
    assert "checked 1 records of the coordinator's journal" in done.stdout
    overwrite(tmp_path / "coordinator" / "journal", 12, b"?")
    done = tandem("verify", tmp_path / "coordinator")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "sound, with warnings")
    assert tandem("verify", tmp_path / "coordinator", "--strict").exit_code == 1
    document = json.loads(tandem("verify", tmp_path / "coordinator", "--format", "json").stdout)
    assert [each["kind"] for each in document["findings"]] == ["coordinator-copy"]
    (tmp_path / "coordinator" / "journal").write_bytes(bytes(100))
    done = tandem("verify", tmp_path / "coordinator")
    assert done.exit_code == 1
    assert "recover-group GROUP" in done.stdout


def test_a_repair_leaves_a_changed_header_and_says_how_it_is_healed(tmp_path: Path) -> None:
    root = our_store(tmp_path)
    take_fingerprints(root)
    overwrite(log_file(root), 50, b"\xff")
    done = tandem("repair", root)
    assert done.exit_code == 0
    assert "--from OTHER_DIRECTORY heals it" in done.stdout
