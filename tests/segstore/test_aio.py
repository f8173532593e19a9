"""Syncs on a thread of the kernel: what they do, and what happens where there is no such thing."""

import errno
import os
import platform
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segstore import aio
from segstore.aio import KernelQueue
from segstore.options import Persist
from segstore.vfs import KernelSyncer, RealFile, RealVFS
from tests.segstore.worlds import SMALL, add, contents, real_world


@pytest.fixture
def queue() -> Iterator[KernelQueue]:
    made = KernelQueue()
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RealFile]:
    made = RealVFS().open(str(tmp_path / "file"), is_new=True)
    made.pwritev([b"x" * 5000], 0)
    yield made
    made.close()


@pytest.mark.parametrize("is_data_only", [False, True])
async def test_a_sync_is_taken_and_its_end_is_told(
    queue: KernelQueue, file: RealFile, is_data_only: bool
) -> None:
    for _again in range(3):
        assert await queue.sync(file.descriptor, is_data_only=is_data_only)


async def test_a_commit_that_is_cancelled_ends_its_sync(tmp_path: Path) -> None:
    world = real_world(str(tmp_path / "store"))
    store = await world.writer(run_in_worker=None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(add, store, [1])
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()

    await add(store, [2])

    await store.close()
    again = await world.open()
    assert set(await contents(again)) == {(1, 1), (1, 2)}
    await again.close()


async def test_the_loop_goes_on_while_the_kernel_syncs(queue: KernelQueue, file: RealFile) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await queue.sync(file.descriptor, is_data_only=False)
        nursery.cancel_scope.cancel()
    assert turns > 0


@pytest.fixture
def ends(queue: KernelQueue, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return what the next ends say in place of the truth, as the kernel does; taken from here."""
    real = queue._call
    results: list[int] = []

    def call(number: object, *arguments: object) -> int:
        done: int = real(number, *arguments)
        if number is queue._get:
            aio._EVENT.pack_into(queue._event, 0, 0, 0, results.pop(0), 0)
        return done

    monkeypatch.setattr(queue, "_call", call)
    return results


async def test_a_sync_that_failed_is_told(
    queue: KernelQueue, file: RealFile, ends: list[int]
) -> None:
    ends.append(-errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as caught:
        await queue.sync(file.descriptor, is_data_only=False)
    assert caught.value.errno == errno.EIO


async def leave(queue: KernelQueue, file: RealFile) -> None:
    """Begin a sync and do not wait for its end: as Ctrl-C does, which comes through a shield."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await queue.sync(file.descriptor, is_data_only=False)
    assert scope.cancelled_caught


async def test_the_end_of_a_sync_that_was_left_is_not_taken_for_that_of_the_next(
    queue: KernelQueue, file: RealFile, ends: list[int]
) -> None:
    await leave(queue, file)
    ends.extend([0, -errno.EIO])

    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        await queue.sync(file.descriptor, is_data_only=False)


async def test_the_failure_of_a_sync_that_was_left_is_told_to_the_next(
    queue: KernelQueue, file: RealFile, ends: list[int]
) -> None:
    await leave(queue, file)
    ends.extend([-errno.EIO, 0])

    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        await queue.sync(file.descriptor, is_data_only=False)


async def test_what_the_kernel_does_not_take_is_told(queue: KernelQueue) -> None:
    reading, writing = os.pipe()
    assert not await queue.sync(writing, is_data_only=False)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(("persist", "name"), [("sync_all", "fsync"), ("sync_data", "fdatasync")])
async def test_what_the_kernel_does_not_take_a_worker_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, persist: Persist, name: str
) -> None:
    world = real_world(str(tmp_path / "store"), options=replace(SMALL, persist=persist))
    store = await world.writer(run_in_worker=None)
    syncer = store._flusher.syncer
    assert isinstance(syncer, KernelSyncer)
    monkeypatch.setattr(syncer._queue, "_call", lambda *_: -1)
    real = getattr(os, name)
    synced: list[threading.Thread] = []

    def sync(descriptor: int) -> None:
        synced.append(threading.current_thread())
        real(descriptor)

    monkeypatch.setattr(os, name, sync)
    before = store.stats().sync_count

    await add(store, [1])

    assert store.stats().sync_count == before + 1
    assert len(synced) == 1
    assert synced[0] is not threading.main_thread()
    monkeypatch.undo()
    await store.close()


async def test_closing_a_store_that_failed_waits_for_a_sync_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a sync is told through a descriptor: once it is closed nobody hears of it."""
    world = real_world(str(tmp_path / "store"))
    store = await world.writer(run_in_worker=None)
    syncer = store._flusher.syncer
    assert isinstance(syncer, KernelSyncer)
    real, is_ended = trio.lowlevel.wait_readable, trio.Event()

    async def wait_long(descriptor: int) -> None:
        await is_ended.wait()
        await real(descriptor)

    monkeypatch.setattr(trio.lowlevel, "wait_readable", wait_long)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(add, store, [1])
        await wait_all_tasks_blocked()
        store._writer.fail(OSError(errno.ESTALE, "gone"), "elsewhere")
        nursery.start_soon(store.close)
        await wait_all_tasks_blocked()
        is_open = syncer._queue._eventfd >= 0
        is_ended.set()
    assert is_open
    assert syncer._queue._eventfd == -1


def test_a_queue_that_cannot_be_made_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = held()
    with monkeypatch.context() as patched:
        patched.setattr(os, "eventfd", refuse)
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            KernelQueue()
    assert held() == before
    with monkeypatch.context() as patched:
        patched.setitem(aio._NUMBERS, platform.machine(), (-1, -1, -1, -1))
        with pytest.raises(OSError, match="io_setup"):
            KernelQueue()
    assert held() == before


def held() -> tuple[int, int]:
    """Return how many descriptors and queues of the kernel this process holds."""
    queues = sum("[aio]" in line for line in Path("/proc/self/maps").read_text().splitlines())
    return len(os.listdir("/proc/self/fd")), queues


def test_a_queue_is_given_back_once() -> None:
    descriptors, queues = held()
    queue = KernelQueue()
    assert held() == (descriptors + 1, queues + 1)
    queue.close()
    queue.close()
    assert held() == (descriptors, queues)


@pytest.mark.parametrize("machine", [platform.machine(), "pdp11"])
@pytest.mark.parametrize("persist", ["sync_all", "sync_data", "buffer"])
async def test_a_store_commits_with_and_without_such_a_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, persist: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    world = real_world(str(tmp_path / "store"), options=replace(SMALL, persist=persist))
    store = await world.writer(run_in_worker=None)
    assert (store._flusher.syncer is None) == (machine == "pdp11")
    before = store.stats().sync_count

    for number in range(3):
        await add(store, [number])

    assert store.stats().sync_count - before == (0 if persist == "buffer" else 3)
    await store.close()
    again = await world.open()
    assert set(await contents(again)) == {(1, number) for number in range(3)}
    await again.close()
