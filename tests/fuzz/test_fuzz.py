"""The fuzzing program finds what is planted, says how to see it again, and repeats itself."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from ha.fenced import epoch_file
from tests.fuzz import files, hostile
from tests.fuzz.__main__ import main
from tests.fuzz.remoting import Frames

if TYPE_CHECKING:
    from pathlib import Path


def test_a_batch_is_decided_by_seed_and_number() -> None:
    def made() -> list[bytes]:
        frames = Frames(random.Random("7/client/3"), name_server=False)
        return [frames.next() for _ in range(500)]

    assert made() == made()


def test_bytes_are_broken_in_every_way() -> None:
    chance = random.Random(1)
    found = {hostile.broken(chance, b'{"a":1}') for _ in range(300)}
    assert len(found) > 100
    assert min(map(len, found)) < 7 < max(map(len, found))


@pytest.mark.slow
def test_decoders_of_files_raise_their_own_errors_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "files", "--frames", "3000", "--seed", "1", "--quiet"]) == 0
    assert "0 findings" in capsys.readouterr().out


@pytest.mark.slow
def test_a_decoder_that_raises_something_else_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def careless(data: bytes) -> None:
        epoch_file.decode(data)
        data.decode()[1_000]

    monkeypatch.setattr(files, "_epochs", careless)
    assert main(["--target", "files", "--frames", "3000", "--seed", "1", "--quiet"]) == 1
    said = capsys.readouterr().out
    assert "FINDING files: epochFileCheckpoint: " in said
    assert "again: python -m tests.fuzz --target files --seed 1 --first 0" in said
