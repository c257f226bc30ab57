from store.files.row_faults import (
    length_fault,
    missing_file_fault,
    name_fault,
    read_only_fault,
    same_name_fault,
)
from store.machine.errors import LogFault


def test_each_fault_names_the_file_and_says_what_it_is() -> None:
    faults = [
        (name_fault("/a/x", 10), LogFault.NAME),
        (length_fault("/a/x", 3, 10, "do this"), LogFault.LENGTH),
        (same_name_fault("/a/x", "/b/x"), LogFault.SAME_NAME),
        (missing_file_fault("/a/x", 10, "do this"), LogFault.MISSING_FILE),
        (read_only_fault("/a/x", 7), LogFault.READ_ONLY),
    ]
    for error, fault in faults:
        assert (error.path, error.fault) == ("/a/x", fault)
