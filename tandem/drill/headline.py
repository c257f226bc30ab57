"""The verdict of a drill in one line."""

from tandem.drill.group_summary import broken_of
from tandem.drill.judgement import READS
from tandem.drill.summary import Summary


def in_words(summary: Summary) -> str:
    """The verdict as the first line of a report."""
    match summary.verdict:
        case "PASSED":
            return "PASSED: every promise held"
        case "NOT POSSIBLE":
            return "NOT POSSIBLE: nothing was put to the test"
        case "INTERRUPTED":
            return "INTERRUPTED: this report is not complete"
        case "INCONCLUSIVE":
            is_slow = summary.expectations_failed or any(each.excused for each in summary.groups)
            if not is_slow:
                return "INCONCLUSIVE: a fault did nothing"
            return "INCONCLUSIVE: the machine was too slow to say"
        case "FAILED":
            of_stream = summary.stream.promises_broken if summary.stream is not None else 0
            is_judged = READS not in summary.target.not_promised
            of_witness = summary.witness.promises_broken if summary.witness and is_judged else 0
            of_consumers = summary.consumers.promises_broken if summary.consumers else 0
            of_groups = sum(count for _, count in broken_of(summary.groups))
            broken = (summary.promises_broken or 0) + of_stream + of_witness + of_consumers
            broken += of_groups
            unmet = summary.expectations_failed
            parts = [_many(broken, "broken promise"), _many(unmet, "expectation", " not met")]
            disorder = summary.read_out_of_order if is_judged else 0
            parts.append(_many(disorder, "message", " read out of order"))
            parts.append(_many(len(summary.exits), "program", " ended by itself"))
            said = ", ".join(part for part in parts if part)
            return f"FAILED: {said or summary.stopped_because or 'there was no audit'}"


def _many(count: int, what: str, how: str = "") -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}{how}" if count else ""
