"""The command line of tools/bench: run, compare, sweep, latency, peers.

Exit codes: 0 done, 1 something could not be run, 2 usage, 130 interrupted.
"""

import argparse
import contextlib
import fcntl
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tools.benchmark import latency, machine, ours, peers, report, rounds, sweep, table
from tools.benchmark.chart import Row, bars
from tools.benchmark.processes import RunError
from tools.benchmark.subjects import Subject

RESULTS = peers.CACHE / "results"
WORK = peers.CACHE / "work"


def tell(line: str) -> None:
    """Progress, on standard error so that the table can be piped."""
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def working_folder(parent: Path) -> Iterator[Path]:
    """A folder for one run's data, gone afterwards. Raises RunError while another run goes on."""
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(f"another run is under way in {parent}") from error
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def our_subjects(python: str, plan: rounds.Plan) -> list[Subject]:
    """Our rows: the thin generator on few and on many connections, in batches, official client."""
    size = plan.payload_bytes
    found = [
        ours.thin(python, connections=plan.connections, payload_bytes=size),
        ours.thin(python, name="sepp-trio-100", connections=100, payload_bytes=size),
        ours.thin(
            python,
            name="sepp-trio-batches",
            title="sepp-trio, batches of 100, reserving 16",
            connections=plan.connections,
            payload_bytes=size,
            batch=100,
            reserve=16,
        ),
    ]
    official = ours.official(python, connections=plan.connections, payload_bytes=size)
    if official is None:
        tell("without the official client: tools/bench peers installs it")
        return found
    return [*found, official]


def installed_peers(plan: rounds.Plan) -> list[Subject]:
    """The peers that can be run here."""
    found = []
    for peer in peers.PEERS:
        missing = peer.missing()
        if missing:
            tell(f"without {peer.subject.title}: missing {', '.join(missing)}")
            continue
        found.append(
            peer.subject.with_options(
                connections=plan.connections, payload_bytes=plan.payload_bytes
            )
        )
    return found


def chosen(subjects: Sequence[Subject], names: Sequence[str] | None) -> list[Subject]:
    """The subjects of these names, or all. Raises RunError for a name that is not there."""
    if names is None:
        return list(subjects)
    known = {subject.name: subject for subject in subjects}
    for name in names:
        if name not in known:
            raise RunError(f"no subject {name!r} here; there are {', '.join(known)}")
    return [known[name] for name in names]


def python_of(arguments: argparse.Namespace) -> str:
    """The Python for our server and its drivers. Raises RunError when none can be made."""
    given: str | None = arguments.python
    return given or ours.default_python()


def plan_of(arguments: argparse.Namespace) -> rounds.Plan:
    """The plan the options ask for."""
    return rounds.Plan(
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        parties=arguments.parties,
        connections=arguments.connections,
        payload_bytes=arguments.payload_bytes,
    )


def compare(arguments: argparse.Namespace, *, with_peers: bool) -> int:
    """Our rows, then the peers', interleaved; a table, the ratios, a chart."""
    plan = plan_of(arguments)
    is_ours_wanted = any(name.startswith("sepp-") for name in arguments.only or ["sepp-trio"])
    mine = our_subjects(python_of(arguments), plan) if is_ours_wanted else []
    theirs = installed_peers(plan) if with_peers else []
    subjects = chosen([*mine, *theirs], arguments.only)
    mine = [subject for subject in mine if subject in subjects]
    theirs = [subject for subject in theirs if subject in subjects]
    with working_folder(arguments.work) as folder:
        facts = machine.facts(folder)
        results, clients = rounds.interleave(subjects, plan, folder, tell=tell)
    found = rounds.summarize(results)
    what = (
        f"{plan.parties} producers, {plan.parties} workers, {plan.payload_bytes}-byte payloads, "
        f"phases of {plan.seconds:g} s, medians of {plan.rounds} rounds (± half their spread)"
    )
    text = report.page(
        [
            "\n".join([what, *facts.lines(), rounds.disturbance(results)]),
            table.comparison(subjects, found),
            table.ratios(mine, theirs, found) if mine and theirs else "",
            "\n".join(f"{subject.title}: {clients[subject.name]}" for subject in subjects),
        ]
    )
    svg = bars(
        "Jobs a second, every change durable before it is answered",
        [(phase, "jobs a second") for phase in rounds.PHASES],
        [
            Row(
                subject.title,
                [found[subject.name, phase].jobs_per_second for phase in rounds.PHASES],
                is_ours=subject in mine,
            )
            for subject in subjects
        ],
        [what, *facts.lines(), rounds.disturbance(results)],
    )
    data = {
        "facts": facts.as_dict(),
        "plan": plan.as_dict(),
        "subjects": [
            {
                "name": subject.name,
                "title": subject.title,
                "durable": subject.durable,
                "client": clients[subject.name],
                "options": dict(subject.options),
                "order": dict(subject.order),
            }
            for subject in subjects
        ],
        **rounds.as_json(results, found),
    }
    verb = "compare" if with_peers else "run"
    return finish(arguments.output, verb, text=text, data=data, svg=svg)


