"""Traces of a real server, read from a collector: alone, and joined with the official client's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from sepp.rpc.grpc import RpcError
from tests.e2e.peer_process import Peer
from tests.e2e.rpc_client import Client, connected
from tests.e2e.server_process import ServerProcess
from tests.fakes.otlp_collector import Collector, SpanSeen, collecting

StartServer = Callable[..., ServerProcess]
PEER_SCRIPT = Path(__file__).parent / "peer" / "traced.py"
SERVER = 2  # kind of a span
SAMPLED = 1  # flag of a context


def start_traced(start_server: StartServer, collector: Collector, **more: Any) -> ServerProcess:
    tracing = {"enabled": True, "otlp_endpoint": collector.endpoint, "service_name": "jobs", **more}
    return start_server({"tracing": tracing})


async def stop(server: ServerProcess) -> None:
    """Stop it; what it has not sent yet is sent by then."""
    await trio.to_thread.run_sync(server.stop)


def named(spans: list[SpanSeen], name: str) -> SpanSeen:
    (found,) = [span for span in spans if span.name == name]
    return found


async def test_producer_enqueue_deliver_and_process_are_one_linked_trace(
    start_server: StartServer, peer: Peer
) -> None:
    async with collecting() as collector:
        server = start_traced(start_server, collector)
        printed = await trio.to_thread.run_sync(
            lambda: peer.run(str(PEER_SCRIPT), address=server.address)
        )
        await stop(server)
        theirs = {span["name"]: span for span in json.loads(printed.splitlines()[-1])}
        ours = collector.spans

    producer, sent, processed = (theirs[n] for n in ("producer", "sepp.enqueue", "sepp.process"))
    enqueue, deliver, ack = (named(ours, f"sepp.{n}") for n in ("enqueue", "deliver", "ack"))
    # The producer's trace goes down to our enqueue.
    assert sent["parent"] == producer["id"]
    assert (enqueue.trace, enqueue.parent) == (producer["trace"], sent["id"])
    # The job carries the context it was enqueued with; its delivery and its ack are linked to that.
    assert deliver.links == ack.links == [sent["id"]]
    # The worker gets the delivery's context, and its processing is linked to it.
    assert processed["links"] == [deliver.id]
    assert processed["kind"] == "CONSUMER"
    # A delivery is a child of the Reserve that asked for it, in the worker's trace.
    reserve = next(s for s in ours if s.name == "sepp.reserve" and s.attributes["job_count"])
    assert (deliver.parent, deliver.trace) == (reserve.id, reserve.trace)
    assert {span.kind for span in ours if span.name != "sepp.deliver"} == {SERVER}
    assert not any(span.is_error for span in ours)
    assert collector.resource["service.name"] == "jobs"


async def test_each_rpc_has_its_span_and_says_what_became_of_it(start_server: StartServer) -> None:
    async with collecting() as collector:
        server = start_traced(start_server, collector)
        async with connected(server.port) as client:
            job_id = await client.enqueue("mail")
            (job,) = await client.reserve("mail")
            extend = pb.ExtendRequest(job_id=job.id, attempt=1, worker_id="w")
            extend.lease_duration.FromSeconds(60)
            await client.call("Extend", extend, pb.ExtendResponse())
            await client.nack(job, reason="no", retry=pb.NackRetry(dead_letter={}))
            await client.call(
                "DrainDeadLetters", pb.DrainDeadLettersRequest(), pb.DrainDeadLettersResponse()
            )
            await client.call(
                "GetServerInfo", pb.GetServerInfoRequest(), pb.GetServerInfoResponse()
            )
            await refused(client)
        await stop(server)
        spans = collector.spans

    assert sorted(span.name for span in spans) == [
        "sepp.ack",
        "sepp.deliver",
        "sepp.drain_dead_letters",
        "sepp.enqueue",
        "sepp.extend",
        "sepp.get_server_info",
        "sepp.nack",
        "sepp.reserve",
    ]
    enqueue = named(spans, "sepp.enqueue")
    assert enqueue.attributes == {
        "batch_size": 1,
        "queues": ["mail"],
        "job_types": ["t"],
        "scheduled": 0,
        "accepted": 1,
        "rejected": 0,
        "deduplicated": 0,
        "job_ids": [job_id],
    }
    # Without a context of its own, a job carries that of its enqueue.
    deliver = named(spans, "sepp.deliver")
    assert deliver.links == [enqueue.id]
    *ids, flags = job.trace_context.traceparent.split("-")
    assert (ids, int(flags, 16) & SAMPLED) == (["00", deliver.trace, deliver.id], SAMPLED)
    assert deliver.attributes["job_type"] == "t"
    assert named(spans, "sepp.extend").attributes["worker_id"] == "w"
    nack = named(spans, "sepp.nack").attributes
    assert (nack["queue"], nack["retry"], nack["dead_lettered"]) == ("mail", "dead_letter", True)
    assert named(spans, "sepp.drain_dead_letters").attributes["drained"] == 1
    ack = named(spans, "sepp.ack")
    assert (ack.attributes["error"], ack.is_error) == ("not found", False)


async def refused(client: Client) -> None:
    with pytest.raises(RpcError) as fault:
        await client.ack(pb.Job(id="0" * 8 + "-0000-4000-8000-" + "0" * 12, attempt=1))
    assert fault.value.code is StatusCode.NOT_FOUND


async def test_what_a_sweep_moves_is_linked_to_its_job(start_server: StartServer) -> None:
    async with collecting() as collector:
        server = start_traced(start_server, collector)
        async with connected(server.port) as client:
            await client.enqueue("spent", max_attempts=1)
            await client.enqueue("again")
            for queue in ("spent", "again"):
                assert len(await client.reserve(queue, lease_s=0.01)) == 1
            assert len(await client.reserve("again", wait_s=20)) == 1
        await collector.until_span("sepp.dead_letter")
        await collector.until_span("sepp.redeliver")
        await stop(server)
        spans = collector.spans

    enqueued = {
        span.attributes["queues"][0]: span.id for span in spans if span.name == "sepp.enqueue"
    }
    dead, again = named(spans, "sepp.dead_letter"), named(spans, "sepp.redeliver")
    assert (dead.links, dead.attributes["cause"]) == ([enqueued["spent"]], "lease_expired")
    assert (again.links, again.attributes["reason"]) == ([enqueued["again"]], "lease_expired")


async def test_nothing_begun_here_is_kept_at_ratio_0_and_the_job_still_carries_a_context(
    start_server: StartServer,
) -> None:
    async with collecting() as collector:
        server = start_traced(start_server, collector, sample_ratio=0.0)
        async with connected(server.port) as client:
            await client.enqueue()
            (job,) = await client.reserve()
        await stop(server)

    assert collector.spans == []
    assert int(job.trace_context.traceparent[-2:], 16) & SAMPLED == 0


async def test_off_a_job_without_a_context_stays_without_one(server: ServerProcess) -> None:
    async with connected(server.port) as client:
        await client.enqueue()
        (job,) = await client.reserve()

    assert not job.HasField("trace_context")


async def test_metrics_reach_the_collector_by_push(start_server: StartServer) -> None:
    async with collecting() as collector:
        server = start_server(
            {
                "metrics": {
                    "enabled": True,
                    "otlp_endpoint": collector.endpoint,
                    "export_interval_ms": 60_000,
                }
            }
        )
        async with connected(server.port) as client:
            await client.enqueue("mail")
        await stop(server)  # the last figures leave by then

    assert collector.metrics["sepp.jobs.enqueued"] == {("mail",): 1}
    assert collector.metrics["sepp.requests"][("enqueue_batch", "ok")] == 1
    assert collector.metrics["sepp.request.duration"][("enqueue_batch",)] == 1
    assert collector.resource["service.name"] == "sepp"


async def test_a_collector_that_is_not_there_costs_nothing_but_spans(
    start_server: StartServer,
) -> None:
    async with collecting() as collector:
        gone = collector.endpoint
    server = start_server({"tracing": {"enabled": True, "otlp_endpoint": gone}})
    async with connected(server.port) as client:
        await client.enqueue()

    await stop(server)

    assert "queue server stopped" in server.output
