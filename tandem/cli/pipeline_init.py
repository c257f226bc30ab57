"""`tandem pipeline init` without a job: five questions, and the file of a job with the answers.

Answers are options as well. Without a terminal nothing is asked: what no option answers is its
default, and what has none is an error that names the option.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import typer

from tandem.cli.output import WRONG_USAGE, CommandError, say


def write_job(file: Path, given: Mapping[str, str | None]) -> None:
    """Ask what `given` does not answer, and write the job to a file that is not there yet."""
    from tandem.spark.jobs.questions import QUESTIONS, job_file

    if file.exists():
        raise CommandError(f"{file} is there already; name another file", WRONG_USAGE)
    is_asked = sys.stdin.isatty() and sys.stdout.isatty()
    answers = {}
    for question in QUESTIONS:
        answer = given[question.key]
        if answer is None and is_asked:
            answer = str(typer.prompt(question.words, default=question.default))
        if answer is None:
            answer = question.default
        if answer is None:
            option = f"--{question.key.replace('_', '-')}"
            raise CommandError(f"{option} is missing. {question.words}", WRONG_USAGE)
        answers[question.key] = answer
    text = job_file(answers)
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError as error:
        raise CommandError(f"{file} is there already; name another file", WRONG_USAGE) from error
    say(f"wrote {file}; run it with `tandem pipeline archive -c {file}`")
