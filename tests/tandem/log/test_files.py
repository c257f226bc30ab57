from pathlib import Path

import pytest

from tandem.log.errors import UnreadableFileError
from tandem.log.files import open_file


def test_a_file_that_has_gone_is_named_with_the_remedy(tmp_path: Path) -> None:
    with (
        pytest.raises(UnreadableFileError, match=r"gone: No such file.*run the command again"),
        open_file(str(tmp_path / "gone")),
    ):
        pass


def test_a_read_that_fails_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with pytest.raises(UnreadableFileError, match="file: I/O"), open_file(str(path)):
        raise OSError(5, "I/O error")
