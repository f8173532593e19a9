"""`sepp-trio store …`: look into the directory of a store, back it up, rescue it.

All of these work on directories and ask no server. What a directory is damaged by goes to stdout
line by line, with file and offset, and is exit code 3.
"""

import os
import re
from typing import Annotated, Final

import trio
from cyclopts import App, Parameter

from segstore import (
    Backup,
    Options,
    RealVFS,
    Report,
    Salvaged,
    Wanted,
)
from segstore import backup as back_up
from segstore import dump as dump_records
from segstore import salvage as rescue
from segstore import verify as check
from sepp import exits
from sepp.cli.options import AsJson, UsageError, whole
from sepp.cli.output import print_json
from sepp.cli.store_show import (
    print_stats,
    record_of,
    report_lines,
    report_of,
    salvage_lines,
    salvage_of,
    summary_of,
)
from sepp.cli.store_tools import progress_bar, told
from sepp.clock import wall_ms
from sepp.wire import id_bytes

store = App(
    name="store",
    help="Check, show, back up, restore or rescue the directory of a store. Exit codes: 0 done and "
    "sound, 1 could not, 2 usage, 3 damage was found.",
)

_U64_MAX: Final = 2**64 - 1
_LSN: Final = re.compile(r"[0-9]{1,20}", re.ASCII)

Directory = Annotated[str, Parameter(help="The data directory, server.db_path.")]
Target = Annotated[str, Parameter(help="A new or empty directory.")]


@store.command
def verify(directory: Directory, /, *, json: AsJson = False) -> int:
    """Read all of a directory and name all damage: frames, their order, bodies, index.

    No server may have it open; a backup can always be verified. Exit code 3: there is damage.

    Example: `sepp-trio store verify /var/lib/sepp/data`
    """
    with told(), progress_bar("verifying") as on_progress:
        report = check(_path(directory), vfs=RealVFS(), on_progress=on_progress)
    return _tell(report, is_json=json)


@store.command
def dump(
    directory: Directory,
    /,
    *,
    segment: Annotated[
        int | None, whole("Only this segment, by its number.", most=_U64_MAX)
    ] = None,
    lsn: Annotated[str | None, Parameter(help="Only this LSN, or FIRST..LAST.")] = None,
    id: Annotated[str | None, Parameter(help="Only this job.")] = None,
    payloads: Annotated[bool, Parameter(negative="", help="Show payloads too, in base64.")] = False,
) -> int:
    """Print the records of a directory as JSON lines, oldest segment first, also past damage.

    No server may have it open. What cannot be read is a line with `damage` in it.

    Example: `sepp-trio store dump /backup/sepp --id 0b9c7e6e-3c1a-4c58-9d2f-7a34c2f10000`
    """
    first, last = _range(lsn)
    key = None
    if id is not None and (key := id_bytes(id)) is None:
        raise UsageError(f"--id {id!r} is no job id; one is 36 characters, 0b9c7e6e-3c1a-…")
    wanted = Wanted(segment, first, last, key)
    with told():
        for found in dump_records(_path(directory), vfs=RealVFS(), wanted=wanted):
            print_json(record_of(found, has_payloads=payloads))
    return exits.OK


@store.command
def stats(directory: Directory, /, *, json: AsJson = False) -> int:
    """Show what a directory holds: jobs by state, segments, and how much of them still counts.

    No server may have it open; a running one tells the same in its metrics.

    Example: `sepp-trio store stats /backup/sepp`
    """
    with told(), progress_bar("reading") as on_progress:
        summary = summary_of(_path(directory), on_progress)
    if json:
        print_json(summary)
    else:
        print_stats(summary)
    return exits.OK


@store.command
def backup(
    directory: Directory,
    target: Target,
    /,
    *,
    copy: Annotated[
        bool,
        Parameter(negative="", help="Copy segments also where they could be linked."),
    ] = False,
    json: AsJson = False,
) -> int:
    """Back up a directory, also while a server works on it, and verify the backup.

    On the same file system old segments are linked, which takes no time and no space; copy the
    backup to another disk then. All that was answered before the start is in it.

    Example: `sepp-trio store backup /var/lib/sepp/data /backup/sepp-monday`
    """
    return _copy(directory, target, "backing up", is_linking=not copy, is_json=json)


