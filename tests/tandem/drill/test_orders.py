import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.drill.errors import InputError, InputFault
from tandem.drill.orders import FileLines, Orders


def lines_of(path: Path, data: bytes, line_bytes_max: int = 1000) -> FileLines:
    path.write_bytes(data)
    return FileLines(path, line_bytes_max=line_bytes_max)


def test_orders_are_decided_by_seed_producer_and_sequence() -> None:
    one, same, other = Orders(1), Orders(1), Orders(2)

    assert one.take("sync-1", 5) == same.take("sync-1", 5)
    assert one.take("sync-1", 5) != other.take("sync-1", 5)


def test_orders_are_unique() -> None:
    orders = Orders(1)

    bodies = {
        orders.take(producer, sequence).data
        for producer in ("sync-1", "sync-2", "async-1")
        for sequence in range(300)
    }

    assert len(bodies) == 900


def test_an_order_is_json_with_a_sum_that_adds_up() -> None:
    order = msgspec.json.decode(Orders(1).take("sync-1", 0).data)

    assert order["order"] == "sync-1-0000000"
    assert order["total_cents"] == sum(item["count"] * item["cents"] for item in order["items"])


def test_lines_come_in_order_without_line_ends(tmp_path: Path) -> None:
    with lines_of(tmp_path / "log", b'one\r\n\n{"two": 2}\n\xe9t\xe9\n\r\nlast') as lines:
        bodies = [lines.take("p", n).data for n in range(lines.line_count)]

    assert bodies == [b"one", b'{"two": 2}', b"\xe9t\xe9", b"last"]


def test_lines_that_failed_come_again_before_the_first_line_does(tmp_path: Path) -> None:
    with lines_of(tmp_path / "log", b"a\nb\nc\n") as lines:
        first = [lines.take("p", n) for n in range(3)]
        lines.settle(first[0], acknowledged=True)
        lines.settle(first[1], acknowledged=False)
        lines.settle(first[2], acknowledged=True)

        assert lines.acknowledged_count == 2
        again = lines.take("p", 3)
        assert again.data == b"b"
        lines.settle(again, acknowledged=True)
        assert lines.acknowledged_count == lines.line_count == 3
        assert [lines.take("p", n).data for n in (4, 5, 6, 7)] == [b"a", b"b", b"c", b"a"]


def test_a_line_that_was_acknowledged_meanwhile_is_not_put_back(tmp_path: Path) -> None:
    with lines_of(tmp_path / "log", b"a\n") as lines:
        first, second, third = (lines.take("p", n) for n in range(3))
        lines.settle(first, acknowledged=False)
        lines.settle(second, acknowledged=True)
        lines.settle(third, acknowledged=False)

        assert lines.acknowledged_count == 1
        assert lines.take("p", 3).data == b"a"


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\0" not in line)))
def test_every_line_that_is_not_empty_is_taken_once(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    data = b"\n".join(parts)
    wanted = [line.rstrip(b"\r") for line in data.split(b"\n")]
    wanted = [line for line in wanted if line]
    path = tmp_path_factory.mktemp("lines") / "log"
    if not wanted:
        with pytest.raises(InputError) as caught:
            lines_of(path, data)
        assert caught.value.fault is InputFault.EMPTY
        return

    with lines_of(path, data) as lines:
        assert [lines.take("p", n).data for n in range(lines.line_count)] == wanted


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--input .*nothing: No such file") as caught:
        FileLines(tmp_path / "nothing", line_bytes_max=100)
    assert caught.value.fault is InputFault.UNREADABLE


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give a text or NDJSON file") as caught:
        FileLines(tmp_path, line_bytes_max=100)
    assert caught.value.fault is InputFault.NOT_A_FILE


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(InputError) as caught:
        FileLines(tmp_path / "pipe", line_bytes_max=100)
    assert caught.value.fault is InputFault.NOT_A_FILE


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        lines_of(tmp_path / "log", b"\n\r\n")
    assert caught.value.fault is InputFault.EMPTY


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at byte 3") as caught:
        lines_of(tmp_path / "log", b"abc\0def\n")
    assert caught.value.fault is InputFault.BINARY


def test_a_line_of_exactly_the_limit_is_sent(tmp_path: Path) -> None:
    with lines_of(tmp_path / "log", b"x" * 10 + b"\r\n" + b"y" * 10, line_bytes_max=10) as lines:
        assert lines.line_count == 2


def test_a_line_above_the_limit_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2 .* 10 bytes") as caught:
        lines_of(tmp_path / "log", b"fine\n" + b"x" * 11 + b"\nfine\n", line_bytes_max=10)
    assert caught.value.fault is InputFault.LONG_LINE


def test_a_file_that_shrinks_is_noticed(tmp_path: Path) -> None:
    with lines_of(tmp_path / "log", b"one\ntwo\n") as lines:
        (tmp_path / "log").write_bytes(b"one\n")
        lines.take("p", 0)

        with pytest.raises(InputError) as caught:
            lines.take("p", 1)
        assert caught.value.fault is InputFault.SHRUNK
