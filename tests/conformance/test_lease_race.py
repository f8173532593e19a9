"""Ack in the very tick in which the lease ends: each job ends in exactly one state."""

import random
import time

import pytest
import trio
from purerpc import StatusCode
from trio.testing import MockClock

from sepp._generated import queue_pb2 as pb
from sepp.rpc.channel import RpcError
from tests.conformance.client import Client, SocketClient, in_ms, job, span
from tests.conformance.local import LocalClient, local

ROUND = 50
LEASE_MS = 40
# What an ack in that tick may be told: the sweep was first, or the next holder was.
LATE = (StatusCode.NOT_FOUND, StatusCode.FAILED_PRECONDITION)


class Ledger:
    """What became of each job: acked under attempt 1, or delivered again. Never both or neither."""

    def __init__(self) -> None:
        self.acked: set[str] = set()
        self.again: set[str] = set()

    async def ack_first(self, rpc: Client, held: pb.Job) -> None:
        """Ack attempt 1, in time or not."""
        try:
            await rpc.ack(held)
        except RpcError as error:
            if error.code not in LATE:
                raise
        else:
            self.acked.add(held.id)

    async def finish_second(self, rpc: Client, held: pb.Job) -> None:
        """Ack attempt 2, which nobody races for."""
        assert held.attempt == 2
        assert held.id not in self.again
        self.again.add(held.id)
        await rpc.ack(held)


async def race(rpc: SocketClient, queue: str, dice: random.Random) -> Ledger:
    """One round: leases end while their acks arrive."""
    ledger = Ledger()
    results = await rpc.batch(*[job(queue)] * ROUND)
    ids = {result.success.job_id for result in results}

    async def ack_at_the_end(held: pb.Job) -> None:
        left_s = in_ms(held.lease_expires_at) / 1000 - time.time()
        await trio.sleep(max(0.0, left_s + dice.uniform(-0.003, 0.001)))
        await ledger.ack_first(rpc, held)

    async with trio.open_nursery() as nursery:
        for held in await rpc.reserve(queue, max_jobs=ROUND, lease_ms=LEASE_MS + dice.random() * 5):
            assert held.attempt == 1
            nursery.start_soon(ack_at_the_end, held)
    while ids - ledger.acked - ledger.again:
        found = await rpc.reserve(queue, max_jobs=ROUND, wait_ms=5_000)
        assert found, "a job is in no state at all"
        for held in found:
            await ledger.finish_second(rpc, held)
    assert ledger.acked | ledger.again == ids
    assert ledger.acked & ledger.again == set()
    assert await rpc.reserve(queue, max_jobs=ROUND) == []
    assert await rpc.drain(queue) == []
    return ledger


@pytest.mark.parametrize(
    "rounds", [10, pytest.param(200, marks=pytest.mark.long)], ids=["500 jobs", "10,000 jobs"]
)
async def test_an_ack_in_the_tick_of_expiry_counts_or_the_job_comes_back(
    rpc: SocketClient, queue: str, rounds: int
) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    acked = again = 0
    for _ in range(rounds):
        ledger = await race(rpc, queue, dice)
        acked += len(ledger.acked)
        again += len(ledger.again)
    print(f"{acked} acked in time, {again} delivered again")
    assert acked + again == rounds * ROUND
    assert again > 0, "no lease ended: nothing was raced for"


@pytest.mark.parametrize("early_ms", [-1, 0, 2])
async def test_an_ack_and_the_sweep_in_one_millisecond(
    autojump_clock: MockClock, early_ms: int
) -> None:
    """The same on clocks that stand still: whoever is applied first wins, the other is told."""
    async with local() as rpc:
        outcomes = []
        for _ in range(50):
            await rpc.enqueue("q")
            held = await rpc.take("q", lease_ms=1_000)
            await trio.sleep((1_000 - early_ms) / 1000)
            outcomes.append(await told(rpc, held))
            if outcomes[-1] is not StatusCode.OK:
                (again,) = await rpc.reserve("q", wait_ms=5_000)
                assert (again.id, again.attempt) == (held.id, 2)
                await rpc.ack(again)
            assert await rpc.reserve("q") == []
        assert set(outcomes) <= {StatusCode.OK, StatusCode.NOT_FOUND}
        if early_ms > 0:
            assert set(outcomes) == {StatusCode.OK}
        assert rpc.machine.statistics().leased == 0


async def told(rpc: LocalClient, held: pb.Job) -> StatusCode:
    """Ack and extend a lease in one group with what the clock makes due."""
    extend = pb.ExtendRequest(job_id=held.id, attempt=1, lease_duration=span(500))
    calls = [
        (rpc.start("Extend", extend), pb.ExtendResponse),
        (rpc.start("Ack", pb.AckRequest(job_id=held.id, attempt=1)), pb.AckResponse),
    ]
    codes = []
    for call, kind in calls:
        try:
            await call.result(kind)
        except RpcError as error:
            codes.append(error.code)
        else:
            codes.append(StatusCode.OK)
    assert len(set(codes)) == 1, "both were applied before the sweep or both after it"
    return codes[0]
