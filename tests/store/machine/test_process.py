import gc
import tempfile
from pathlib import Path

from store.machine.process import this_process


def test_the_kernel_knows_this_process() -> None:
    gc.collect()  # or a file that a test before has left is closed meanwhile
    before = this_process()
    with tempfile.TemporaryFile():
        after = this_process()
    assert after.open_files == before.open_files + 1 <= before.files_max
    assert after.cpu_seconds >= before.cpu_seconds > 0
    assert before.resident_bytes > 1 << 20
    assert before.major_page_faults >= 0
    assert abs(Path("/proc/self").stat().st_ctime - before.started_seconds) < 1e6
