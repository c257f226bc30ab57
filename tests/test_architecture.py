"""What linters cannot see: how tree, tests and banned calls hang together."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.source_tree import (
    EXCUSE,
    SOURCES,
    dotted_name_exists,
    functions,
    import_cycles,
    import_graph,
    is_excused,
    lines_of,
    module_lines,
    named_modules,
    named_paths,
    path_exists,
    prose,
    running_code,
    running_nodes,
    syntax_tree,
)

# One worker reads all sources once.
pytestmark = pytest.mark.xdist_group("architecture")

COVERED_ELSEWHERE = {
    "tandem/client/pull_elsewhere.py": "tests/tandem/client/test_pull_flow.py",
    "tandem/cli/command_line.py": "tests/tandem/cli/test_every_command.py",
    "tandem/cli/command_end.py": "tests/tandem/cli/test_every_command.py",
    "tandem/cli/serve_line.py": "tests/tandem/testing/test_serving.py",
    "tandem/testing/parent_process.py": "tests/tandem/testing/test_serving.py",
    "tandem/console/asking.py": "tests/tandem/console/test_server.py",
    "tandem/cluster/__main__.py": "tests/tandem/cluster/test_detached.py",
    "tandem/client/plain_socket.py": "tests/tandem/client/test_blocking_shell.py",
    "ha/fenced/events.py": "tests/ha/fenced/test_master.py",
    "tandem/coordinator/interface.py": "tests/tandem/coordinator/test_etcd_v3.py",
    "node/remoting/caller.py": "tests/node/security/test_user_caller.py",
    "node/grpc/streams.py": "tests/node/grpc/test_http2.py",
    "node/grpc/link_signer.py": "tests/node/grpc/test_links.py",
    "node/grpc/entrance.py": "tests/node/grpc/test_session.py",
    "node/grpc/service.py": "tests/node/grpc/test_session.py",
    "node/broker/calls.py": "tests/node/grpc/test_links.py",
    "node/simulated/cables.py": "tests/node/simulated/test_network.py",
}
"""Modules whose tests have another name."""

SYSTEM_CALLS = {"os", "mmap", "threading", "fcntl"}

DECODERS = re.compile(
    r"(?:msgspec\.)?(?:json|msgpack|yaml|toml)\.(?:decode|Decoder|loads?)|msgspec\.convert|eval"
    r"|pickle\.loads?|(?:ast\.)?literal_eval|tomllib\.loads?"
)
"""What raises one of five errors, or hides one, for what somebody else has written."""

TEXT_DECODED_ELSEWHERE = {
    # Their error is caught by `decode_frame_parts`; a call more costs each field of each header.
    "tandem/wire/remoting_command.py _decode_binary",
    "tandem/wire/remoting_command.py _decode_binary_ext",
    # A topic was text before it was bytes.
    "store/log/message_encoder.py MessageEncoder.shape",
    "store/log/message_encoder.py MessageEncoder._common_parts",
    # So were keys.
    "node/simulated/coordinator.py CoordinatorClient.read",
    "node/simulated/coordinator.py CoordinatorClient.read.work",
    "node/simulated/coordinator.py SimulatedCoordinator._push",
    "node/simulated/coordinator.py _key_value",
}

TEXTS_THAT_MAY_BE_EMPTY = {
    # They are shown, written or compared, and decide nothing.
    "ha/classic/ha_service.py HAService.why_not_served",
    "ha/fenced/connection.py FencedConnection.their_checksum",
    "ha/fenced/history.py history_of",
    "ha/fenced/own_replica.py OwnReplica.failed_incarnation",
    "ha/fenced/replica_file.py ReplicaFile.incarnation",
    "node/figures/figure.py Labels.text",
    "node/filter/sql92_parser.py _Parser._taken",
    "node/filter/sql92_tokens.py escaped",
    "node/handlers/broker_runtime_info.py tps_text",
    "node/metrics/otlp_request.py _unit",
    "node/simulated/disk.py SimulatedDisk._volume",
    "node/handlers/send_properties.py with_delay_level",
    "node/tables/put_times.py distribution_text",
    "store/log/damage.py LogDamage.in_words",
    "store/services/scrub_service.py ScrubProgress.in_words",
}

LETTERS_OF_A_NAME = 4
WORDS_OF_SEVERAL = {
    # Words and not names: each could be another without the other.
    "'DELAY'",
    "'MASTER'",
    "'SEND_OK'",
    "'UNKNOWN'",
    "'ballast'",
    "'broker-a'",
    "'corrupt'",
    "'null'",
    "'stored'",
    "'table'",
    "'tandem'",
    "'tandem-spark'",
    "CORRUPT 'corrupt'",
    "BATCH_SIZE_MAX 32767",
    "DIGITS_MAX 18",
    # `tandem.wire.message` stands on `native`.
    "RECORD_BYTES_MIN 91",
    "'groupJournal.json'",
}

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60


PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
]
PROGRAMS = sorted(
    file for name in ("tests", "benchmarks", "examples") for file in (ROOT / name).rglob("*.py")
)


@pytest.fixture(scope="module", autouse=True)
def _trees_are_forgotten() -> Iterator[None]:
    """They are 170 MiB, and nobody else looks at all of them."""
    yield
    for cached in (syntax_tree, running_code, running_nodes):
        cached.cache_clear()


def imported_modules(file: Path) -> Iterator[str]:
    for node in running_nodes(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def has_behaviour(file: Path) -> bool:
    """Whether there is something to test: not in errors, nor in names, enums and protocols."""
    if file.name in ("__init__.py", "errors.py"):
        return False
    bodies = [
        node
        for node in running_code(file).body
        if not (isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases))
    ]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(part, functions) for body in bodies for part in ast.walk(body))


@pytest.mark.slow
def test_each_module_has_its_test_file() -> None:
    missing = []
    for file in filter(has_behaviour, SOURCES):
        path = file.relative_to(ROOT)
        mirror = Path("tests") / path.parent / f"test_{path.name}"
        expected = COVERED_ELSEWHERE.get(str(path), str(mirror))
        if not (ROOT / expected).exists():
            missing.append(expected)
    assert missing == []


def test_each_folder_with_modules_is_a_package() -> None:
    folders = {file.parent for file in SOURCES}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.slow
def test_modules_do_not_import_each_other() -> None:
    """Not in a circle either, and not for type checkers: each can be read by itself."""
    assert sorted(map(sorted, import_cycles(import_graph()))) == []


def long_modules() -> set[str]:
    return {
        str(file.relative_to(ROOT))
        for file in SOURCES
        if module_lines(file) > MODULE_LINES_MAX and not is_excused(file, syntax_tree(file))
    }


def long_functions() -> set[str]:
    return {
        f"{file.relative_to(ROOT)}:{name}"
        for file in SOURCES
        for name, function in functions(file)
        if lines_of(function) > FUNCTION_LINES_MAX and not is_excused(file, function)
    }


@pytest.mark.slow
def test_what_is_long_says_why() -> None:
    """A line of the docstring, or of the comment above a function, begins with `Long because`."""
    assert sorted(long_modules()) == [], f"split it, or add: {EXCUSE} ..."
    assert sorted(long_functions()) == [], f"split it, or add: {EXCUSE} ..."


@pytest.mark.slow
def test_every_path_and_module_that_is_named_exists() -> None:
    """In pages, docstrings and comments."""
    stale = []
    for file in (*PAGES, *SOURCES, *PROGRAMS):
        text = prose(file)
        names = [path for path in named_paths(text) if not path_exists(path, file)]
        names += [name for name in named_modules(text) if not dotted_name_exists(name)]
        stale += [f"{file.relative_to(ROOT)}: {name}" for name in names]
    assert stale == []


def test_no_module_of_tests_is_a_library() -> None:
    """What two of them share has a module of its own, which pytest does not collect."""
    importing = re.compile(r"\b(?:from|import) (tests\.(?:\w+\.)*test_\w+)")
    borrowed = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in PROGRAMS
        for module in importing.findall(file.read_text(encoding="utf-8"))
        if module.rpartition(".")[2] != file.stem  # itself, in another process
    ]
    assert borrowed == []


@pytest.mark.slow
def test_nothing_flushes_a_mapping() -> None:
    """It keeps the interpreter lock for as long as the disk takes; `os.fdatasync` does not."""
    flushed = [
        f"{file.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for file in SOURCES
        if "mmap" in set(imported_modules(file))
        for node in running_nodes(file)
        if isinstance(node, ast.Attribute) and node.attr == "flush"
    ]
    assert [place for place in flushed if "map" in place.split()[1]] == []


def test_only_the_doors_of_a_machine_make_system_calls() -> None:
    callers = [
        str(file.relative_to(ROOT))
        for file in SOURCES
        if file.is_relative_to(ROOT / "store") and SYSTEM_CALLS & set(imported_modules(file))
    ]
    assert callers == [
        "store/machine/drafts.py",
        "store/machine/kept_threads.py",
        "store/machine/many_lists.py",
        "store/machine/many_syncs.py",
        "store/machine/process.py",
        "store/machine/real_disk.py",
        "store/machine/real_file.py",
        "store/machine/service_manager.py",
        "store/machine/tcp_network.py",
    ]


THREADS = ("to_thread", "ThreadPoolExecutor", "threading.Thread", "kept_threads")


def test_threads_of_a_node_are_used_by_the_disk_only() -> None:
    """Everything else runs on one thread, which is why nothing else needs a lock."""
    users = [
        str(file.relative_to(ROOT))
        for file in SOURCES
        if not file.is_relative_to(ROOT / "tandem")
        and any(name in file.read_text() for name in THREADS)
    ]
    assert users == [
        "store/machine/drafts.py",
        "store/machine/kept_threads.py",
        "store/machine/machine.py",
        "store/machine/many_lists.py",
        "store/machine/many_syncs.py",
        "store/machine/real_disk.py",
        "store/machine/real_file.py",
    ]


@pytest.mark.slow
def test_what_others_wrote_is_decoded_in_one_place() -> None:
    """Each decoder raises errors that one forgets; `tandem.wire.untrusted` knows all of them."""
    callers = {
        f"{file.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for file in SOURCES
        for node in running_nodes(file)
        if isinstance(node, (ast.Attribute, ast.Name)) and DECODERS.fullmatch(ast.unparse(node))
    }
    in_place = {place for place in callers if place.startswith("tandem/wire/untrusted.py:")}
    assert len(in_place) == 6, "this test looks for the wrong names"
    assert callers - in_place == set()
    borrowed = {
        f"{file.relative_to(ROOT)}: from {node.module} import {alias.name}"
        for file in SOURCES
        for node in running_nodes(file)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if DECODERS.fullmatch(f"{node.module}.{alias.name}") or node.module == "json"
    }
    assert borrowed == set()


def decodes_strictly(node: ast.AST) -> bool:
    """`data.decode()`, where `data` is not what we have just encoded."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "decode"
        and not node.keywords
        and len(node.args) < 2
        and "encode" not in ast.unparse(node.func.value)
    )


