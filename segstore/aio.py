"""Syncs on a thread of the kernel: Linux's asynchronous I/O, with an eventfd that tells the end.

A thread of ours that syncs needs the interpreter twice for each commit, and each time takes it away
from the loop; that was a third of what a commit cost. The kernel takes an fsync in `io_submit` and
runs it on a thread of its own, and the loop waits for the eventfd as for a socket.

Formats and numbers: io_submit(2), include/uapi/linux/aio_abi.h; fsync since Linux 4.18.
"""

import ctypes
import errno
import os
import platform
from struct import Struct
from typing import Final

import trio

# System calls io_setup, io_destroy, io_getevents, io_submit.
_NUMBERS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}

_FSYNC: Final = 2
_FDSYNC: Final = 3
_TELL_EVENTFD: Final = 1  # IOCB_FLAG_RESFD
# data, key, rw_flags, opcode, priority, descriptor, buffer, length, offset, 0, flags, eventfd
_IOCB: Final = Struct("<QIIHhiQQqQII")
_EVENT: Final = Struct("<QQqq")  # data, iocb, result, second result


class KernelQueue:
    """One fsync at a time.

    Raises:
        OSError: The system has no such thing, or does not let us.
    """

    def __init__(self) -> None:
        numbers = _NUMBERS.get(platform.machine())
        if numbers is None:
            raise OSError(errno.ENOSYS, f"not known for {platform.machine()}")
        # Called with the interpreter held: each of these returns at once.
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        setup, self._destroy, self._get, self._submit = map(ctypes.c_long, numbers)
        self._context = ctypes.c_ulong(0)
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        if self._call(setup, ctypes.c_long(1), ctypes.byref(self._context)):
            problem = ctypes.get_errno()
            os.close(self._eventfd)
            raise OSError(problem, f"io_setup: {os.strerror(problem)}")
        self._request = ctypes.create_string_buffer(_IOCB.size)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._event = ctypes.create_string_buffer(_EVENT.size)
        self._one = ctypes.c_long(1)
        self._is_under_way = False

    async def sync(self, descriptor: int, *, is_data_only: bool) -> bool:
        """Make durable what was written to an open file; False if the kernel did not take it.

        Call it shielded: what is under way must be waited for.

        Raises:
            OSError: The sync failed.
        """
        if self._is_under_way:  # Ctrl-C comes through a shield too; its end must not pass for ours
            await self._end()
        operation = _FDSYNC if is_data_only else _FSYNC
        _IOCB.pack_into(
            self._request, 0, 0, 0, 0, operation, 0, descriptor, 0, 0, 0, 0, _TELL_EVENTFD,
            self._eventfd,
        )  # fmt: skip
        self._is_under_way = self._call(self._submit, self._context, self._one, self._requests) == 1
        if not self._is_under_way:
            return False
        await self._end()
        return True

    async def _end(self) -> None:
        """Wait for the sync under way and hear how it ended."""
        await trio.lowlevel.wait_readable(self._eventfd)
        os.eventfd_read(self._eventfd)
        count = self._call(self._get, self._context, self._one, self._one, self._event, None)
        assert count == 1, ctypes.get_errno()
        self._is_under_way = False
        _, _, result, _ = _EVENT.unpack(self._event)
        if result:
            raise OSError(-result, os.strerror(-result))

    def close(self) -> None:
        """Give the queue back; nothing may be under way. Twice is harmless."""
        if self._eventfd >= 0:
            self._call(self._destroy, self._context)
            os.close(self._eventfd)
            self._eventfd = -1