def finish(folder: Path, verb: str, *, text: str, data: object, svg: str) -> int:
    """Print the table and write the files."""
    print(text)
    for path in report.write(folder, verb, text=text, data=data, svg=svg):
        print(f"wrote {path}")
    return 0


def run_sweep(arguments: argparse.Namespace) -> int:
    """Our server as the work grows."""
    plan = plan_of(arguments)
    names = arguments.only or list(sweep.GROUPS)
    for name in names:
        if name not in sweep.GROUPS:
            raise RunError(f"no group {name!r}; there are {', '.join(sweep.GROUPS)}")
    with working_folder(arguments.work) as folder:
        facts = machine.facts(folder)
        python = python_of(arguments)
        groups, results, found = sweep.run(names, python, plan, folder, tell=tell)
    notes = [*facts.lines(), rounds.disturbance(results)]
    text = report.page(["\n".join(notes), sweep.table(groups, found)])
    data = {
        "facts": facts.as_dict(),
        "plan": plan.as_dict(),
        "groups": {name: [case.subject.name for case in cases] for name, cases in groups.items()},
        **rounds.as_json(results, found),
    }
    svg = sweep.chart(groups, found, notes)
    return finish(arguments.output, "sweep", text=text, data=data, svg=svg)


def run_latency(arguments: argparse.Namespace) -> int:
    """Round trips on one connection."""
    plan, python = plan_of(arguments), python_of(arguments)
    with working_folder(arguments.work) as folder:
        facts = machine.facts(folder)
        found, sync_ms = latency.measure_modes(python, plan, folder, tell=tell)
        found += latency.measure_busy(python, plan, folder, tell=tell)
    text = report.page(["\n".join(facts.lines()), latency.table(found, sync_ms)])
    data = {
        "facts": facts.as_dict(),
        "plan": plan.as_dict(),
        "fdatasync_p50_between_rounds_ms": sync_ms,
        "latencies": [item.as_dict() for item in found],
    }
    svg = latency.chart(found, facts.lines())
    return finish(arguments.output, "latency", text=text, data=data, svg=svg)


def run_peers(arguments: argparse.Namespace) -> int:
    """Install the peers, or only say what is there."""
    return peers.report_installed() if arguments.check else peers.install()


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _add_common(parser: argparse.ArgumentParser, *, seconds: float, rounds_count: int) -> None:
    add = parser.add_argument
    add("--rounds", type=_positive, default=rounds_count, help="rounds (default %(default)s)")
    add("--seconds", type=float, default=seconds, help="time of a phase (default %(default)s)")
    add("--parties", type=_positive, default=50, help="producers, and workers (default 50)")
    add("--connections", type=_positive, default=2, help="of both sides together (default 2)")
    add("--payload-bytes", type=_positive, default=256, help="of a job (default 256)")
    add("--only", type=_names, help="comma-separated names, instead of all")
    add("--python", help="the Python that has the server (default: the project's environment)")
    add("--output", type=Path, default=RESULTS, help="folder for table, JSON and chart")
    add("--work", type=Path, default=WORK, help="folder for data: its disk is what is measured")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="tools/bench",
        description="Measure sepp-trio, alone or beside BullMQ, beanstalkd and NATS JetStream.",
    )
    verbs = top.add_subparsers(required=True, metavar="VERB")

    def verb(
        name: str, words: str, example: str, act: Callable[[argparse.Namespace], int]
    ) -> argparse.ArgumentParser:
        added = verbs.add_parser(
            name, help=words, description=words, epilog=f"example: tools/bench {example}"
        )
        added.set_defaults(act=act)
        return added

    alone = verb(
        "run",
        "Our server alone: enqueue, drain, both at once.",
        "run --rounds 3",
        lambda arguments: compare(arguments, with_peers=False),
    )
    _add_common(alone, seconds=3, rounds_count=5)
    beside = verb(
        "compare",
        "Ours and each installed peer, interleaved: medians, ratios, CPU a job, memory.",
        "compare --only sepp-trio,bullmq",
        lambda arguments: compare(arguments, with_peers=True),
    )
    _add_common(beside, seconds=3, rounds_count=5)
    growing = verb(
        "sweep",
        f"Our server as the work grows: {', '.join(sweep.GROUPS)}.",
        "sweep --only backlog,queues",
        run_sweep,
    )
    _add_common(growing, seconds=2, rounds_count=5)
    slow = verb(
        "latency",
        "One connection: enqueue, reserve, ack; p50, p99 and p99.9.",
        "latency --rounds 3",
        run_latency,
    )
    _add_common(slow, seconds=5, rounds_count=3)
    install = verb(
        "peers",
        "Install the peers and the official client (Debian packages as root, npm, PyPI).",
        "peers --check",
        run_peers,
    )
    install.add_argument("--check", action="store_true", help="only say what is there")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code."""
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.act(arguments)
    except RunError as error:
        print(f"tools/bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code
