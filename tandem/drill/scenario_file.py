"""Reads a scenario: a YAML file with a promise and a list of sentences.

    promise: A master that dies is replaced within seconds.
    seconds: 20
    steps:
      - start the load
      - begin kill
      - kill the master
      - expect a new master within 10 s
      - drain

Keys: `promise` (one line), `group` (`fenced` or `classic`; default fenced), `seconds` (how long it
takes, for people), `settings` (sections of a cluster file that it needs), `short: true` (part of
the short form). Sentences: see `vocabulary`.
"""

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from tandem.cluster_file.choices import GroupKind
from tandem.drill.errors import BadScenarioError, NoScenarioError, WrongGroupError
from tandem.drill.sentences.expectations import bad_status
from tandem.drill.sentences.sentence import Fault, Step, bad_subject
from tandem.drill.vocabulary import SENTENCES, match, split_group

FOLDER: Final = Path(__file__).with_name("scenarios")
SUFFIX: Final = ".yaml"
FILE_BYTES_MAX: Final = 1 << 20
"""A long scenario takes 2 KiB."""

DEFAULT_OF_FENCED: Final = ("master-kill", "master-freeze")
DEFAULT_OF_CLASSIC: Final = ("slave-loss", "master-loss")

_KEYS: Final = ("promise", "group", "seconds", "settings", "short", "steps")
_SECTIONS: Final = ("store", "replication", "broker", "coordinator", "group")


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario as its file says it."""

    name: str
    promise: str
    group: GroupKind
    seconds: int
    """How long it takes here, at the default load."""
    short: bool
    settings: dict[str, dict[str, Any]]
    steps: tuple[Step, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        """What has to be prepared before the cluster starts: `network`, `disks`, `machines`."""
        return tuple(sorted({s.sentence.needs for s in self.steps if s.sentence.needs}))

    @property
    def faults(self) -> frozenset[Fault]:
        """What a target has to be able to do."""
        return frozenset(fault for step in self.steps for fault in step.faults)


def catalogue(folder: Path = FOLDER) -> list[Scenario]:
    """Return the scenarios that come with the package, fenced ones first, by name.

    `folder`: those of one target.
    """
    found = [read_scenario(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    return sorted(
        found, key=lambda scenario: (scenario.group is not GroupKind.FENCED, scenario.name)
    )


def find_scenario(name: str, folder: Path = FOLDER) -> Scenario:
    """Return a scenario by its name in the catalogue, or by the path of a file.

    A name is looked for in `folder` first, and then in the catalogue for our own groups.

    Raises:
        BadScenarioError: there is none, or its file is wrong.
    """
    packaged = [file for place in (folder, FOLDER) for file in place.glob(f"*{SUFFIX}")]
    names = [file.stem for file in packaged]
    if name in names:
        return read_scenario(packaged[names.index(name)])
    path = Path(name)
    if path.suffix in (SUFFIX, ".yml") or _is_there(path):
        return read_scenario(path)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise NoScenarioError(
        f"there is no scenario {name}; {hint}`tandem drill list` shows them all, and a file of your"
        " own is given by its path",
        name,
    )


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # too long to be the name of a file


def read_scenario(path: Path) -> Scenario:
    """Read and check a file.

    Raises:
        BadScenarioError: with the line and what to do.
    """
    try:
        with path.open("rb") as source:
            data = source.read(FILE_BYTES_MAX + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadScenarioError(f"{path}: cannot be read: {error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise BadScenarioError(f"{path}: has more than {FILE_BYTES_MAX} bytes: that is no scenario")
    return parse_scenario(text, path.stem, str(path))


def parse_scenario(text: str, name: str, place: str) -> Scenario:
    """Check the text of a file; `place` is what errors call it."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError as error:
        raise BadScenarioError(f"{place}:1: is not YAML: it is nested too deeply") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        raise BadScenarioError(
            f"{place}:{line}: is not YAML: {getattr(error, 'problem', error)}"
        ) from error
    reader = _Reader(place)
    parts = reader.mapping(root)
    for key, (node, _) in parts.items():
        if key not in _KEYS:
            raise reader.bad(node, f"unknown key {key!r}; there are {', '.join(_KEYS)}")
    return reader.scenario(name, {key: value for key, (_, value) in parts.items()})


