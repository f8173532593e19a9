"""Figures of a server under test: its own metrics, and what the kernel says of its process."""

import os
import re
from pathlib import Path
from typing import Any

import trio
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.server_process import ServerProcess

METRICS = {"metrics": {"prometheus_enabled": True, "prometheus_listen_addr": "127.0.0.1:0"}}
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

Figures = dict[str, float]


def settings(**sections: Any) -> dict[str, Any]:
    """Configuration of a server that can be scraped, and more."""
    return {**METRICS, **sections}


def metrics_port(server: ServerProcess) -> int:
    """Where the process now running serves its metrics."""
    found = re.findall(r"metrics endpoint listening addr=127\.0\.0\.1:(\d+)", server.output)
    return int(found[-1])


async def get(port: int, path: str = "/metrics") -> tuple[int, str]:
    """One GET over HTTP/1.1; status and body."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        await stream.send_all(head.encode())
        data = b"".join([part async for part in stream])
    head_bytes, _, body = data.partition(b"\r\n\r\n")
    return int(head_bytes.split()[1]), body.decode()


async def scrape(server: ServerProcess) -> Figures:
    """All samples: `name` or `name{value,value}`, label values in the order of their names."""
    status, body = await get(metrics_port(server))
    assert status == 200, body
    return {
        sample.name + ("{" + ",".join(v for _, v in sorted(sample.labels.items())) + "}")
        if sample.labels
        else sample.name: sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    """Resident size of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def descriptor_count(pid: int) -> int:
    """Open file descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
