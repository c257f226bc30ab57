import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tandem.cluster.private_disks import NOT_POSSIBLE, PrivateDisksError, mount_private_disks
from tests.support.patience import PATIENCE_SECONDS
from tests.support.processes import ENVIRONMENT

PROGRAM = """
import ctypes, errno, os, sys
from pathlib import Path
from tandem.cluster.private_disks import mount_private_disks
place, user = Path(sys.argv[1], "store"), int(sys.argv[2])
if user != os.geteuid():
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # As a process is that has this user from its start: it may write to its own /proc.
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
before = os.geteuid(), os.getegid()
mount_private_disks([place], 1)
assert (os.geteuid(), os.getegid()) == before
try:
    (place / "file").write_bytes(bytes(2_000_000))
except OSError as error:
    print(error.errno == errno.ENOSPC, (place / "file").stat().st_size <= 1_048_576, flush=True)
else:
    print("there was room", flush=True)
input()
"""

NOBODY = 65534


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("user", [os.geteuid(), NOBODY])
def test_a_disk_is_small_and_only_of_this_process(user: int) -> None:
    # Not below pytest's own directory, which only its user may enter.
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        look_at_a_disk(Path(directory), user)


def look_at_a_disk(tmp_path: Path, user: int) -> None:
    if user != os.geteuid() and os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(0o777)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, str(tmp_path), str(user)],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        if not line:
            words = process.stderr.read()
            assert NOT_POSSIBLE in words
            pytest.skip(words.splitlines()[-1])
        assert line == "True True\n"
        assert list((tmp_path / "store").iterdir()) == []
        outside = Path(f"/proc/{process.pid}/root{tmp_path}/store/file")
        assert outside.stat().st_size > 1_000_000
        process.communicate("\n", timeout=PATIENCE_SECONDS)
    assert process.returncode == 0


def test_a_system_that_refuses_is_named_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class System:
        def unshare(self, *_: int) -> int:
            ctypes.set_errno(1)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_kwargs: System())
    for user, what in ((0, "a mount namespace"), (1000, "a user namespace")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        with pytest.raises(PrivateDisksError, match=f"{NOT_POSSIBLE}{what}: .* run as root"):
            mount_private_disks([tmp_path], 1)
