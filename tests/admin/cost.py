"""What the admin side costs a real server: python -m tests.admin.cost

Fills a server with dead letters, opens lists and pages of them, scrapes and exports; then lets a
dashboard follow a thousand queues. Prints CPU time of the server, which other work on the machine
hardly moves, and the longest step: as long as it lasts no commit can begin. What a step takes of
its own is without the rounds of Python's collector that fell into it. Where chromium is installed
it also opens a page of large jobs and tells when something was painted.

`tests/ops/test_admin_cost.py` runs it small. `sepp/DESIGN.md` has the figures.
"""

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import trio

from sepp._generated import queue_pb2 as pb
from tests.admin.browser.window import Window, missing, open_chromium
from tests.admin.samples import key_of
from tests.e2e.rpc_client import Client, connected
from tests.e2e.server_process import ServerProcess

BATCH = 1000
BURIED = 100
SETTINGS = {
    "admin": {"enabled": True, "listen_addr": "127.0.0.1:0"},
    "metrics": {"prometheus_enabled": True, "prometheus_listen_addr": "127.0.0.1:0"},
    "limits": {
        "max_payload_bytes": 2 << 20,
        "max_message_bytes": 8 << 20,
        "max_enqueue_batch": BATCH,
    },
}
API = "/admin/api/v1"
LIST = f"{API}/queues/dead/jobs?state=dead_letter"
PAGE = "/admin/queues/dead/jobs?state=dead_letter"
MIB = b'{"a":"' + b"x" * (1024 * 1024 - 8) + b'"}'


def main(arguments: list[str]) -> None:
    """Run all parts and print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dead", type=int, default=200_000, help="dead letters (200000)")
    parser.add_argument("--queues", type=int, default=1000, help="queues (1000)")
    parser.add_argument("--rounds", type=int, default=20, help="requests of each kind (20)")
    parser.add_argument("--follow", type=float, default=20.0, help="seconds of dashboard (20)")
    parser.add_argument("--no-browser", action="store_true", help="without the page of large jobs")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sepp-cost-") as directory:
        print("look\tcpu ms\tmost ms\tlongest step ms\tits own ms\tKB")
        with served(Path(directory) / "dead", is_stepped=True) as server:
            listings(server, asked.dead, asked.rounds)
        with served(Path(directory) / "many", is_stepped=True) as server:
            pages_of_queues(server, asked.queues, asked.rounds)
        with served(Path(directory) / "queues") as server:
            follow(server, asked.queues, asked.follow)
        if not asked.no_browser and missing() is None:
            with served(Path(directory) / "large") as server:
                paint(server)


@contextmanager
def served(directory: Path, *, is_stepped: bool = False) -> Iterator[ServerProcess]:
    """A server, with a note of its long steps in `steps`."""
    steps = ["-m", "tests.admin.stepped", str(directory / "steps")]
    prefix = [sys.executable, *steps] if is_stepped else []
    server = ServerProcess(directory, SETTINGS, prefix=prefix)
    server.start()
    server.wait_until_says("admin UI listening at")
    try:
        yield server
    finally:
        if server.is_running:
            server.stop()


def base(server: ServerProcess, what: str = r"admin UI listening at http://") -> str:
    """Return the address of a listener."""
    return "http://" + re.findall(what + r"(127\.0\.0\.1:\d+)", server.output)[-1]


def cpu_ms(server: ServerProcess) -> float:
    """CPU time of the server, of all its threads, to the nanosecond."""
    clock_id = (~server.pid << 3) | 2  # as clock_getcpuclockid(3) makes it
    return time.clock_gettime(clock_id) * 1000


def longest_ms(server: ServerProcess, since: float) -> tuple[float, float]:
    """The longest step since a moment, and the longest without Python's collector; 0: below 1."""
    whole, own = [0.0], [0.0]
    for line in (server.directory / "steps").read_text().splitlines():
        at, took, collecting, _ = line.split(" ", 3)
        if float(at) >= since:
            whole.append(float(took))
            own.append(float(took) - float(collecting))
    return max(whole), max(own)


