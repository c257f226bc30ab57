"""Whatever is in a file: complaints of one line each, with the place and a remedy, and no trace."""

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tandem.cluster_file.errors import ClusterConfigError
from tandem.cluster_file.load import load_config
from tests.support.secret import write_secret
from tests.tandem.cluster_file.files import MINIMAL

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]\n"
    for old, new in zip("abcdefghijklmnopqrstuvw", "bcdefghijklmnopqrstuvwx", strict=True)
)
"""9 ** 24 values if somebody follows the aliases."""


def problems_of(tmp_path: Path, content: bytes | str) -> list[str]:
    file = tmp_path / "cluster.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ClusterConfigError) as caught:
        load_config(file)
    found = caught.value.problems
    assert all(str(file) in problem and "\n" not in problem for problem in found)
    return [problem.removeprefix(f"{tmp_path}/") for problem in found]


WHOLE_FILES: dict[str, tuple[bytes | str, str]] = {
    "wrong UTF-8": (
        b"cluster:\n  name: \xff\n",
        "cluster.yaml:2: is not UTF-8 text ('utf-8' codec can't decode byte 0xff in position 17:"
        " invalid start byte); save it as UTF-8",
    ),
    "UTF-16": ("cluster: {}".encode("utf-16"), "cluster.yaml:1: is not UTF-8 text"),
    "zero bytes": (
        "cluster:\n  name: a\0b\n",
        "cluster.yaml:2: not valid YAML: character U+0000 is not text; take it out",
    ),
    "tabs": (
        "cluster:\n\tname: a\n",
        "cluster.yaml:2: not valid YAML: found character '\\t' that cannot start any token;"
        " indent with spaces",
    ),
    "brackets without end": (
        "nodes: " + "[" * 20_000,
        "cluster.yaml:1: not valid YAML: nested deeper than 20 levels;"
        " no setting is; take out brackets or indentation",
    ),
    "blocks without end": (
        "".join(f"{' ' * depth}a:\n" for depth in range(500)),
        "cluster.yaml:20: not valid YAML: nested deeper than 20 levels;",
    ),
    "lists without end": ("- " * 2_000 + "a", "cluster.yaml:1: not valid YAML: nested deeper"),
    "two documents": (
        "cluster: {}\n---\nstore: {}\n",
        "cluster.yaml:2: not valid YAML: a second document begins; take out the '---' before it",
    ),
    "an alias of nothing": (
        "cluster:\n  name: *this\n",
        "cluster.yaml:2: not valid YAML: found undefined alias 'this';"
        " put the text in quotes if it begins with '*'",
    ),
    "longer than any": (
        "#" * (1 << 20) + "\n",
        "cluster.yaml: is longer than 1048576 bytes; give the path of a cluster file",
    ),
    "empty": ("", "cluster.yaml:1: nodes: no node is described; add at least a master"),
    "a comment": (
        "# nothing",
        "cluster.yaml:1: nodes: no node is described; add at least a master",
    ),
    "a byte order mark": ("\ufeff", "cluster.yaml:1: nodes: no node is described; add at least"),
    "a list at the top": (
        "- cluster\n- store\n",
        "cluster.yaml:1: the file: must be a block of 'key: value' lines",
    ),
    "a word at the top": (
        "cluster\n",
        "cluster.yaml:1: the file: must be a block of 'key: value' lines",
    ),
    "keys that are lists": (
        BOMB + "? *x\n: 1\n",
        "cluster.yaml:24: the file: a list or a block is no key; give a word",
    ),
    "a key that is a list": ("? [a]\n: 1\n", "cluster.yaml:1: the file: a list or a block is no"),
    "no nodes": ("nodes: []\n", "cluster.yaml:1: nodes: no node is described; add at least a"),
}


@pytest.mark.parametrize(
    ("content", "expected"), WHOLE_FILES.values(), ids=list(WHOLE_FILES.keys())
)
def test_what_is_no_cluster_file_is_named_with_a_remedy(
    tmp_path: Path, content: bytes | str, expected: str
) -> None:
    found = problems_of(tmp_path, content)
    assert any(problem.startswith(expected) for problem in found), found


