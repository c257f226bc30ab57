"""What a loss of power takes of a store; what it leaves is in test_machines.py."""

from pathlib import Path

from tandem.drill.machine_disk import restore, taken


def a_copy(directory: Path) -> Path:
    """What was synced: a directory with a file, and a file of which nothing was synced."""
    kept = directory / "disk"
    (kept / "names").mkdir(parents=True)
    (kept / "data").mkdir()
    (kept / "names" / "root").write_text("1-1 d sub\n2-2 f new\n")
    (kept / "names" / "1-1").write_text("3-3 f with blanks in it\n")
    (kept / "data" / "3-3").write_bytes(b"synced" + bytes(70_000))
    return kept


def a_store(directory: Path) -> Path:
    store = directory / "store"
    (store / "sub").mkdir(parents=True)
    (store / "sub" / "with blanks in it").write_bytes(b"synced" + bytes(70_000))
    (store / "new").touch()
    return store


def test_of_a_store_that_was_synced_nothing_is_taken(tmp_path: Path) -> None:
    assert taken(a_copy(tmp_path), a_store(tmp_path)) == 0


def test_each_file_is_counted_that_is_not_left_as_it_was(tmp_path: Path) -> None:
    kept, store = a_copy(tmp_path), a_store(tmp_path)
    with (store / "sub" / "with blanks in it").open("r+b") as file:
        file.seek(69_000)
        file.write(b"later")
    (store / "new").write_bytes(b"1")
    (store / "other").mkdir()
    (store / "sub" / "more").touch()
    assert taken(kept, store) == 4

    restore(kept, store)

    assert taken(kept, store) == 0
    assert sorted(path.name for path in store.rglob("*")) == ["new", "sub", "with blanks in it"]
    assert (store / "sub" / "with blanks in it").read_bytes() == b"synced" + bytes(70_000)


def test_a_file_that_got_longer_or_became_a_directory_is_taken(tmp_path: Path) -> None:
    kept, store = a_copy(tmp_path), a_store(tmp_path)
    with (store / "sub" / "with blanks in it").open("ab") as file:
        file.write(bytes(1))
    (store / "new").unlink()
    (store / "new").mkdir()
    assert taken(kept, store) == 2


def test_a_file_whose_end_was_not_synced_is_back(tmp_path: Path) -> None:
    kept, store = a_copy(tmp_path), a_store(tmp_path)
    (store / "new").unlink()
    (store / "sub" / "with blanks in it").unlink()
    assert taken(kept, store) == 2
