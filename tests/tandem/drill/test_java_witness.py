"""RocketMQ's consumer beside a drill, with shells that stand in for Java."""

from pathlib import Path

import msgspec
import pytest
import trio

from tandem.drill.errors import WitnessStartError
from tandem.drill.java_witness import (
    LEDGER_NAME,
    SOURCE,
    Delivery,
    WitnessJava,
    delivery_of,
    witnessing,
)

SAYS = """\
#!/bin/sh
echo a word of a library
echo ready
echo "0 0 4294967295 0 sync-1-0000000"
echo "3 17 5 1 sync-1-0000001"
echo "0 x 5 1 sync-1-0000001"
cat
"""


def java(directory: Path, program: str) -> WitnessJava:
    place = directory / "java"
    place.write_text(program)
    place.chmod(0o755)
    return WitnessJava(java=str(place), class_path="x.jar", version="5.3.3")


def test_a_line_is_a_delivery_with_the_checksum_of_rocketmq() -> None:
    assert delivery_of(b"3 17 4294967295 1 a key") == Delivery(3, 17, 0x7FFFFFFF, 1, "a key")


@pytest.mark.parametrize("line", [b"", b"ready", b"1 2 3 4", b"-1 2 3 4 k", b"1 2 x 4 k", b"\xff"])
def test_what_is_no_delivery_is_none(line: bytes) -> None:
    assert delivery_of(line) is None


def test_the_program_is_in_the_package() -> None:
    assert "class Witness" in SOURCE.read_text()


async def test_what_it_says_is_its_ledger_and_it_ends_with_its_input(tmp_path: Path) -> None:
    started = java(tmp_path, SAYS)
    async with witnessing(started, ["127.0.0.1:9876"], "topic", tmp_path) as witness:
        with trio.fail_after(60):
            while len(witness.deliveries) < 2:
                await trio.sleep(0.01)
        ours = {(0, 0): ("sync-1-0000000", 1), (1, 1): ("x", 1)}
        assert not witness.seen(ours).held
        assert witness.seen({(0, 0): ("sync-1-0000000", 1)}).held

    lines = (tmp_path / LEDGER_NAME).read_bytes().splitlines()
    assert [msgspec.json.decode(line, type=Delivery).place for line in lines] == [(0, 0), (3, 17)]


async def test_one_that_does_not_start_says_why(tmp_path: Path) -> None:
    ends = "#!/bin/sh\necho error: module jdk.compiler not found >&2\nexit 1\n"
    with pytest.raises(ExceptionGroup) as failed:
        async with witnessing(java(tmp_path, ends), ["127.0.0.1:9876"], "topic", tmp_path):
            pass
    (error,) = failed.value.exceptions
    assert isinstance(error, WitnessStartError)
    assert "jdk.compiler" in str(error)
