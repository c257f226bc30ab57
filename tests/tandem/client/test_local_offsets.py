from pathlib import Path

import pytest

from tandem.client.errors import OffsetsFileError
from tandem.client.local_offsets import LocalOffsets
from tandem.client.results import MessageQueue
from tandem.wire.untrusted import UnreadableError

ONE = MessageQueue("orders", "broker-a", 0)
TWO = MessageQueue("orders", "broker-a", 1)


def test_offsets_outlive_the_process(tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    offsets = LocalOffsets(file)
    assert offsets.find(ONE) is None
    offsets.set(ONE, 5)
    offsets.set(TWO, 7)
    offsets.save()
    again = LocalOffsets(file)
    assert (again.find(ONE), again.find(TWO)) == (5, 7)
    assert [each.name for each in tmp_path.iterdir()] == ["offsets.json"]


def test_nothing_is_written_when_nothing_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    offsets = LocalOffsets(file)
    offsets.set(ONE, 5)
    offsets.save()
    file.unlink()
    offsets.set(ONE, 5)
    offsets.save()
    assert not file.exists()


def test_without_a_file_they_are_kept_in_memory() -> None:
    offsets = LocalOffsets(None)
    offsets.set(ONE, 5)
    offsets.save()
    assert offsets.find(ONE) == 5


@pytest.mark.parametrize("text", ["", "{}", '[{"topic": "x"}]', "\udcff", "[" * 100_000])
def test_a_file_of_something_else_is_named_with_what_to_do(tmp_path: Path, text: str) -> None:
    file = tmp_path / "offsets.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(OffsetsFileError, match=r"offsets\.json.*remove it"):
        LocalOffsets(file)


def test_a_directory_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path / "missing" / "offsets.json")
    offsets.set(ONE, 5)
    with pytest.raises(OffsetsFileError) as caught:
        offsets.save()
    assert caught.value.path == tmp_path / "missing" / "offsets.json"
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_a_flipped_bit_is_never_taken_for_an_offset(tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    offsets = LocalOffsets(file)
    offsets.set(ONE, 5)
    offsets.save()
    whole = file.read_bytes()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        with pytest.raises(OffsetsFileError) as caught:
            LocalOffsets(file)
        assert isinstance(caught.value.__cause__, UnreadableError)
    (tmp_path / "other.json").write_bytes(whole[: whole.rindex(b"{")])
    assert LocalOffsets(tmp_path / "other.json").find(ONE) == 5
