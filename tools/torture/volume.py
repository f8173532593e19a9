"""A file system of our own in a file: to cut its power, and to take snapshots of it. Needs root."""

import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

IMAGE_BYTES = 192 << 20
# From linux/fs.h and the ext4 and xfs headers; the same numbers on every architecture we run on.
SHUTDOWN = 0x8004587D
FREEZE = 0xC0045877
THAW = 0xC0045878
WITH_JOURNAL = 1  # what the journal has is flushed, data that was not synced is not
WITH_NOTHING = 2  # nothing at all is flushed
UNMOUNT_S_MAX = 30.0


class Volume:
    """An ext4 image mounted from a file.

    Args:
        image: The file; made if it is not there.
        mount_point: Where to mount it; made too.
    """

    def __init__(self, image: Path, mount_point: Path) -> None:
        self.image = image
        self.mount_point = mount_point
        self.is_mounted = False
        mount_point.mkdir(exist_ok=True)
        if not image.exists():
            with image.open("wb") as file:
                file.truncate(IMAGE_BYTES)
            run("mkfs.ext4", "-qF", str(image))

    def mount(self) -> None:
        """Mount it; what a cut left half done is replayed from the journal."""
        run("mount", "-o", "loop", str(self.image), str(self.mount_point))
        self.is_mounted = True

    def unmount(self) -> None:
        """Unmount it, once the last process that has a file open there is really gone."""
        deadline = time.monotonic() + UNMOUNT_S_MAX
        while self.is_mounted:
            try:
                run("umount", str(self.mount_point))
                self.is_mounted = False
            except VolumeFailed:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def cut_power(self, how: int) -> None:
        """Stop all writes to the disk from now on, whatever the page cache holds."""
        self._control(SHUTDOWN, struct.pack("I", how))

    def copy_frozen(self, target: Path) -> None:
        """Copy the image while nothing in it moves: what a snapshot of a volume is."""
        self._control(FREEZE, struct.pack("i", 0))
        try:
            run("cp", "--sparse=always", str(self.image), str(target))
        finally:
            self._control(THAW, struct.pack("i", 0))

    def _control(self, command: int, argument: bytes) -> None:
        descriptor = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, command, argument)
        finally:
            os.close(descriptor)


class VolumeFailed(Exception):
    """A command failed; the message is what it said."""


def run(*command: str) -> None:
    """Run a command of the system.

    Raises:
        VolumeFailed: It failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise VolumeFailed(f"{' '.join(command)}: {done.stderr.strip()}")


def why_no_volumes(directory: Path) -> str | None:
    """Say why volumes cannot be had here; None: they can."""
    if os.geteuid() != 0:
        return "it mounts a volume, which needs root"
    for command in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(command) is None:
            return f"{command} is missing"
    volume = None
    try:
        volume = Volume(directory / "probe.img", directory / "probe")
        volume.mount()
        volume.cut_power(WITH_NOTHING)
    except (VolumeFailed, OSError) as problem:
        return f"no loop-mounted ext4 that can be cut off: {problem}"
    finally:
        if volume is not None:
            volume.unmount()
            volume.image.unlink()
            volume.mount_point.rmdir()
    return None
