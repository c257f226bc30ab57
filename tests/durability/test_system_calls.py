"""What strace wrote is read as what happened."""

from pathlib import Path

from tests.durability.system_calls import read_calls

WRITTEN = """\
7 linkat(26</d/#10>(deleted), "/proc/self/fd/26", AT_FDCWD</w>, "/d/0", AT_SYMLINK_FOLLOW) = 0
7 fsync(28</d>) = 0
7 linkat(23</d/#11>(deleted), "/proc/self/fd/23", AT_FDCWD</w>, "/d/1", 0 <unfinished ...>
8 fdatasync(24</e/journal> <unfinished ...>
7 <... linkat resumed>)             = -1 EEXIST (File exists)
8 <... fdatasync resumed>)          = 0
8 rename("/e/a", "/e/b") = -1 ENOENT (No such file or directory)
8 fsync(24</e> <unfinished ...>
8 <... fsync resumed>)              = ?
"""


def test_calls_that_failed_or_never_ended_did_nothing(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    path.write_text(WRITTEN)
    calls = read_calls(path)
    assert [(call.name, call.target) for call in calls] == [
        ("linkat", "/d/#10"),
        ("fsync", "/d"),
        ("fdatasync", "/e/journal"),
    ]
    assert calls[0].names[-1] == "/d/0"
    assert (calls[2].begun, calls[2].ended) == (3, 5)
