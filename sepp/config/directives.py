"""Log filters: `info` or `info,sepp.rpc=debug`, as in logging.level and in RUST_LOG.

Targets are module names; the older spelling with `::` is read as `.`. A target covers the modules
under it, the longest one that fits decides, and of two equal ones the last. Targets that name
nothing here (`lsm_tree`, `fjall`) are accepted, so existing files load.
"""

import re
from collections.abc import Mapping
from typing import Final

from attrs import frozen

LEVELS: Final = ("trace", "debug", "info", "warn", "error", "off")
_TARGET: Final = re.compile(r"[A-Za-z0-9_.\-]+")


class DirectiveError(ValueError):
    """The operator's filter cannot be read; the text names the part and what is allowed."""


@frozen
class Filter:
    """Which level each target logs from; targets that fall under none log from `default`."""

    default: str
    targets: Mapping[str, str]

    def level(self, target: str) -> str:
        """Return the lowest level that `target` logs."""
        while target:
            level = self.targets.get(target)
            if level is not None:
                return level
            target = target.rpartition(".")[0]
        return self.default


def parse_filter(text: str) -> Filter:
    """Read a level or a comma list of `target=level`; raise DirectiveError.

    Without a bare level, targets that are not named log errors only.
    """
    default = "error"
    targets: dict[str, str] = {}
    parts = [part.strip() for part in text.split(",")]
    parts = [part for part in parts if part]
    if not parts:
        raise DirectiveError("is empty; give a level such as info")
    for part in parts:
        target, equals, level = part.rpartition("=")
        level = level.strip().lower()
        if level not in LEVELS:
            raise DirectiveError(
                f"directive {part!r} has no known level; use one of {', '.join(LEVELS)}, "
                "alone or as target=level"
            )
        target = target.strip().replace("::", ".")
        if not equals:
            default = level
        elif _TARGET.fullmatch(target):
            targets[target] = level
        else:
            raise DirectiveError(f"directive {part!r} has no readable target; use target=level")
    return Filter(default, targets)