def catches_it(node: ast.AST) -> bool:
    """`try` with a handler for what is no UTF-8."""
    return isinstance(node, ast.Try) and any(
        handler.type is not None and "Unicode" in ast.unparse(handler.type)
        for handler in node.handlers
    )


@pytest.mark.slow
def test_text_of_others_is_decoded_where_its_error_is_caught() -> None:
    """Others use `decode_text`, whose error is that of all decoders, or say `"replace"`."""
    found = set()
    for file in SOURCES:
        caught = {
            id(inner)
            for outer in running_nodes(file)
            if catches_it(outer)
            for inner in ast.walk(outer)
        }
        found |= {
            f"{file.relative_to(ROOT)} {name}"
            for name, function in functions(file)
            for node in ast.walk(function)
            if decodes_strictly(node) and id(node) not in caught
        }
    assert found == TEXT_DECODED_ELSEWHERE


def says_no_by_an_empty_text(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """`-> str`, and "" among what it returns."""
    if function.returns is None or ast.unparse(function.returns) != "str":
        return False
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value]
    return any(
        isinstance(node, ast.Constant) and node.value == ""
        for value in returned
        for node in ast.walk(value)
    )


def test_a_reason_that_is_none_is_none() -> None:
    """Why a server does not do something is a value or None. An empty text would mean yes."""
    found = {
        f"{file.relative_to(ROOT)} {name}"
        for file in SOURCES
        if not file.is_relative_to(ROOT / "tandem")
        for name, function in functions(file)
        if says_no_by_an_empty_text(function)
    }
    assert found == TEXTS_THAT_MAY_BE_EMPTY


