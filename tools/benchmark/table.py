"""Plain text tables: a header, rows, columns as wide as they need to be."""

from collections.abc import Mapping, Sequence

from tools.benchmark.figures import ratio
from tools.benchmark.rounds import PHASES, Summary
from tools.benchmark.subjects import Subject

NOTHING = "-"


def lay_out(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align a table: the first column to the left, figures to the right.

    Raises ValueError when a row has not as many cells as the header.
    """
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"row {row!r} has {len(row)} cells, the header {len(header)}")
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        laid = [cells[0].ljust(widths[0])]
        laid += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "  ".join(laid).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def per_second(summary: Summary | None) -> str:
    """A rate with how far the rounds lay apart."""
    if summary is None:
        return NOTHING
    return f"{summary.jobs_per_second:,.0f} ±{summary.spread * 50:.0f}%"


def comparison(subjects: Sequence[Subject], summaries: Mapping[tuple[str, str], Summary]) -> str:
    """One row a subject: rates, CPU a job with both at once, memory, and what makes it durable."""
    header = [
        "",
        *(f"{phase}, jobs/s" for phase in PHASES),
        "server µs/job",
        "client µs/job",
        "peak MiB",
        "durable by",
    ]
    rows = []
    for subject in subjects:
        found = [summaries.get((subject.name, phase)) for phase in PHASES]
        last = next((summary for summary in reversed(found) if summary), None)
        peak = max((summary.server_peak_bytes for summary in found if summary), default=0)
        rows.append(
            [
                subject.title,
                *(per_second(summary) for summary in found),
                f"{last.server_us_per_job:.0f}" if last else NOTHING,
                f"{last.client_us_per_job:.0f}" if last else NOTHING,
                f"{peak / 2**20:.0f}",
                subject.durable,
            ]
        )
    return lay_out(header, rows)


def ratios(
    ours: Sequence[Subject],
    peers: Sequence[Subject],
    summaries: Mapping[tuple[str, str], Summary],
) -> str:
    """How many times each peer's rate ours is, phase by phase."""
    rows = []
    for subject in ours:
        for peer in peers:
            cells = [f"{subject.title} : {peer.title}"]
            for phase in PHASES:
                mine = summaries.get((subject.name, phase))
                theirs = summaries.get((peer.name, phase))
                times = (
                    ratio(mine.jobs_per_second, theirs.jobs_per_second) if mine and theirs else None
                )
                cells.append(NOTHING if times is None else f"{times:.2f} ×")
            rows.append(cells)
    return lay_out(["ratio", *PHASES], rows)