VALUES = {
    "a number of thousands of digits": (
        f"replication: {{slave_timeout_ms: {'9' * 4_000}}}",
        f"cluster.yaml:1: replication.slave_timeout_ms: '{'9' * 77}...' is not valid;"
        " give a whole number from 1 to 86400000 (milliseconds)",
    ),
    "a number that has no end": (
        f"replication: {{slave_timeout_ms: {'9' * 50_000}}}",
        "cluster.yaml:1: replication.slave_timeout_ms: is 50000 characters long, more than 4096;"
        " give a whole number from 1 to 86400000 (milliseconds)",
    ),
    "a number beyond 64 bits": (
        "store: {max_message_size_bytes: -99999999999999999999999}",
        "cluster.yaml:1: store.max_message_size_bytes: '-99999999999999999999999' is not valid;",
    ),
    "infinity": (
        "broker: {stop_grace_ms: .inf}",
        "cluster.yaml:1: broker.stop_grace_ms: '.inf' is",
    ),
    "not a number": (
        "broker: {stop_grace_ms: .nan}",
        "cluster.yaml:1: broker.stop_grace_ms: '.nan'",
    ),
    "a part of a number": ("broker: {stop_grace_ms: 1.5}", "cluster.yaml:1: broker.stop_grace_ms:"),
    "a prefix without digits": (
        "broker: {stop_grace_ms: !!int 0x}",
        "cluster.yaml:1: broker.stop_grace_ms: '0x' is not valid; give a whole number from 0 to",
    ),
    "an empty number": (
        "broker: {stop_grace_ms: !!int ''}",
        "cluster.yaml:1: broker.stop_grace_ms:",
    ),
    "a flag that is neither": (
        "store: {timer_wheel_enable: !!bool perhaps}",
        "cluster.yaml:1: store.timer_wheel_enable: 'perhaps' is not valid; give true or false",
    ),
    "a day that no month has": (
        "cluster: {data_directory: 2001-02-31}",
        "cluster.yaml:1: cluster.data_directory: '2001-02-31' is not valid; give text, in quotes",
    ),
    "a time that no clock shows": (
        "cluster: {data_directory: !!timestamp x}",
        "cluster.yaml:1: cluster.data_directory: 'x' is not valid; give text",
    ),
    "a number for a name": (
        "cluster: {name: 123}",
        "cluster.yaml:1: cluster.name: '123' is not valid; give letters, digits, '-' and '_', at"
        " most 64, starting with a letter or digit, in quotes",
    ),
    "a flag for a path": (
        "cluster: {secret_file: no}",
        "cluster.yaml:1: cluster.secret_file: 'no' is not valid; give text or null, in quotes",
    ),
    "a path that no system takes": (
        'cluster: {secret_file: "a\\0b"}',
        "cluster.yaml:1: cluster.secret_file: has a line end or a character that is not text"
        " (U+0000) in it; give text or null",
    ),
    "half a pair": (
        'cluster: {data_directory: "\\uD800"}',
        "cluster.yaml:1: cluster.data_directory: has a line end or a character that is not text"
        " (U+D800) in it; give text",
    ),
    "a name with a line end": (
        "cluster:\n  name: |\n    a\n",
        "cluster.yaml:2: cluster.name: has a line end or a character that is not text (U+000A)",
    ),
    "not base 64": (
        "cluster: {data_directory: !!binary x}",
        "cluster.yaml:1: cluster.data_directory: 'x' is not valid; give text",
    ),
    "a tag of Python": (
        "cluster: {data_directory: !!python/object/apply:os.system [ls]}",
        "cluster.yaml:1: cluster.data_directory: must be a single value: text",
    ),
    "a key with a line end": (
        '"a\\nb": 1',
        "cluster.yaml:1: a\\u000ab: unknown key; known keys: cluster, store, replication",
    ),
    "a key without end": (
        "k" * 1_000 + ": 1",
        f"cluster.yaml:1: {'k' * 77}...: unknown key; known keys: cluster,",
    ),
    "a list that has itself in it": (
        "coordinator: {endpoints: &e [*e]}",
        "cluster.yaml:1: coordinator.endpoints[0]: must be a single value: text",
    ),
    "a block that has itself in it": (
        "store: &s {store: *s}",
        "cluster.yaml:1: store.store: unknown key; known keys:",
    ),
    "a merge": (
        "store: {<<: {timer_wheel_enable: true}}",
        "cluster.yaml:1: store.<<: unknown key; known keys:",
    ),
    "a key given twice in a map": (
        "broker: {stop_grace_ms: 1, stop_grace_ms: 2}",
        "cluster.yaml:1: broker.stop_grace_ms: is given twice; remove one",
    ),
}