# Lists of many dead letters


def listings(server: ServerProcess, dead: int, rounds: int) -> None:
    """Bury jobs, then look at them in every way there is."""
    with httpx.Client(base_url=base(server), trust_env=False, timeout=60) as http:
        trio.run(fill, server.port, "dead", dead, http)
        overview = http.get(f"{API}/queues/dead").json()
        assert overview["depths"]["dead_lettered"] == dead, overview
        middle = http.get(f"{LIST}&order=newest&limit=100").json()["next_cursor"]
        found = http.get(f"{LIST}&limit=1").json()["jobs"][0]
        looks = {
            "page, newest": PAGE,
            "page, older": f"{PAGE}&cursor={quote(middle)}&from=101",
            "page, cause": f"{PAGE}&cause=admin",
            "page, died before": f"{PAGE}&before=1h",
            "page, type of none": f"{PAGE}&type=none",
            "page, reason of few": f"{PAGE}&reason=batch+7.",
            "page, reason of none": f"{PAGE}&reason=nothing+like+it",
            "page of a job": f"/admin/jobs/{found['id']}",
            "list of 100": f"{LIST}&limit=100",
            "list, reason of none": f"{LIST}&reason=nothing+like+it",
            "dead letter by id": f"{API}/dead-letters/{found['id']}",
            "dashboard": "/admin/",
            "overview": f"{API}/overview",
        }
        for what, url in looks.items():
            measure(server, what, rounds, lambda url=url: http.get(url, follow_redirects=True))
        scrape = base(server, "metrics endpoint listening addr=") + "/metrics"
        measure(server, "scrape", rounds, lambda: http.get(scrape))
        export = f"{API}/queues/dead/dead-letters:export"
        measure(server, "export of all", 1, lambda: http.get(export))


async def fill(port: int, queue: str, count: int, http: httpx.Client) -> None:
    """Enqueue jobs and bury them, a hundred a call."""
    async with connected(port) as client:
        for start in range(0, count, BATCH):
            ids = await enqueue(client, queue, min(BATCH, count - start))
            for place in range(0, len(ids), BURIED):
                keys = [key_of(job_id) for job_id in ids[place : place + BURIED]]
                reason = f"batch {start // BATCH}. connect to the hook of a customer timed out"
                body = {"state": "ready", "keys_b64": keys, "reason": reason}
                url = f"{API}/queues/{queue}/jobs:dead-letter"
                answer = http.post(url, json=body).json()  # noqa: ASYNC212  # nothing else waits
                assert answer["dead_lettered"] == len(keys), answer


async def enqueue(client: Client, queue: str, count: int) -> list[bytes]:
    """Enqueue alike jobs in one call and return their ids."""
    jobs = []
    for number in range(count):
        job = pb.EnqueueRequest(queue=queue, job_type="deliver_hook", max_attempts=3)
        job.payload.data = b'{"customer": %d, "event": "invoice.paid", "at": 1700000000}' % number
        job.payload.encoding = "json"
        jobs.append(job)
    request = pb.EnqueueBatchRequest(jobs=jobs)
    answer = await client.call("EnqueueBatch", request, pb.EnqueueBatchResponse())
    return [bytes.fromhex(one.success.job_id.replace("-", "")) for one in answer.results]


def measure(
    server: ServerProcess, what: str, rounds: int, ask: Callable[[], httpx.Response]
) -> None:
    """Ask several times and print what one costs."""
    ask()  # what is made once is no part of it
    since = time.monotonic()
    costs = []
    for _ in range(rounds):
        before = cpu_ms(server)
        answer = ask()
        costs.append(cpu_ms(server) - before)
        assert answer.status_code == 200, answer.text[:500]
    size_kb = len(answer.content) / 1000
    figures = (sum(costs) / len(costs), max(costs), *longest_ms(server, since), size_kb)
    print(what, *(f"{figure:.1f}" for figure in figures), sep="\t", flush=True)


