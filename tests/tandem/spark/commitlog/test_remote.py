"""Stores on an object store: what S3's own protocol gives is what the files give."""

import importlib.util
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tandem.spark.commitlog.options import parse_options
from tandem.spark.commitlog.parts import read_part
from tandem.spark.commitlog.table import plan_table
from tandem.spark.errors import DataLossError, LossCause, NotAStoreError
from tandem.spark.record_batches import COLUMNS
from tests.support.log_builder import LogBuilder

pytestmark = pytest.mark.slow

BUCKET = "logs"
KEY = "AKIAEXAMPLE"
SECRET = "a-secret"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A local S3, with a bucket."""
    if importlib.util.find_spec("moto") is None:
        pytest.skip("needs moto")
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - only if it is installed
    from pyarrow import fs  # noqa: PLC0415

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not a line a request
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    s3 = fs.S3FileSystem(
        access_key=KEY,
        secret_key=SECRET,
        endpoint_override=f"{host}:{port}",
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    s3.create_dir(BUCKET)
    yield f"{host}:{port}"
    server.stop()


def upload(endpoint: str, root: Path, name: str) -> str:
    """Copy a store; return the address that a user would give."""
    from pyarrow import fs  # noqa: PLC0415

    address = (
        f"s3://{KEY}:{SECRET}@{BUCKET}/{name}"
        f"?scheme=http&endpoint_override={endpoint}&region=us-east-1"
    )
    system, path = fs.FileSystem.from_uri(address)
    fs.copy_files(str(root), path, destination_filesystem=system)
    return address


def a_log(count: int = 120) -> LogBuilder:
    log = LogBuilder(file_bytes=16_384)
    for number in range(count):
        log.put(topic=f"Topic{number % 4}", body=bytes([number % 251]) * 300)
    return log


def rows(path: str, **given: str) -> list[dict[str, Any]]:
    options = parse_options({"path": path, **given})
    return [
        {name: value for name, value in row.items() if name != "store"}
        for part in plan_table(options)
        for batch in read_part(part, options, tuple(COLUMNS))
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"splitSizeBytes": "8192"},
        pytest.param({"topic": "Topic3", "consumeQueues": "always"}, marks=pytest.mark.long),
        pytest.param(
            {"startingTimestamp": "1700000000030", "endingTimestamp": "1700000000060"},
            marks=pytest.mark.long,
        ),
    ],
)
def test_an_object_store_gives_the_rows_of_the_files(
    endpoint: str, tmp_path: Path, given: dict[str, str]
) -> None:
    root = a_log().write(tmp_path)
    address = upload(endpoint, root, f"same-{len(given)}-{next(iter(given))}/broker-a")
    found = rows(address, **given)
    assert found == rows(str(root), **given)
    assert found


@pytest.mark.long
def test_patterns_offsets_and_names_without_secrets(endpoint: str, tmp_path: Path) -> None:
    log = a_log(50)
    root = log.write(tmp_path)
    upload(endpoint, root, "several/broker-a")
    address = upload(endpoint, root, "several/broker-b")
    pattern = address.replace("broker-b", "broker-*")
    stores = [f"s3://{BUCKET}/several/broker-{letter}" for letter in "ab"]
    start = log.messages[20].physical_offset
    options = parse_options(
        {"path": pattern, "startingOffsets": json.dumps(dict.fromkeys(stores, start))}
    )
    parts = plan_table(options)
    assert SECRET not in repr(
        [batch for part in parts for batch in read_part(part, options, ["store"])]
    )
    seen = [
        store
        for part in parts
        for batch in read_part(part, options, ["store"])
        for store in batch.column(0).to_pylist()
    ]
    assert seen == [stores[0]] * 30 + [stores[1]] * 30


@pytest.mark.long
def test_what_is_not_there_is_said_without_secrets(endpoint: str, tmp_path: Path) -> None:
    root = a_log(20).write(tmp_path)
    address = upload(endpoint, root, "lost/broker-a")
    for wrong in ("lost/broker-b", "lost/broker-b*"):
        with pytest.raises(NotAStoreError, match=r"s3://logs/lost/broker-b") as caught:
            rows(address.replace("lost/broker-a", wrong))
        assert SECRET not in str(caught.value)
    options = parse_options({"path": address})
    (part,) = plan_table(options)
    delete(address)
    with pytest.raises(DataLossError, match="s3://logs/lost/broker-a: ") as lost:
        list(read_part(part, options, ["topic"]))
    assert lost.value.cause is LossCause.DELETED


def delete(address: str) -> None:
    from pyarrow import fs  # noqa: PLC0415

    system, path = fs.FileSystem.from_uri(address)
    system.delete_dir_contents(f"{path}/commitlog")


def test_what_fsspec_knows_is_read_too(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    root = a_log(50).write(tmp_path)
    memory = fsspec.filesystem("memory")
    for path in root.rglob("*"):
        if path.is_file():
            memory.pipe_file(f"/stores/a/{path.relative_to(root)}", path.read_bytes())
    assert rows("memory://stores/a") == rows(str(root))
