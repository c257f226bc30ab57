from tandem.spark.audit.log_compare import Log
from tandem.spark.audit.stages import comparing, joining, reading

MIB = 1024 * 1024


def test_each_stage_says_how_much_there_is_to_do() -> None:
    logs = {"a": Log((), MIB, 3 * MIB), "b": Log((), 0, 5 * MIB // 2)}

    assert comparing(logs, "a") == "comparing 1 log of 2.5 MiB with that of a, byte by byte"
    assert comparing(logs, "c") == "comparing 2 logs of 4.5 MiB with that of c, byte by byte"
    assert reading(logs, "a") == "reading the log of a, 2.0 MiB"
    assert joining(1234, 5) == "joining the ledger of 1,234 sends with 5 records"
