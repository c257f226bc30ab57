from pathlib import Path

import pytest

from tandem.client.cluster_access import ClusterAccess
from tandem.cluster_file.errors import ClusterConfigError
from tandem.spark.jobs.settings import (
    JOBS,
    ArchiveSettings,
    OpenFile,
    ReplaySettings,
    StatsSettings,
    load_settings,
)
from tandem.tls_files import TLSFiles


def test_a_file_and_options_together(tmp_path: Path) -> None:
    file = tmp_path / "archive.yaml"
    file.write_text("archive: out\nstores:\n  broker-a: data/broker-a-0\nopen_file: take\n")
    settings = load_settings(ArchiveSettings, file, {"exclude_topics": "[a, b]"})
    assert settings == ArchiveSettings(
        str(tmp_path / "out"),
        {"broker-a": str(tmp_path / "data/broker-a-0")},
        ["a", "b"],
        OpenFile.TAKE,
    )
    assert load_settings(ArchiveSettings, file, {"open_file": "leave"}).open_file is OpenFile.LEAVE


def test_options_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings(
        ArchiveSettings, None, {"archive": "out", "stores": "{broker-a: store}"}
    )
    assert settings.archive == str(tmp_path / "out")
    assert settings.stores == {"broker-a": str(tmp_path / "store")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("archive: a\n", "stores: missing"),
        ("archive: a\nstores: b\n", "archive.yaml:2: stores"),
        ("archive: a\nstores: {b: c}\nopenfile: take\n", "did you mean 'open_file'"),
        ("archive: a\nstores: {b: c}\nopen_file: eat\n", "give leave or take"),
        ("archive: a\nstores: {b: c}\nmaster: here\n", "local"),
        ("archive: [\n", "not valid YAML"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "archive.yaml"
    file.write_text(text)
    with pytest.raises(ClusterConfigError, match=r"archive\.yaml") as caught:
        load_settings(ArchiveSettings, file, {})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sotres": "{a: b}"}, "option sotres: unknown key; did you mean 'stores'"),
        ({"stores": "[a"}, "option stores: '[a' is not valid YAML"),
        ({"stores": "a"}, "option stores: must be a block"),
    ],
)
def test_a_wrong_option_is_told(options: dict[str, str], words: str) -> None:
    with pytest.raises(ClusterConfigError) as caught:
        load_settings(ArchiveSettings, None, {"archive": "a", **options})
    assert words in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ClusterConfigError, match="tandem pipeline init"):
        load_settings(ArchiveSettings, tmp_path / "none.yaml", {})


def test_numbers_have_a_range() -> None:
    given = {"state": "s", "source_topic": "t", "name_servers": "[a]", "messages_per_second": "-1"}
    with pytest.raises(ClusterConfigError, match="0: no limit"):
        load_settings(ReplaySettings, None, given)


def test_every_job_has_a_record() -> None:
    assert list(JOBS) == ["archive", "replay", "audit", "stats", "compact", "scrub"]


@pytest.mark.parametrize("places", [{}, {"archive": "a", "stores": "{broker-a: b}"}])
def test_one_of_archive_and_stores_is_read(places: dict[str, str]) -> None:
    needed = {"state": "s", "source_topic": "t", "name_servers": "[127.0.0.1:9876]"}
    with pytest.raises(ClusterConfigError, match="give one of them"):
        load_settings(ReplaySettings, None, needed | places)
    with pytest.raises(ClusterConfigError, match="give one of them"):
        load_settings(StatsSettings, None, places)


REPLAY = "state: s\nsource_topic: t\narchive: a\nname_servers: [h:1]\n"


def test_files_of_tls_count_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "replay.yaml"
    file.write_text(REPLAY + "tls: {ca_file: tls/ca.pem, check_hostname: false}\n")
    settings = load_settings(ReplaySettings, file, {})
    assert settings.tls == TLSFiles(str(tmp_path / "tls/ca.pem"), check_hostname=False)
    option = {"tls": "{ca_file: ca.pem, certificate_file: /c.pem, key_file: c.key}"}
    assert load_settings(ReplaySettings, file, option).tls == TLSFiles(
        str(Path.cwd() / "ca.pem"), "/c.pem", str(Path.cwd() / "c.key")
    )


@pytest.mark.parametrize(
    "wrong", ["{ca_file: ''}", "{ca_fil: x}", "x", "{ca_file: a, key_file: b}"]
)
def test_wrong_tls_is_an_error_of_that_setting(wrong: str) -> None:
    options = {"state": "s", "source_topic": "t", "name_servers": "[h:1]", "archive": "a"}
    with pytest.raises(ClusterConfigError) as caught:
        load_settings(ReplaySettings, None, {**options, "tls": wrong})
    assert caught.value.problems[0].startswith("option tls")


def test_who_sends_is_in_the_environment_and_in_no_file(tmp_path: Path) -> None:
    file = tmp_path / "replay.yaml"
    file.write_text(REPLAY)
    settings = load_settings(ReplaySettings, file, {})
    assert settings.access({}) == ClusterAccess("h:1")
    named = {
        "TANDEM_ACCESS_KEY": "me",
        "TANDEM_SECRET_KEY": "some secret",
        "TANDEM_SIGNATURES": "any",
    }
    expected = ClusterAccess("h:1", "me", "some secret", signatures="any")
    assert settings.access(named) == expected
    for wrong in ({"TANDEM_ACCESS_KEY": "me"}, {"TANDEM_SIGNATURES": "x"}):
        with pytest.raises(ClusterConfigError, match="TANDEM_SECRET_KEY"):
            settings.access(wrong)
