"""`python -m tandem.spark.jobs archive --config archive.yaml`: for `spark-submit`, and for scripts.

The report goes to standard output as one line of JSON, what is done meanwhile to standard error.
Exit status: 0 done; 1 it failed, or something was found; 2 the settings are wrong.
"""

import argparse
import logging
import sys
from pathlib import Path

from tandem.client.errors import ClientError
from tandem.cluster_file.errors import ClusterConfigError
from tandem.plain_text import plain_lines
from tandem.spark.errors import SparkSourceError
from tandem.spark.jobs.settings import JOBS, load_settings

logger = logging.getLogger("tandem.spark.jobs")


def main(arguments: list[str]) -> int:
    """Run the job that the arguments name; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tandem.spark.jobs")
    parser.add_argument("job", choices=list(JOBS))
    parser.add_argument("--config", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--verify", action="store_true", help="archive: read everything again")
    parser.add_argument("--dry-run", action="store_true", help="replay: only count")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    # It says that it has closed a connection, and under `spark-submit` that comes after the report:
    # its programs have one output.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        options = dict(each.split("=", 1) for each in given.set if "=" in each)
        settings = load_settings(JOBS[given.job], given.config, options)
        return _run(given, settings)
    except ClusterConfigError as error:
        return _say(str(error), 2)
    except (SparkSourceError, ClientError, OSError) as error:
        return _say(str(error), 1)


def _run(given: argparse.Namespace, settings: object) -> int:
    import msgspec  # noqa: PLC0415 - the settings are judged before Spark is loaded

    from tandem.spark.jobs.findings import has_findings  # noqa: PLC0415
    from tandem.spark.jobs.start import JobRequest, run_job  # noqa: PLC0415

    request = JobRequest(given.job, settings, verify=given.verify, dry_run=given.dry_run)
    report = run_job(request, on_progress=_log_progress)
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    return 1 if has_findings(report) else 0


def _log_progress(words: str) -> None:
    logger.info("%s", words)


def _say(words: str, status: int) -> int:
    sys.stderr.write(f"error: {plain_lines(words)}\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
