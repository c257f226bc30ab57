"""The options of the `commitlog` source, checked once on the driver.

    path, paths           where: a store root (with `commitlog` in it) or a commitlog directory
    topic, subscribe      topics, separated by commas
    subscribePattern      regular expression that a whole topic name has to match
    queues                queue ids, separated by commas
    startingTimestamp     store time in ms, included
    endingTimestamp       store time in ms, not included
    columns               which columns, separated by commas, in this order
    onError               fail (default): the first torn or corrupt record ends the query with its
                          file and offset; row: it becomes a row that only says so
    checkCrc              true (default): compare each selected body with its CRC
    splitSizeBytes        cut files into pieces of about this size (default 64 MiB)

The names follow Spark's Kafka source and the old RocketMQ connector. There is no filter pushdown:
Spark 4.3 gives wrong answers with it when a table is read twice (docs/spark.md).
"""

import difflib
import re
from collections.abc import Mapping
from typing import Final, Literal, cast

import msgspec

from tandem.spark.errors import OptionError
from tandem.wire.untrusted import UnreadableError, decode_json

OnError = Literal["fail", "row"]

SPLIT_BYTES_DEFAULT: Final = 64 * 1024 * 1024
SPLIT_BYTES_MIN: Final = 4096
"""Small enough for tests; anything below 64 MiB costs more in tasks than it gains."""

OPTIONS: Final = (
    "path",
    "paths",
    "topic",
    "subscribe",
    "subscribePattern",
    "queues",
    "startingTimestamp",
    "endingTimestamp",
    "columns",
    "onError",
    "checkCrc",
    "splitSizeBytes",
)

_BY_LOWER_CASE: Final = {name.lower(): name for name in OPTIONS}


class ScanOptions(msgspec.Struct, frozen=True):
    """What to read. None means "all". Times are store times in ms, the end excluded."""

    paths: tuple[str, ...]
    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    queues: frozenset[int] | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    columns: tuple[str, ...] | None = None
    on_error: OnError = "fail"
    check_crc: bool = True
    split_bytes: int = SPLIT_BYTES_DEFAULT


def parse_options(raw: Mapping[str, str]) -> ScanOptions:
    """Return the checked options; Spark hands them over with lower-case names.

    Raises:
        OptionError: with every problem there is, not just the first.
    """
    problems = [_unknown(name) for name in raw if name.lower() not in _BY_LOWER_CASE]
    given = {
        _BY_LOWER_CASE[name.lower()]: text
        for name, text in raw.items()
        if name.lower() in _BY_LOWER_CASE
    }
    reader = _OptionReader(given, problems)
    options = reader.read()
    if problems:
        raise OptionError("commitlog source: " + "; ".join(problems))
    return options


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), _BY_LOWER_CASE, 1)
    hint = f" (did you mean {_BY_LOWER_CASE[close[0]]}?)" if close else ""
    return f"unknown option {name!r}{hint}, known are {', '.join(OPTIONS)}"


class _OptionReader:
    """Reads typed values out of the texts, collecting problems."""

    def __init__(self, given: Mapping[str, str], problems: list[str]) -> None:
        self._given = given
        self._problems = problems

    def read(self) -> ScanOptions:
        start_ms = self._integer("startingTimestamp")
        end_ms = self._integer("endingTimestamp")
        if start_ms is not None and end_ms is not None and end_ms < start_ms:
            self._problems.append(
                f"endingTimestamp {end_ms} is before startingTimestamp {start_ms}"
            )
        queues = self._list("queues")
        if queues is not None and not all(text.isdecimal() for text in queues):
            self._problems.append(f"queues={self._given['queues']!r}: expected ids such as 0,1,2")
            queues = None
        columns = self._list("columns")
        return ScanOptions(
            paths=self._paths(),
            topics=self._topics(),
            topic_pattern=self._pattern(),
            queues=None if queues is None else frozenset(int(text) for text in queues),
            start_ms=start_ms,
            end_ms=end_ms,
            columns=None if columns is None else tuple(columns),
            on_error=cast("OnError", self._choice("onError", ("fail", "row"))),
            check_crc=self._choice("checkCrc", ("true", "false")) == "true",
            split_bytes=self._split_bytes(),
        )

    def _paths(self) -> tuple[str, ...]:
        if "paths" in self._given:
            paths = self._listed_paths(self._given["paths"])
        else:
            paths = (self._given["path"],) if self._given.get("path") else ()
        if not paths:
            self._problems.append("no path: call load() with one or more store directories")
        return paths

    def _listed_paths(self, text: str) -> tuple[str, ...]:
        try:
            return tuple(decode_json(text, list[str]))
        except UnreadableError as error:
            self._problems.append(f"paths is no JSON list of directories ({error})")
            return ()

    def _topics(self) -> frozenset[str] | None:
        named = [name for name in ("topic", "subscribe", "subscribePattern") if name in self._given]
        if len(named) > 1:
            self._problems.append(f"{' and '.join(named)} exclude each other: give one")
        topics = self._list("topic") or self._list("subscribe")
        return None if topics is None else frozenset(topics)

    def _pattern(self) -> str | None:
        pattern = self._given.get("subscribePattern")
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                self._problems.append(f"subscribePattern {pattern!r}: {error}")
        return pattern

    def _split_bytes(self) -> int:
        size = self._integer("splitSizeBytes")
        if size is not None and size < SPLIT_BYTES_MIN:
            self._problems.append(f"splitSizeBytes={size}: at least {SPLIT_BYTES_MIN}")
        return SPLIT_BYTES_DEFAULT if size is None else size

    def _list(self, name: str) -> list[str] | None:
        if name not in self._given:
            return None
        parts = [part.strip() for part in self._given[name].split(",") if part.strip()]
        if not parts:
            self._problems.append(f"{name} is empty: leave it out to read everything")
        return parts

    def _integer(self, name: str) -> int | None:
        text = self._given.get(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            self._problems.append(f"{name}={text!r}: expected a whole number")
            return None

    def _choice(self, name: str, allowed: tuple[str, ...]) -> str:
        text = self._given.get(name, allowed[0])
        if text.lower() not in allowed:
            self._problems.append(f"{name}={text!r}: expected {' or '.join(allowed)}")
        return text.lower()