@store.command
def restore(
    source: Annotated[str, Parameter(help="The backup.")],
    target: Target,
    /,
    *,
    json: AsJson = False,
) -> int:
    """Verify a backup, copy it to a new directory and verify that; a server can open it then.

    The backup stays as it is. A damaged one is refused (exit code 3) unless only single payloads
    are damaged.

    Example: `sepp-trio store restore /backup/sepp-monday /var/lib/sepp/data`
    """
    with told(), progress_bar("verifying") as on_progress:
        report = check(_path(source), vfs=RealVFS(), on_progress=on_progress)
    if report.breaks:
        _tell(report, is_json=json)
        raise exits.DamageFound(
            f"{source} is damaged and was not restored; what is provable in it can be had with: "
            f"sepp-trio store salvage {source} {target}"
        )
    return _copy(source, target, "restoring", is_linking=False, is_json=json)


@store.command
def salvage(directory: Directory, target: Target, /, *, json: AsJson = False) -> int:
    """Write what is provable in a damaged directory to a new one, and list what is lost.

    The damaged one is only read. Exit code 3: something was lost; see the list, which is also in
    quarantine/salvage.json of the new directory.

    Example: `sepp-trio store salvage /var/lib/sepp/data /var/lib/sepp/rescued`
    """
    with told(), progress_bar("salvaging") as on_progress:

        async def run() -> Salvaged:
            return await rescue(
                _path(directory),
                _path(target),
                vfs=RealVFS(),
                clock_ms=wall_ms,
                options=Options(prealloc="none"),
                on_progress=on_progress,
            )

        found = trio.run(run)
    if json:
        print_json(salvage_of(found, target))
    else:
        for line in salvage_lines(found, target):
            print(line)
    return exits.OK if found.is_whole else exits.DAMAGED


def _copy(source: str, target: str, doing: str, *, is_linking: bool, is_json: bool) -> int:
    """Copy a store and verify the copy; return the exit code."""
    vfs = RealVFS()
    with told(), progress_bar(doing) as on_progress:
        made = back_up(
            _path(source),
            _path(target),
            vfs=vfs,
            now_ms=wall_ms(),
            on_progress=on_progress,
            is_linking=is_linking,
        )
    with told(), progress_bar("verifying") as on_progress:
        report = check(_path(target), vfs=vfs, on_progress=on_progress)
    if not is_json:
        print(
            f"{target}: {len(made.manifest.segments)} segments, {made.linked_bytes} bytes linked, "
            f"{made.copied_bytes} copied, up to LSN {made.manifest.last_lsn}"
        )
    return _tell(report, is_json=is_json, made=made)


def _tell(report: Report, *, is_json: bool, made: Backup | None = None) -> int:
    if is_json:
        print_json(report_of(report, made))
    else:
        for line in report_lines(report):
            print(line)
    return exits.DAMAGED if report.damage_count else exits.OK


def _path(text: str) -> str:
    """Return the path with links resolved: two names of one place must not pass for two places.

    Raises:
        UsageError: It is empty.
    """
    if not text:
        raise UsageError("the name of a directory is empty")
    return os.path.realpath(text)


def _range(text: str | None) -> tuple[int | None, int | None]:
    """Return the ends of FIRST..LAST, either of which may be left out.

    Raises:
        UsageError: It is no range.
    """
    if text is None:
        return None, None
    first, dots, last = text.partition("..")
    last = last if dots else first
    if all(not end or _LSN.fullmatch(end) for end in (first, last)):
        low, high = int(first or 1), int(last or _U64_MAX)
        if 1 <= low <= high <= _U64_MAX:
            return low if first else None, high if last else None
    raise UsageError(f"--lsn {text!r} is no LSN; say 1200, 1200..1300 or ..1300")
