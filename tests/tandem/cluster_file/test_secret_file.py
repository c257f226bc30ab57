import os
import pickle
import stat
from pathlib import Path

import pytest

from tandem.cluster_file.secret_file import (
    SECRET_BYTES_MIN,
    SECRET_FILE_BYTES_MAX,
    SecretFault,
    SecretFileError,
    SecretNotMadeError,
    make_secret,
    read_secret,
)
from tests.support.secret import SECRET, write_secret
from tests.tandem.cluster_file.files import FENCED, load


def test_whoever_starts_first_makes_a_secret_for_its_owner_alone(tmp_path: Path) -> None:
    config = load(tmp_path, FENCED)
    assert config.secret == ""
    first = config.with_secret()
    file = tmp_path / "data" / "secret"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["secret"]
    assert len(first.secret) == 64
    assert load(tmp_path, FENCED).with_secret().secret == first.secret


def test_all_who_start_at_once_know_the_same_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "data" / "secret"
    # Each of them has looked before one of them had made it.
    monkeypatch.setattr(Path, "exists", lambda _: False)
    make_secret(file)
    first = read_secret(file)
    make_secret(file)
    assert read_secret(file) == first
    assert list(file.parent.iterdir()) == [file]


def test_a_secret_that_is_named_is_not_made(tmp_path: Path) -> None:
    write_secret(tmp_path / "own")
    text = "cluster: {secret_file: own}\n" + FENCED
    assert load(tmp_path, text).with_secret().secret == SECRET
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_secret_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    write_secret(file)
    file.chmod(mode)
    with pytest.raises(SecretFileError, match=f"{mode:04o}.*chmod 600") as caught:
        read_secret(file)
    assert caught.value.fault is SecretFault.OPEN_TO_OTHERS


def test_a_secret_is_in_a_regular_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for what in (pipe, tmp_path, Path("/dev/null")):
        with pytest.raises(SecretFileError) as caught:
            read_secret(what)
        assert caught.value.fault is SecretFault.NOT_A_FILE


def test_a_secret_that_is_missing_is_asked_of_another_machine(tmp_path: Path) -> None:
    with pytest.raises(SecretFileError, match="another machine of the cluster") as caught:
        read_secret(tmp_path / "absent")
    assert caught.value.fault is SecretFault.MISSING


def test_a_secret_is_neither_guessed_nor_a_whole_file_of_something_else(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    write_secret(file)
    file.write_text(" " * 20 + "x" * (SECRET_BYTES_MIN - 1) + "\n")
    with pytest.raises(SecretFileError, match="openssl rand") as caught:
        read_secret(file)
    assert caught.value.fault is SecretFault.TOO_SHORT
    file.write_text("x" * SECRET_BYTES_MIN + "\n")
    assert read_secret(file) == "x" * SECRET_BYTES_MIN
    file.write_text("x" * (SECRET_FILE_BYTES_MAX + 1))
    with pytest.raises(SecretFileError) as caught:
        read_secret(file)
    assert caught.value.fault is SecretFault.TOO_LONG
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.fault) == (str(caught.value), caught.value.fault)


def test_a_directory_that_takes_no_secret_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SecretNotMadeError, match=str(tmp_path / "file")):
        make_secret(tmp_path / "file" / "secret")


def test_a_changed_byte_of_a_secret_that_was_made_here_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    make_secret(file)
    secret, whole = read_secret(file), file.read_bytes()
    assert len(secret) == 64
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        with pytest.raises(SecretFileError) as caught:
            read_secret(file)
        assert caught.value.fault in (SecretFault.CHANGED, SecretFault.UNREADABLE)
    # Under whatever name it is copied to another machine.
    copy = tmp_path / "cluster-secret"
    copy.touch(0o600)
    copy.write_bytes(whole)
    assert read_secret(copy) == secret


@pytest.mark.parametrize(
    "text", ["0123456789abcdef", "two words, and more\nin two lines\n", '{"key": "0123456789"}\n']
)
def test_a_secret_that_a_person_has_written_is_taken_as_it_is(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secret"
    file.touch(0o600)
    file.write_text(text)
    assert read_secret(file) == text.strip()