class _Reader:
    """Turns the nodes of one file into a scenario; every complaint has its line."""

    def __init__(self, place: str) -> None:
        self._place = place

    def bad(self, node: yaml.Node | None, text: str) -> BadScenarioError:
        line = node.start_mark.line + 1 if node is not None else 1
        return BadScenarioError(f"{self._place}:{line}: {text}")

    def mapping(self, node: yaml.Node | None) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise self.bad(node, "a scenario has the keys promise and steps")
        return {str(key.value): (key, value) for key, value in node.value}

    def scenario(self, name: str, values: dict[str, yaml.Node]) -> Scenario:
        for key in ("promise", "steps"):
            if key not in values:
                raise BadScenarioError(f"{self._place}:1: has no {key}")
        group = self._group(values.get("group"))
        return Scenario(
            name=name,
            promise=self._promise(values["promise"]),
            group=group,
            seconds=self._seconds(values.get("seconds")),
            short=self._plain(values.get("short")) is True,
            settings=self._settings(values.get("settings")),
            steps=tuple(self._steps(values["steps"], group)),
        )

    def _plain(self, node: yaml.Node | None) -> Any:  # noqa: ANN401 - what YAML can hold
        if node is None:
            return None
        loader = yaml.SafeLoader("")
        return loader.construct_document(node)

    def _promise(self, node: yaml.Node) -> str:
        text = self._plain(node)
        if not isinstance(text, str) or not text.strip() or "\n" in text.strip():
            raise self.bad(node, "promise is one line of text")
        return text.strip()

    def _group(self, node: yaml.Node | None) -> GroupKind:
        match self._plain(node):
            case None | "fenced":
                return GroupKind.FENCED
            case "classic":
                return GroupKind.CLASSIC
            case other:
                raise self.bad(node, f"group is fenced or classic, not {other!r}")

    def _seconds(self, node: yaml.Node | None) -> int:
        value = self._plain(node)
        if value is None:
            return 0
        if not isinstance(value, int) or value < 0:
            raise self.bad(node, f"seconds is a whole number, not {value!r}")
        return value

    def _settings(self, node: yaml.Node | None) -> dict[str, dict[str, Any]]:
        value = self._plain(node)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
            raise self.bad(node, "settings has sections of a cluster file with keys in them")
        for section in value:
            if section not in _SECTIONS:
                raise self.bad(node, f"settings may have {', '.join(_SECTIONS)}, not {section!r}")
        return value

    def _steps(self, node: yaml.Node, group: GroupKind) -> Iterator[Step]:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise self.bad(node, "steps is a list of sentences")
        for item in node.value:
            yield self._step(item, group)

    def _step(self, node: yaml.Node, group: GroupKind) -> Step:
        if not isinstance(node, yaml.ScalarNode):
            raise self.bad(node, "a step is one sentence, without a colon in it")
        text = " ".join(str(node.value).split())
        sentence_text, of_group = split_group(text)
        found = match(sentence_text)
        if found is None:
            raise self.bad(node, f"no sentence reads {text!r}; {_nearest(text)}")
        sentence, words = found
        if sentence.fenced_only and group is not GroupKind.FENCED:
            raise self.bad(node, f"{text!r} is for fenced groups; this scenario's is classic")
        if why_not := bad_subject(sentence, words, is_fenced=group is GroupKind.FENCED):
            raise self.bad(node, f"{text!r}: {why_not}")
        if word := bad_status(words.get("statuses", "SEND_OK")):
            raise self.bad(node, f"{word} is no status of a send")
        return Step(text, node.start_mark.line + 1, sentence, words, of_group)


def _nearest(text: str) -> str:
    """What may have been meant: sentences that begin alike."""
    verbs = sorted({sentence.template.split()[0] for sentence in SENTENCES})
    verb = text.partition(" ")[0]
    close = difflib.get_close_matches(verb, verbs, n=1, cutoff=0.6)
    if not close:
        return f"sentences begin with {', '.join(verbs)}"
    like = [s.template for s in SENTENCES if s.template.split()[0] == close[0]]
    return f"there is {'; '.join(repr(template) for template in like)}"


def choose(
    names: Sequence[str],
    group: GroupKind,
    *,
    short: bool,
    folder: Path = FOLDER,
    remedy: str = "give another file by --config",
) -> list[Scenario]:
    """Return what is to be played: as named, or the default of the kind of group.

    `folder` has the scenarios of a target; those of our own groups can be named as well. `remedy`:
    how one gets a group of the other kind there.

    Raises:
        BadScenarioError: a name or file is wrong, or is for the other kind of group.
    """
    if not names:
        names = DEFAULT_OF_FENCED if group is GroupKind.FENCED else DEFAULT_OF_CLASSIC
        if short:
            every = catalogue(folder)
            # No scenario of classic groups is in the short form: theirs is less load alone.
            names = [each.name for each in every if each.short and each.group == group] or names
    if "all" in names:
        names = [each.name for each in catalogue(folder) if each.group == group]
    chosen = [find_scenario(name, folder) for name in names]
    for scenario in chosen:
        if scenario.group != group:
            raise WrongGroupError(
                f"scenario {scenario.name} is for {scenario.group} groups, and this group is"
                f" {group}; {remedy}",
                scenario.name,
            )
    return chosen