# A dashboard of many queues


def pages_of_queues(server: ServerProcess, queues: int, rounds: int) -> None:
    """Open what shows many queues."""
    trio.run(fill_queues, server.port, [f"tenant-{number:04}" for number in range(queues)])
    with httpx.Client(base_url=base(server), trust_env=False, timeout=60) as http:
        looks = {
            "table": "/admin/?view=table",
            "table of 100": "/admin/?view=table&limit=100",
            "cards": "/admin/?view=cards",
            "overview": f"{API}/overview",
            "queues": f"{API}/queues",
        }
        for what, url in looks.items():
            measure(server, f"{queues} queues, {what}", rounds, lambda url=url: http.get(url))
        scrape = base(server, "metrics endpoint listening addr=") + "/metrics"
        measure(server, f"{queues} queues, scrape", rounds, lambda: http.get(scrape))
        measure(server, f"{queues} queues, samples", 1, lambda: pause(http))


def pause(http: httpx.Client) -> httpx.Response:
    """Let a few samples be taken."""
    time.sleep(3)
    return http.get("/admin/healthz")


def follow(server: ServerProcess, queues: int, seconds: float) -> None:
    """Let jobs come and go in every queue each second and a dashboard follow them."""
    names = [f"tenant-{number:04}" for number in range(queues)]
    trio.run(fill_queues, server.port, names)
    with httpx.Client(base_url=base(server), trust_env=False, timeout=60) as http:
        shown = "&".join(f"queues={name}" for name in names[:50])
        idle = cpu_share(server, seconds)
        with http.stream("GET", f"{API}/events?points=1&span_ms=1000&{shown}") as stream:
            assert next(stream.iter_lines()) == "event: hello"
            followed = cpu_share(server, seconds)
        print(f"{queues} queues, nobody looks\t{idle:.1%} of a core")
        print(f"{queues} queues, a dashboard follows 50\t{followed:.1%} of a core")
        with http.stream("GET", f"{API}/events?points=1&span_ms=1000") as stream:
            assert next(stream.iter_lines()) == "event: hello"
            followed = cpu_share(server, seconds)
        print(f"{queues} queues, a stream of all\t{followed:.1%} of a core")


async def fill_queues(port: int, names: list[str]) -> None:
    """Put some jobs into each queue."""
    async with connected(port) as client:
        for place, name in enumerate(names):
            await enqueue(client, name, 1 + place % 3)


def cpu_share(server: ServerProcess, seconds: float) -> float:
    """Return the share of one core the server uses for a while."""
    before, began = cpu_ms(server), time.monotonic()
    time.sleep(seconds)
    return (cpu_ms(server) - before) / 1000 / (time.monotonic() - began)


# A page of large jobs


def paint(server: ServerProcess) -> None:
    """Open a page of 25 jobs of 1 MiB in a browser and tell when something was painted."""
    trio.run(fill_large, server.port)
    url = "/admin/queues/large/jobs?state=ready"
    size = len(httpx.get(base(server) + url, trust_env=False).content)
    print(f"25 jobs of 1 MiB\t{size / 1000:.0f} KB", flush=True)
    driver = open_chromium()
    try:
        window = Window(driver, base(server))
        window.begin(None)
        times = []
        for _ in range(5):
            window.open(url)
            window.one("tbody .id a")
            script = "return performance.getEntriesByType('paint').at(-1).startTime"
            times.append(window.driver.execute_script(script))
    finally:
        driver.quit()
    print("first paint\t" + ", ".join(f"{one:.0f}" for one in times) + " ms", flush=True)


async def fill_large(port: int) -> None:
    """Enqueue the jobs, each in a call of its own."""
    async with connected(port) as client:
        for _ in range(25):
            await client.enqueue("large", MIB)


if __name__ == "__main__":
    main(sys.argv[1:])
