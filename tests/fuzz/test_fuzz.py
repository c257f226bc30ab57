"""The fuzzing program finds what is planted, says how to see it again, and repeats itself."""

import random
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pytest

from ha.fenced import epoch_file
from tandem.wire.checksum_line import with_checksum
from tests.fuzz import files, hostile
from tests.fuzz.__main__ import main
from tests.fuzz.remoting import Frames


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


CUT: Final = ("batch", "records")
"""Their content ends within a record, as they have it here."""
MEMORY_BYTES_MAX: Final = 16 << 20
SECONDS_MAX: Final = 5.0
"""Of the processor, for one input of a few KB, on a machine that does other things too."""


def _inputs(chance: random.Random, name: str, sample: bytes) -> Iterator[bytes]:
    """Content of a file, whole, cut, changed, nested, of other types, with huge numbers."""
    yield sample
    for at in sorted(chance.sample(range(len(sample)), min(len(sample), 60))):
        yield sample[:at]
        yield sample[:at] + bytes([sample[at] ^ 1 << chance.randrange(8)]) + sample[at + 1 :]
    for _ in range(100):
        yield hostile.broken(chance, hostile.broken(chance, sample))
        yield chance.randbytes(chance.randrange(300))
    first_line = sample.partition(b"\n")[0]
    try:
        template = msgspec.json.decode(first_line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    rows = template if isinstance(template, list) else [template]
    if not isinstance(rows[0], dict):
        return
    made = [*hostile.RAW_JSON, *(hostile.json_of(chance, rows[0]) for _ in range(200))]
    for content in made:
        for inner in (content, b"[%b]" % content):
            yield inner
            # What fits its checksum was written by somebody, and goes on to the decoder.
            yield with_checksum(name, inner)


@pytest.mark.slow
def test_each_decoder_of_a_file_takes_anything_in_little_memory_and_time(tmp_path: Path) -> None:
    rows = [row for row in files.FileDecoders(tmp_path).rows if row[0] not in files.SLOW]
    assert len(rows) > 20
    for name, sample, decode in rows:
        chance = random.Random(name)
        if name not in CUT:
            decode(sample)
        for data in _inputs(chance, name, sample):
            tracemalloc.start()
            started = time.thread_time()
            with suppress(*files.EXPECTED):
                decode(data)
            seconds = time.thread_time() - started
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < MEMORY_BYTES_MAX + 20 * len(data), (name, data[:200], peak)
            assert seconds < SECONDS_MAX, (name, data[:200], seconds)


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
