"""The settings of a job: one YAML file a job, and the same keys as options of the command line.

Each job has a record; its fields are the keys of the file. Relative paths count from the file,
those of options from the working directory. Options win over the file.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
import yaml

from tandem.client.cluster_access import ClusterAccess
from tandem.cluster_file.errors import ClusterConfigError
from tandem.cluster_file.ranges import Name, text_like, whole_number
from tandem.cluster_file.yaml_reader import MISSING, Reader, compose, text_node
from tandem.tls_files import TLSFiles
from tandem.wire.errors import ArgumentError
from tandem.wire.frame_seal import Signatures

_FROM_ENVIRONMENT: Final = {
    "access_key": "TANDEM_ACCESS_KEY",
    "secret_key": "TANDEM_SECRET_KEY",
    "signatures": "TANDEM_SIGNATURES",
}
"""No job has a secret in its file, where others may read it, nor in its command line."""

_OPTIONS: Final = Path("options")
_FROM_OPTIONS: Final = f"{_OPTIONS}:1: "

Master = Annotated[
    str,
    text_like(
        r"^(local(\[[0-9*]+\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn)$", "local[*], ..."
    ),
]
Rate = Annotated[int, whole_number(0, 1_000_000_000, "a second; 0: no limit")]
TableName = Annotated[str, text_like(r"^([A-Za-z_]\w*\.[A-Za-z_]\w*)?$", "NAMESPACE.NAME")]
Count = Annotated[int, whole_number(1, 1_000_000_000, "messages")]


class OpenFile(StrEnum):
    """What becomes of the last file of a log, which a node may be writing to."""

    LEAVE = "leave"
    TAKE = "take"


class OnDataLoss(StrEnum):
    """What a job does where a log has lost what it should have read."""

    FAIL = "fail"
    CONTINUE = "continue"


class Tombstones(StrEnum):
    """What becomes of a key whose latest message has an empty body."""

    DROP = "drop"
    KEEP = "keep"


class NotJson(StrEnum):
    """What becomes of a message whose fields are to be scrubbed, and whose body is no JSON."""

    FAIL = "fail"
    KEEP = "keep"
    DROP = "drop"


class UniqueKeys(StrEnum):
    """Which UNIQ_KEY a replayed message has."""

    NEW = "new"
    OLD = "old"


class ArchiveSettings(msgspec.Struct, frozen=True):
    """`tandem pipeline archive`."""

    archive: str
    stores: dict[str, str]
    exclude_topics: list[str] = []
    open_file: OpenFile = OpenFile.LEAVE
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    table: TableName = ""
    catalogue: dict[str, str] = {}
    master: Master = "local[*]"


class StatsSettings(msgspec.Struct, frozen=True):
    """`tandem pipeline stats`: of an archive, or of stores.

    Raises:
        ClusterConfigError: none or both are given.
    """

    archive: str = ""
    stores: dict[str, str] = {}
    topics: list[str] = []
    starting_timestamp: str = ""
    ending_timestamp: str = ""
    output: str = ""
    master: Master = "local[*]"

    def __post_init__(self) -> None:
        _need_one_place(self.archive, self.stores)


class CompactSettings(msgspec.Struct, frozen=True):
    """`tandem pipeline compact`."""

    archive: str
    topics: list[str]
    output: str
    tombstones: Tombstones = Tombstones.DROP
    master: Master = "local[*]"


class ScrubSettings(msgspec.Struct, frozen=True):
    """`tandem pipeline scrub`: an archive into another one."""

    archive: str
    output: str
    drop_properties: list[str] = []
    hash_properties: list[str] = []
    drop_fields: list[str] = []
    hash_fields: list[str] = []
    not_json: NotJson = NotJson.FAIL
    topics: list[str] = []
    salt_file: str = ""
    master: Master = "local[*]"


class ReplaySettings(msgspec.Struct, frozen=True):
    """`tandem pipeline replay`: from an archive, or from a store, into a topic.

    Raises:
        ClusterConfigError: none or both are given.
    """

    state: str
    source_topic: str
    name_servers: list[str]
    tls: TLSFiles | None = None
    archive: str = ""
    stores: dict[str, str] = {}
    topic: str = ""
    queues: list[str] = []
    starting_timestamp: str = ""
    ending_timestamp: str = ""
    starting_offsets: dict[str, str] = {}
    ending_offsets: dict[str, str] = {}
    tags: list[str] = []
    keys: list[str] = []
    messages_per_second: Rate = 0
    bytes_per_second: Rate = 0
    unique_keys: UniqueKeys = UniqueKeys.NEW
    checkpoint_messages: Count = 5_000
    producer_group: Name = "tandem-replay"
    master: Master = "local[*]"

    def __post_init__(self) -> None:
        _need_one_place(self.archive, self.stores)

    def access(self, environment: Mapping[str, str]) -> ClusterAccess:
        """Where messages go, and who sends them: whom the environment names, as for all commands.

        Raises:
            ClusterConfigError: the environment names one key without the other, or no signatures.
        """
        given = {
            name: environment[variable]
            for name, variable in _FROM_ENVIRONMENT.items()
            if environment.get(variable)
        }
        try:
            return ClusterAccess(
                self.name_servers,
                given.get("access_key", ""),
                given.get("secret_key", ""),
                signatures=given.get("signatures", Signatures.REPLAY_PROOF.value),
                tls=self.tls,
            )
        except ArgumentError as error:
            names = ", ".join(_FROM_ENVIRONMENT.values())
            raise ClusterConfigError(f"{names} of the environment: {error}") from error


class AuditSettings(msgspec.Struct, frozen=True):
    """`tandem pipeline audit`: a ledger of sends against the logs of a group."""

    ledger: str
    stores: dict[str, str]
    master_node: str
    topic: str
    output: str
    master: Master = "local[*]"


def _need_one_place(archive: str, stores: Mapping[str, str]) -> None:
    if bool(archive) == bool(stores):
        raise ClusterConfigError("archive, stores: give one of them, to read from")


JOBS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "archive": ArchiveSettings,
    "replay": ReplaySettings,
    "audit": AuditSettings,
    "stats": StatsSettings,
    "compact": CompactSettings,
    "scrub": ScrubSettings,
}

_PATHS: Final = frozenset(("archive", "output", "state", "ledger", "salt_file"))


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value != ""


SettingsT = TypeVar("SettingsT", bound=msgspec.Struct)


def load_settings(
    kind: type[SettingsT], file: Path | None, options: Mapping[str, str]
) -> SettingsT:
    """Read the settings of a job. `options` are texts as in YAML: `[a, b]`, `{a: b}`, `5`.

    Raises:
        ClusterConfigError: the file or an option is wrong; with every problem of either.
    """
    reader = _FileReader(file)
    values = reader.read(kind, {}) if file is None else reader.read(kind, options)
    from_options = _OptionReader()
    try:
        values |= from_options.read(kind, options)
    except ClusterConfigError as error:
        problems = [text.removeprefix(_FROM_OPTIONS) for text in error.problems]
        raise ClusterConfigError(*(f"option {text}" for text in problems)) from error
    missing = [
        field.name
        for field in msgspec.structs.fields(kind)
        if field.required and field.name not in values
    ]
    if missing:
        where = f"{file}: " if file else ""
        raise ClusterConfigError(
            f"{where}{', '.join(missing)}: missing; write it into the file, or give it as an"
            f" option: --set {missing[0]}=..."
        )
    return kind(**values)


class _FileReader:
    def __init__(self, file: Path | None) -> None:
        self._file = file

    def read(self, kind: type[msgspec.Struct], options: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of the file's keys that no option replaces."""
        if self._file is None:
            return {}
        if not self._file.is_file():
            raise ClusterConfigError(
                f"{self._file}: there is no such file; `tandem pipeline init` writes an example"
            )
        reader = Reader(self._file)
        entries = reader.mapping(compose(self._file), "")
        base = self._file.absolute().parent
        values = _values(reader, kind, entries, skipped=options)
        reader.problems.raise_if_any()
        return {name: _counted_from(base, name, value) for name, value in values.items()}


