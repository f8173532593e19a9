"""The endpoint: one path, bounded scrapes, and nobody waits for a slow one."""

from typing import Any

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

from sepp.metrics.endpoint import SCRAPES_MAX, Endpoint
from tests.metrics.stand import standing
from tests.spine.desk import enqueue


class Answer:
    """What one request was answered; `gate` holds the client's reading up."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.gate = trio.Event()
        self.gate.set()

    async def send(self, event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            self.status, self.headers = event["status"], dict(event["headers"])
        else:
            await self.gate.wait()
            self.body += event["body"]

    async def ask(
        self, endpoint: Endpoint, path: str = "/metrics", method: str = "GET"
    ) -> "Answer":
        await endpoint({"type": "http", "path": path, "method": method}, None, self.send)
        return self


async def test_the_page_parses_and_says_who_we_are() -> None:
    async with standing() as (desk, sources):
        desk.submit(enqueue(1, "mail"))
        endpoint = Endpoint(sources, service_name='se"pp', queues_max=10)

        answer = await Answer().ask(endpoint)

    families = {f.name: f for f in text_string_to_metric_families(answer.body.decode())}
    assert answer.status == 200
    assert answer.headers[b"content-type"] == b"text/plain; version=0.0.4; charset=utf-8"
    assert int(answer.headers[b"content-length"]) == len(answer.body)
    assert families["target_info"].samples[0].labels["service_name"] == 'se"pp'
    assert families["sepp_jobs_enqueued"].samples[0].value == 1
    assert {"process_resident_memory_bytes", "process_open_fds", "python_info"} <= families.keys()
    names = [line for line in answer.body.splitlines() if line.startswith(b"# TYPE")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("path", "method", "status", "body"),
    [
        ("/", "GET", 404, b"try /metrics\n"),
        ("/metrics/", "GET", 404, b"try /metrics\n"),
        ("/metrics", "POST", 405, b"GET it\n"),
        ("/metrics", "HEAD", 200, b""),
    ],
)
async def test_anything_else_is_told_where_to_go(
    path: str, method: str, status: int, body: bytes
) -> None:
    async with standing() as (_, sources):
        endpoint = Endpoint(sources, service_name="sepp", queues_max=10)

        answer = await Answer().ask(endpoint, path, method)

    assert (answer.status, answer.body) == (status, body)


async def test_slow_scrapers_hold_nobody_up_and_are_bounded() -> None:
    async with standing() as (_, sources), trio.open_nursery() as nursery:
        endpoint = Endpoint(sources, service_name="sepp", queues_max=10)
        slow = [Answer() for _ in range(SCRAPES_MAX - 1)]
        for each in slow:
            each.gate = trio.Event()
            nursery.start_soon(each.ask, endpoint)
        await trio.testing.wait_all_tasks_blocked()

        assert (await Answer().ask(endpoint)).status == 200

        last = Answer()
        last.gate = trio.Event()
        nursery.start_soon(last.ask, endpoint)
        await trio.testing.wait_all_tasks_blocked()
        assert (await Answer().ask(endpoint)).status == 503

        for each in (*slow, last):
            each.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (await Answer().ask(endpoint)).status == 200
        assert {each.status for each in slow} == {200}