def constants(file: Path) -> Iterator[tuple[str, object]]:
    """The constants of a module that are written out: names without underscore, and values."""
    for node in syntax_tree(file).body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and target.id.isupper():
                try:
                    yield target.id.lstrip("_"), literal(node.value)
                except ValueError:
                    continue


def literal(node: ast.expr) -> object:
    """The value of a number, of a text, or of a number that is worked out.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(node, ast.BinOp):
        left, right = literal(node.left), literal(node.right)
        if isinstance(left, int) and isinstance(right, int):
            match node.op:
                case ast.Pow():
                    return left**right
                case ast.LShift():
                    return left << right
                case ast.Sub():
                    return left - right
                case ast.Mult():
                    return left * right
    if isinstance(node, ast.Constant) and isinstance(node.value, int | str | bytes):
        return node.value
    raise ValueError


def test_what_formats_say_is_written_once() -> None:
    """A constant of `tandem.wire` has no second home, nor has a text of four letters or more."""
    homes = defaultdict(set)
    for file in SOURCES:
        for name, value in constants(file):
            homes[name, value].add(str(file.relative_to(ROOT)))
            if isinstance(value, str | bytes) and len(value) >= LETTERS_OF_A_NAME:
                homes["", value].add(str(file.relative_to(ROOT)))
    twice = {
        f"{name} {value!r}".strip()
        for (name, value), files in homes.items()
        if len(files) > 1 and (not name or any(file.startswith("tandem/wire/") for file in files))
    }
    assert twice == WORDS_OF_SEVERAL


def attributes_set(file: Path) -> Iterator[ast.Attribute]:
    """Where a module sets attributes, of whatever object."""
    for node in running_nodes(file):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for part in (part for target in targets for part in ast.walk(target)):
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                    yield part


def hook_names(files: list[Path]) -> set[str]:
    """Attributes that say that they are callables, or are set to a parameter that says so."""
    aliases = {
        node.target.id
        for file in files
        for node in syntax_tree(file).body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.value is not None
        and "Callable" in ast.unparse(node.value)
    }
    words = re.compile(rf"\b({'|'.join(sorted({'Callable', *aliases}))})\b")
    names = set()
    for file in files:
        for _, function in functions(file):
            arguments = function.args
            every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            hooks = {
                each.arg
                for each in every
                if each.annotation is not None and words.match(ast.unparse(each.annotation))
            }
            for node in ast.walk(function):
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                    if words.match(ast.unparse(node.annotation)):
                        names.add(node.target.attr)
                elif (
                    isinstance(node, ast.Assign)
                    and isinstance(node.value, ast.Name)
                    and node.value.id in hooks
                ):
                    targets = [each for each in node.targets if isinstance(each, ast.Attribute)]
                    names |= {target.attr for target in targets}
    return names


@pytest.mark.slow
def test_no_hook_is_set_from_outside() -> None:
    """What an object calls is given to it when it is made, or to its `run`: the order is visible.

    A hook is an attribute that a class says is a callable; it is set by methods of the class alone.
    """
    servers = [file for file in SOURCES if not file.is_relative_to(ROOT / "tandem")]
    names = hook_names(servers)
    assert {"_on_failure", "_after_release", "hidden_before", "_on_doubt"} <= names
    found = {
        f"{file.relative_to(ROOT)} {target.attr}"
        for file in servers
        for target in attributes_set(file)
        if target.attr in names and ast.unparse(target.value) not in ("self", "cls")
    }
    assert found == set()


def test_every_engine_is_under_the_contract_for_engines() -> None:
    """An engine says so in its docstring; the contract in pyproject.toml has to know it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    engines = next(
        contract["source_modules"] for contract in contracts if "engines" in contract["name"]
    )
    for file in SOURCES:
        docstring = ast.get_docstring(syntax_tree(file)) or ""
        if "a state machine with no I/O" in docstring:
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            assert any(module == engine or module.startswith(f"{engine}.") for engine in engines)


@pytest.mark.slow
def test_importing_the_library_loads_neither_client_nor_trio_nor_numpy() -> None:
    code = (
        "import sys, tandem; "
        "print({'trio', 'numpy', 'pyspark', 'tandem.client', 'tandem.wire'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.slow
def test_the_audit_without_spark_loads_nothing_of_spark() -> None:
    code = "import sys, tandem.drill.quick_audit; print({'pyspark', 'py4j'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.slow
@pytest.mark.parametrize("module", ["tandem.cli.command_line", "tandem.cli.serve_line"])
def test_the_command_line_loads_no_client_before_a_command_runs(module: str) -> None:
    code = (
        f"import sys, {module}; "
        "print({'trio', 'numpy', 'pyspark', 'matplotlib', 'tandem.client'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
