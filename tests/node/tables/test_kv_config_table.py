import pytest

from node.errors import RequestError
from node.simulated.disk import SimulatedDisk
from node.tables import kv_config_table
from node.tables.kv_config_table import KvConfigTable
from store.machine.errors import StoreFullError
from store.machine.table_file import TableFile
from tandem.wire.response_code import ResponseCode


def table(disk: SimulatedDisk) -> KvConfigTable:
    return KvConfigTable(TableFile(disk, "s/config/kvConfig.json"))


def test_values_survive_a_restart() -> None:
    disk = SimulatedDisk()
    values = table(disk)
    values.put("n", "k", "v")
    values.put("n", "l", "w")
    values.put("n", "k", "x")
    again = table(disk)
    assert (again.get("n", "k"), again.get("n", "m"), again.get("o", "k")) == ("x", None, None)
    assert again.of_namespace("n") == {"k": "x", "l": "w"}
    again.delete("n", "k")
    again.delete("n", "k")
    again.delete("o", "k")
    again.delete("n", "l")
    assert table(disk).of_namespace("n") == {}
    assert disk.read("s/config/kvConfig.json") == b'{\n\t"configTable":{}\n}'


def test_the_file_of_rocketmq_is_read() -> None:
    disk = SimulatedDisk()
    text = b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"}}}'
    disk.replace("s/config/kvConfig.json", text)
    assert table(disk).get("ORDER_TOPIC_CONFIG", "T") == "broker-a:4"


def test_there_are_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_config_table, "ENTRIES_MAX", 2)
    values = table(SimulatedDisk())
    values.put("n", "k", "v" * 4096)
    values.put("m", "k", "v")
    values.put("m", "k", "w")
    for namespace, key, value, code in (
        ("m", "l", "v", ResponseCode.SYSTEM_ERROR),
        ("n" * 256, "k", "v", ResponseCode.INVALID_PARAMETER),
        ("n", "k" * 256, "v", ResponseCode.INVALID_PARAMETER),
        ("n", "k", "v" * 4097, ResponseCode.INVALID_PARAMETER),
    ):
        with pytest.raises(RequestError) as caught:
            values.put(namespace, key, value)
        assert caught.value.code == code
    assert values.of_namespace("m") == {"k": "w"}


def test_a_full_disk_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    values = table(disk)
    values.put("n", "k", "v")

    def full(path: str, data: bytes) -> None:
        raise StoreFullError("no room", path=path)

    monkeypatch.setattr(disk, "replace", full)
    with pytest.raises(RequestError) as caught:
        values.put("n", "k", "w")
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert values.get("n", "k") == "v"
