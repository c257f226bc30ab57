import errno
from pathlib import Path

import pytest

from tandem.log.errors import UnreadableFileError
from tandem.log.files import open_file


def test_a_file_that_has_gone_is_named_with_the_remedy(tmp_path: Path) -> None:
    with (
        pytest.raises(UnreadableFileError, match="run the command again") as caught,
        open_file(str(tmp_path / "gone")),
    ):
        pass
    assert caught.value.path == str(tmp_path / "gone")


def test_a_read_that_fails_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with pytest.raises(UnreadableFileError) as caught, open_file(str(path)):
        raise OSError(errno.EIO, "I/O error")
    assert (caught.value.path, caught.value.error.errno) == (str(path), errno.EIO)