@pytest.mark.parametrize(("text", "expected"), VALUES.values(), ids=list(VALUES.keys()))
def test_a_value_of_the_wrong_kind_is_named_with_a_remedy(
    tmp_path: Path, text: str, expected: str
) -> None:
    (found,) = problems_of(tmp_path, f"{text}\n{MINIMAL}")
    assert found.startswith(expected), found


def test_aliases_are_not_expanded(tmp_path: Path) -> None:
    start = time.process_time()
    found = problems_of(tmp_path, f"{BOMB}store: *x\nbroker: {{connections_max: *x}}\n{MINIMAL}")
    assert time.process_time() - start < 5.0
    assert "cluster.yaml:24: store: must be a block of 'key: value' lines" in found


def test_a_setting_may_be_the_alias_of_another(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(MINIMAL.replace("127.0.0.2", "127.0.0.2\n    port: &p 1\n    ha_port: *p"))
    with pytest.raises(ClusterConfigError, match=r"ha_port 1 at 127\.0\.0\.2 is already the port"):
        load_config(file)


def test_of_a_thousand_problems_the_first_are_listed(tmp_path: Path) -> None:
    found = problems_of(tmp_path, "".join(f"key{number}: 1\n" for number in range(1_000)))
    assert len(found) == 101
    assert found[-1] == "cluster.yaml: there may be more; correct these 100 first"


def test_a_node_that_cannot_be_read_does_not_move_the_lines_of_the_others(tmp_path: Path) -> None:
    text = MINIMAL.replace("    address: 127.0.0.1\n", "").replace("127.0.0.2", "nowhere")
    assert [problem.partition(" is")[0] for problem in problems_of(tmp_path, text)] == [
        "cluster.yaml:4: nodes[0].address:",
        "cluster.yaml:10: nodes[1].address: 'nowhere'",
    ]


def test_others_are_not_unknown_because_they_cannot_be_read(tmp_path: Path) -> None:
    text = MINIMAL.replace("    address: 127.0.0.1\n", "") + "    reach: {broker-a-0: 127.0.0.9}\n"
    assert problems_of(tmp_path, text) == ["cluster.yaml:4: nodes[0].address: is missing; add it"]


def test_a_secret_is_not_read_without_end(tmp_path: Path) -> None:
    write_secret(tmp_path / "secret", "x" * 100_000)
    (found,) = problems_of(tmp_path, f"cluster: {{secret_file: secret}}\n{MINIMAL}")
    assert found.startswith(
        "cluster.yaml:1: cluster.secret_file: secret holds more than 65536 bytes"
    )


def test_a_directory_is_no_cluster_file(tmp_path: Path) -> None:
    with pytest.raises(ClusterConfigError, match="cannot be read: Is a directory; give the path"):
        load_config(tmp_path)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
KEYS = st.sampled_from(
    [
        *("cluster", "store", "broker", "groups", "nodes", "coordinator", "name", "group"),
        *("address", "port", "reach", "learners", "endpoints", "kind", "delete_when"),
        *("broker_id", "broker-a"),
    ]
)
TREES = st.recursive(
    LEAVES,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(KEYS, children, max_size=4),
    max_leaves=20,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def load_or_complain(place: Path, content: bytes) -> None:
    file = place / "cluster.yaml"
    file.write_bytes(content)
    found: list[str] = []
    try:
        load_config(file)
    except ClusterConfigError as error:
        found = error.problems
    assert all(text.startswith(str(file)) and text.splitlines() == [text] for text in found)


@pytest.mark.slow
@given(tree=TREES)
@example(tree={"nodes": [{"name": 1, "reach": {"port": None}}]})
def test_any_tree_is_read_or_complained_about(place: Path, tree: object) -> None:
    load_or_complain(place, yaml.safe_dump(tree, allow_unicode=True).encode(errors="replace"))


@pytest.mark.slow
@given(content=st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
def test_any_bytes_are_read_or_complained_about(place: Path, content: bytes) -> None:
    load_or_complain(place, content)


@pytest.mark.slow
@given(at=st.integers(0, len(MINIMAL) - 1), piece=st.text(max_size=3))
def test_any_change_of_a_good_file_is_read_or_complained_about(
    place: Path, at: int, piece: str
) -> None:
    changed = MINIMAL[:at] + piece + MINIMAL[at + 1 :]
    load_or_complain(place, changed.encode())
