"""What a page does, from its blocks."""

from pathlib import Path

from tests.support.page_blocks import read_blocks
from tests.support.page_steps import RunLine, Step, WriteFile, steps_of


def steps(text: str) -> list[Step]:
    return list(steps_of(read_blocks(Path("p.md"), text)))


def test_lines_of_a_console_are_run_one_by_one_and_marks_are_of_the_last() -> None:
    text = "<!-- exits: 2 -->\n<!-- varies: ids -->\n```console\n$ a\n1\n$ b\n```\n"
    assert steps(text) == [
        RunLine("p.md:3", "a", "1", frozenset({"ids"})),
        RunLine("p.md:3", "b", "", frozenset({"ids"}), exits=2),
    ]


def test_before_a_block_its_preparation_is_run_also_if_it_is_not_run_itself() -> None:
    text = "<!-- before: a -->\n<!-- not run: x -->\n```bash\nb\n```\n"
    text += "<!-- drilled: takes a minute -->\n```bash\ntandem drill\n```\n"
    assert steps(text) == [RunLine("p.md:3", "a")]


def test_a_program_is_a_file_that_is_run() -> None:
    assert steps("```python\nprint(1)\n```\n<!-- output -->\n```text\n1\n```\n") == [
        WriteFile("block_1.py", "print(1)\n"),
        RunLine("p.md:1", "python block_1.py", "1\n"),
    ]


def test_blocks_that_continue_are_one_program_and_print_as_one() -> None:
    text = (
        "```python\na\n```\n<!-- output -->\n```text\n1\n```\n"
        "<!-- continues -->\n```python\nb\n```\n"
        "<!-- continues -->\n```python\nc\n```\n<!-- output -->\n```text\n3\n```\n"
        "```python\nd\n```\n<!-- output -->\n```text\n4\n```\n"
    )
    assert steps(text) == [
        WriteFile("block_1.py", "a\n\nb\n\nc\n"),
        RunLine("p.md:1", "python block_1.py", "1\n...\n3\n"),
        WriteFile("block_20.py", "d\n"),
        RunLine("p.md:20", "python block_20.py", "4\n"),
    ]


def test_a_fragment_has_around_it_what_its_mark_says() -> None:
    written, _ = steps("<!-- inside: producer, admin -->\n```python\nawait x()\n```\n")
    assert isinstance(written, WriteFile)
    compile(written.text, "fragment", "exec")
    assert "    async with tandem.Producer(NAME_SERVERS" in written.text
    assert "        async with tandem.Admin(NAME_SERVERS" in written.text
    assert "            await x()\n" in written.text
    assert written.text.endswith("asyncio.run(main())\n")


def test_a_fragment_that_speaks_of_trio_runs_under_trio() -> None:
    written, _ = steps("<!-- inside: admin -->\n```python\nawait trio.sleep(0)\n```\n")
    assert isinstance(written, WriteFile)
    assert written.text.endswith("trio.run(main)\n")


def test_a_file_is_written_and_a_script_is_one_line_with_its_output() -> None:
    text = (
        "<!-- file: a/b.py -->\n```python\n1\n```\n"
        "```bash\nx\ny\n```\n<!-- output -->\n```text\nz\n```\n"
    )
    assert steps(text) == [WriteFile("a/b.py", "1\n"), RunLine("p.md:5", "x\ny\n", "z\n")]


def test_what_is_only_shown_is_no_step() -> None:
    assert steps("```text\nls\n```\n```yaml\na: 1\n```\n") == []
