from node.simulated.disk import SimulatedDisk
from store.machine.kept_files import ONLY_OURS, KeptFile, KeptFiles, keep


def test_what_a_file_has_to_hold_is_asked_of_its_owner_each_time() -> None:
    contents = [b"one", b"two"]
    files = KeptFiles()
    files.keep("/a/1", lambda: KeptFile(contents.pop(0), ONLY_OURS, lambda: None))
    files.keep("/a/2", lambda: None)
    kept = [files.of("/a/1"), files.of("/a/1")]
    assert [file.content for file in kept if file] == [b"one", b"two"]
    assert files.of("/a/2") is None
    assert files.of("/a/3") is None


def test_only_whole_names_are_meant() -> None:
    files = KeptFiles()
    for path in ("/a/1", "/a/10", "/ab/1"):
        files.keep(path, lambda: None)
    assert files.below("/a") == ["/a/1", "/a/10"]
    files.forget("/a/1")
    assert files.below("/a") == ["/a/10"]
    files.forget("/a")
    assert files.below("/a") == []
    assert files.below("/ab") == ["/ab/1"]


def test_a_file_that_is_written_anew_is_kept_again() -> None:
    disk = SimulatedDisk()
    keep(disk, "/a/1", b"one")
    for _ in range(2):
        kept = disk.kept.of("/a/1")
        assert kept is not None
        kept.write_anew()
        assert disk.read("/a/1") == b"one"
