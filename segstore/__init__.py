"""A crash-safe append-only segment store for small entries.

An entry has a 16-byte key in a numbered table, a head of fixed fields that may be rewritten at
will, and a body that is written once. Batches are atomic. `Store` is the way in; README.md shows it
used, FORMAT.md is what it leaves on the disk.
"""

from segstore.backup import Backup, backup
from segstore.built import Batch
from segstore.dump import Dumped, DumpedLocal, Wanted, dump
from segstore.errors import (
    BodyDamaged,
    FormatRefused,
    MarkerDamaged,
    NoRoom,
    NoStore,
    NotAFile,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreLocked,
    TargetRefused,
)
from segstore.manifest import Manifest
from segstore.options import Options, Position, Room, StoreStatistics
from segstore.salvage import Salvaged, salvage
from segstore.slots import ABSENT, UNKNOWN, Slots
from segstore.store import Store
from segstore.summary import Summary, summarize
from segstore.verify import DamagedBody, Report, verify
from segstore.vfs import VFS, File, RealVFS
from segstore.walk import Break
from segstore.workers import Lane, RunInWorker, TrioWorkers, run_inline

__all__ = [
    "Store",
    "Batch",
    "Slots",
    "Options",
    "Position",
    "Room",
    "StoreStatistics",
    "ABSENT",
    "UNKNOWN",
    "StoreError",
    "StoreLocked",
    "StoreFailed",
    "StoreDamaged",
    "FormatRefused",
    "BodyDamaged",
    "MarkerDamaged",
    "NoStore",
    "NoRoom",
    "NotAFile",
    "TargetRefused",
    "verify",
    "Report",
    "Break",
    "DamagedBody",
    "dump",
    "Wanted",
    "Dumped",
    "DumpedLocal",
    "summarize",
    "Summary",
    "backup",
    "Backup",
    "Manifest",
    "salvage",
    "Salvaged",
    "VFS",
    "File",
    "RealVFS",
    "Lane",
    "RunInWorker",
    "TrioWorkers",
    "run_inline",
]
