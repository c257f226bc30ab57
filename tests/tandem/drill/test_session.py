from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tandem.drill import session
from tandem.drill.errors import BadOptionsError, DrillError, first_of
from tandem.drill.options import RATE_PER_SECOND_DEFAULT, DrillOptions
from tandem.drill.orders import FileLines, Orders
from tandem.drill.session import RATE_PER_SECOND_AUTOMATIC_MAX


def lines_file(directory: Path, count: int) -> Path:
    path = directory / "lines.txt"
    path.write_bytes(b"a line\n" * count)
    return path


def test_orders_are_sent_unless_a_file_is_given(tmp_path: Path) -> None:
    with ExitStack() as stack:
        assert isinstance(session._source(DrillOptions(), 100, stack), Orders)
        options = DrillOptions(input_file=lines_file(tmp_path, 3))
        assert isinstance(session._source(options, 100, stack), FileLines)
        with pytest.raises(BadOptionsError):
            session._source(options, 2, stack)


@pytest.mark.parametrize(
    ("lines", "asked", "rate"),
    [
        (10, None, RATE_PER_SECOND_DEFAULT),
        (50_000, None, 50_000 / (40 * 0.7)),
        (500_000, None, RATE_PER_SECOND_AUTOMATIC_MAX),
        (500_000, 123.0, 123.0),
    ],
)
def test_the_rate_grows_with_the_input_unless_it_is_given(
    tmp_path: Path, lines: int, asked: float | None, rate: float
) -> None:
    path = lines_file(tmp_path, lines)
    with FileLines(path, line_bytes_max=100) as source:
        options = DrillOptions(input_file=path, rate_per_second=asked)
        assert session._rate(options, source, 2) == pytest.approx(rate)


def test_logs_stay_and_data_goes(tmp_path: Path) -> None:
    (tmp_path / "data" / "logs").mkdir(parents=True)
    (tmp_path / "data" / "logs" / "broker-a-0.log").touch()
    (tmp_path / "data" / "broker-a-0").mkdir()

    assert session._tidy(tmp_path, keep_data=False) is None

    assert {path.name for path in tmp_path.iterdir()} == {"logs"}
    assert (tmp_path / "logs" / "broker-a-0.log").exists()


def test_data_stays_as_evidence_if_asked(tmp_path: Path) -> None:
    (tmp_path / "data" / "broker-a-0").mkdir(parents=True)

    assert session._tidy(tmp_path, keep_data=True) == tmp_path / "data"
    assert (tmp_path / "data" / "broker-a-0").exists()


def test_nothing_to_tidy_is_fine(tmp_path: Path) -> None:
    assert session._tidy(tmp_path, keep_data=True) is None
    assert session._tidy(tmp_path, keep_data=False) is None


def test_of_nested_groups_of_errors_one_is_told() -> None:
    told = DrillError("the one")

    nested: Any = ExceptionGroup("", [ExceptionGroup("", [told])])
    assert first_of(nested) is told


def test_a_directory_in_which_no_node_had_its_store_is_not_said_to_be_kept(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert session._tidy(tmp_path, keep_data=True) is None
    assert not (tmp_path / "data").exists()
