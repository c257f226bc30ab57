"""Blocks and marks are found; what is not understood is an error and not left out."""

from pathlib import Path

import pytest

from tests.support.page_blocks import (
    BadBlockError,
    Block,
    Command,
    apart_from_spark,
    commands_of,
    read_blocks,
)

PAGE = Path("docs/orders.md")


def read(text: str) -> list[Block]:
    return read_blocks(PAGE, text)


def test_a_block_has_language_text_place_and_the_marks_above_it() -> None:
    text = (
        "# Orders\n\n<!-- before:\nmkdir data\ncd data\n-->\n<!-- varies: times, ids -->\n\n"
        "```console\n$ ls\n```\n\nWords.\n\n1. A list:\n\n   ```json\n   {}\n   ```\n"
    )
    first, second = read(text)
    assert first == Block(
        PAGE, 9, "console", "$ ls\n", {"before": "mkdir data\ncd data", "varies": "times, ids"}
    )
    assert first.place == "docs/orders.md:9"
    assert first.listed("varies") == ["times", "ids"]
    assert (second.language, second.text, second.marks) == ("json", "{}\n", {})


def test_a_comment_with_words_between_is_no_mark() -> None:
    (block,) = read("<!-- for editors -->\n\nWords.\n\n```json\n{}\n```\n")
    assert block.marks == {}


def test_blocks_within_a_longer_fence_are_its_text() -> None:
    (block,) = read("````markdown\n<!-- nonsense -->\n```python\n```\n````\n")
    assert block.text == "<!-- nonsense -->\n```python\n```\n"


@pytest.mark.parametrize(
    "text",
    [
        "```\nls\n```\n",  # no language
        "```java\nint i;\n```\n",  # nobody here runs it
        "<!-- not run -->\n```bash\nls\n```\n",  # no reason
        "<!-- not run: -->\n```bash\nls\n```\n",
        "<!-- long -->\n```bash\nls\n```\n",
        "<!-- norun: takes minutes -->\n```bash\nls\n```\n",  # no mark
        "<!-- Not run: takes minutes -->\n```bash\nls\n```\n",
        "<!-- continues: it -->\n```python\n1\n```\n",
        "<!-- varies: dates -->\n```console\n$ ls\n```\n",
        "<!-- inside: a producer -->\n```python\n1\n```\n",
        "<!-- exits: badly -->\n```bash\nls\n```\n",
        "```console\nls\n```\n",  # no prompt
        "<!-- output -->\n```text\n1\n```\n",  # of what?
        "```text\n1\n```\n<!-- output -->\n```text\n1\n```\n",
        "<!-- continues -->\n```python\n1\n```\n",  # what?
        "```python\n1\n",  # no end
    ],
)
def test_what_is_not_understood_is_an_error_with_its_place(text: str) -> None:
    with pytest.raises(BadBlockError, match=r"docs/orders\.md:\d"):
        read(text)


def test_a_block_that_cannot_run_says_why_and_may_be_in_any_language() -> None:
    (block,) = read("<!-- not run: needs a Java client -->\n```java\nint i;\n```\n")
    assert not block.is_run


def test_a_console_block_is_taken_apart_into_commands_and_what_they_print() -> None:
    (block,) = read("```console\n$ ls -l \\\n    data\nfile\n\nfile 2\n$ true\n```\n")
    assert commands_of(block) == [
        Command("ls -l \\\n    data", "file\n\nfile 2"),
        Command("true", ""),
    ]


SPARK = "```python\nimport tandem.spark.session\n```\n"
CONTINUED = "<!-- continues -->\n```python\nspark.stop()\n```\n"
OUTPUT = "<!-- output -->\n```text\n1\n```\n"
OTHER = "```python\nprint(2)\n```\n"


def test_what_needs_spark_goes_with_what_continues_it_and_what_it_prints() -> None:
    blocks = read(OTHER + CONTINUED + SPARK + CONTINUED + OUTPUT + OTHER + OUTPUT)
    without, with_spark = apart_from_spark(blocks)
    assert [blocks.index(block) for block in with_spark] == [2, 3, 4]
    assert [blocks.index(block) for block in without] == [0, 1, 5, 6]


def test_a_page_whose_spark_asks_a_cluster_stays_together() -> None:
    asking = SPARK.replace("session", 'session\nspark.option("nameServers", "127.0.0.1:9876")')
    blocks = read(OTHER + asking + "```console\n$ tandem topic list\n```\n")
    assert apart_from_spark(blocks) == ([], blocks)
