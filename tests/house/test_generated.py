"""What stands in `sepp/_generated` is what `proto/` says, and is called plainly."""

import inspect
import subprocess
import sys
from pathlib import Path

from sepp._generated import health_pb2, health_purerpc, queue_pb2, queue_purerpc

ROOT = Path(__file__).resolve().parents[2]


def test_generated_code_is_fresh() -> None:
    check = subprocess.run(
        [sys.executable, "tools/gen_proto", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_servicers_are_plain_methods_of_one_call() -> None:
    for servicer in (queue_purerpc.QueueServiceServicer(), health_purerpc.HealthServicer()):
        for name in servicer.service.methods:
            method = getattr(servicer, name)
            assert not inspect.iscoroutinefunction(method)
            assert list(inspect.signature(method).parameters) == ["call"]


def test_services_carry_the_names_of_the_wire() -> None:
    assert set(queue_purerpc.QueueServiceServicer().service.methods) == {
        "EnqueueBatch",
        "EnqueueAtomic",
        "Reserve",
        "Ack",
        "Nack",
        "Extend",
        "DrainDeadLetters",
        "GetServerInfo",
    }
    assert queue_pb2.DESCRIPTOR.services_by_name["QueueService"].full_name == (
        "sepp.v1.QueueService"
    )
    assert health_pb2.DESCRIPTOR.services_by_name["Health"].full_name == "grpc.health.v1.Health"
