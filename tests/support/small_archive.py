"""A small store and its archive, for tests of the archive and of the jobs: no Spark takes part."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.spark.archive.disk import LocalDisk
from tandem.spark.archive.manifest import Manifest, Unit, read_manifest
from tandem.spark.jobs.archive_job import ArchiveReport, run_archive, verify_archive
from tandem.spark.jobs.runner import HereRunner
from tandem.spark.jobs.settings import ArchiveSettings, ReplaySettings
from tests.support.log_builder import LogBuilder

FILE_BYTES = 16_384


class SmallArchive:
    """`store`, `archive` under a directory; the log may grow."""

    def __init__(self, root: Path, messages: int = 360, *, file_bytes: int = FILE_BYTES) -> None:
        self.root = root
        self.store = root / "broker-a-0"
        self.archive_path = root / "archive"
        self.log = LogBuilder(file_bytes=file_bytes)
        self.put(messages)

    def put(self, count: int) -> None:
        """Let the log grow by messages of two topics, two queues each; write the store."""
        for _ in range(count):
            number = len(self.log.messages)
            self.log.put(
                ("orders", "events")[number % 2],
                b'{"n": %d}' % number,
                queue_id=number // 2 % 2,
                keys=f"key-{number % 10}",
                tags="even" if number % 4 else "",
                properties={"customer": f"c-{number}"},
            )
        self.log.write(self.store)

    def settings(self, **changes: Any) -> ArchiveSettings:  # noqa: ANN401
        """What the job is told."""
        plain = {"archive": str(self.archive_path), "stores": {"broker-a": str(self.store)}}
        return msgspec.convert(plain | changes, ArchiveSettings)

    def replay(self, **changes: Any) -> ReplaySettings:  # noqa: ANN401
        """What a replay of the topic `orders` is told."""
        plain = {
            "state": str(self.root / "state"),
            "source_topic": "orders",
            "name_servers": ["127.0.0.1:9876"],
            "archive": str(self.archive_path),
        }
        return msgspec.convert(plain | changes, ReplaySettings)

    def archive(self, **changes: Any) -> Self:  # noqa: ANN401
        """Archive what can be archived."""
        self.report = run_archive(self.settings(**changes), HereRunner(), now_ms=lambda: 1)
        return self

    def verify(self) -> ArchiveReport:
        """Read everything again."""
        return verify_archive(self.settings(), HereRunner())

    @property
    def manifest(self) -> Manifest:
        """What the archive says."""
        return read_manifest(self.archive_path)

    def unit(self, number: int = 0) -> Unit:
        """One unit, in the order of the log."""
        return self.manifest.units[number]

    def data_file(self, number: int = 0) -> Path:
        """The first data file of a unit."""
        return self.archive_path / self.unit(number).files[0].path

    def change_rows(self, path: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
        """Write a data file anew with rows that `change` has changed in place."""
        table = pq.ParquetFile(path).read()
        rows = table.to_pylist()
        change(rows)
        pq.write_table(pa.Table.from_pylist(rows, table.schema), path)


class CrashError(Exception):
    """The world has ended."""


class CrashingDisk(LocalDisk):
    """A disk that takes `steps` steps; the one after them ends the world, before or after it."""

    def __init__(self, steps: int, *, after: bool) -> None:
        self.left = steps
        self.after = after

    def write(self, path: Path, data: bytes) -> None:
        """See `Disk`."""
        for _ in self._step():
            super().write(path, data)

    def move(self, source: Path, target: Path) -> None:
        """See `Disk`. A draft that gets its name is half of a write."""
        for _ in self._step():
            super().move(source, target)

    def remove_tree(self, path: Path) -> None:
        """See `Disk`."""
        for _ in self._step():
            super().remove_tree(path)

    def _step(self) -> Iterator[None]:
        self.left -= 1
        is_the_end = self.left < 0
        if is_the_end and not self.after:
            raise CrashError
        yield
        if is_the_end:
            raise CrashError


def places(rows: Iterable[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Topic, queue id and queue offset of rows, sorted."""
    return sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows)