class _OptionReader:
    def read(self, kind: type[msgspec.Struct], options: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of options."""
        reader = Reader(_OPTIONS)
        plain = {field.name: field.type for field in msgspec.structs.fields(kind)}
        entries: dict[str, yaml.Node] = {}
        mark = yaml.Mark("options", 0, 0, 0, None, 0)
        for name, text in options.items():
            like = yaml.ScalarNode("tag:yaml.org,2002:str", text, mark)
            node: yaml.Node | None = text_node(text, like)
            if plain.get(name) is not str:
                try:
                    node = yaml.compose(text, yaml.SafeLoader) or like
                except yaml.YAMLError as error:
                    reader.problems.add(None, name, f"{text!r} is not valid YAML ({error})")
                    continue
            assert node is not None
            entries[name] = node
        values = _values(reader, kind, entries, skipped={})
        reader.problems.raise_if_any()
        base = Path.cwd()
        return {name: _counted_from(base, name, value) for name, value in values.items()}


def _values(
    reader: Reader,
    kind: type[msgspec.Struct],
    entries: dict[str, yaml.Node],
    skipped: Mapping[str, str],
) -> dict[str, Any]:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    reader.unknown_keys(entries, list(fields), "")
    values = {
        name: _value(reader, node, fields[name], name)
        for name, node in entries.items()
        if name in fields and name not in skipped
    }
    return {name: value for name, value in values.items() if value is not MISSING}


def _value(reader: Reader, node: yaml.Node, kind: Any, name: str) -> Any:  # noqa: ANN401
    if kind != TLSFiles | None:
        return reader.value(node, kind, name)
    try:
        found = reader.record(TLSFiles, node, name)
    except ArgumentError as error:
        reader.problems.add(node, name, str(error))
        return MISSING
    return MISSING if found is None else found


def _counted_from(base: Path, name: str, value: Any) -> Any:  # noqa: ANN401 - any setting
    """Return a path as it is from everywhere."""
    if name in _PATHS and value:
        return str(base / value)
    if name == "stores":
        return {group: str(base / path) for group, path in value.items()}
    if isinstance(value, TLSFiles):
        files = {field: getattr(value, field) for field in value.__struct_fields__}
        return msgspec.structs.replace(
            value, **{field: str(base / path) for field, path in files.items() if _is_path(path)}
        )
    return value
