"""The rows of the one table of configuration keys.

Each key is declared once, as an annotated field of a section (`sections.py`, `limits.py`): its
type and default are the field's, its bounds, mark and explanation stand in the `Spec` of the
annotation. Loading, validation, the reload report, the example file, the reference in
OPERATING.md and the admin pages read the rows made from that here; none of them repeats a bound
or a default.
"""

import types
import typing
from typing import Final, Literal, Union

import msgspec
from attrs import frozen

Mark = Literal["R", "H"]
RESTART: Final = "R"  # takes effect at the next start
HOT: Final = "H"  # takes effect on a reload

U32_MAX: Final = 2**32 - 1
I64_MAX: Final = 2**63 - 1  # the largest integer TOML promises to carry

Kind = Literal["bool", "int", "float", "text", "choice", "address", "texts", "tables"]


@frozen
class Spec:
    """What a field's type and default do not say.

    Args:
        mark: RESTART or HOT.
        text: One sentence for operators: what the key does, in the unit of its name.
        ge: The smallest value allowed, or None.
        le: The largest value allowed, or None.
        is_address: A literal IP address with a port, IPv6 in brackets.
        may_be_empty: For texts: the empty string is a value like any other.
        example: A value to show, in TOML, where there is no default to show.
        note: "inert": accepted so that files of the original load, and does nothing here.
    """

    mark: Mark
    text: str
    ge: int | float | None = None
    le: int | float | None = None
    is_address: bool = False
    may_be_empty: bool = False
    example: str = ""
    note: Literal["", "inert"] = ""


@frozen
class Key:
    """One row: a configuration key with everything known about it."""

    section: str
    name: str
    kind: Kind
    default: object
    is_optional: bool  # unset is a value of its own
    choices: tuple[str, ...]
    entry: type[msgspec.Struct] | None  # of a list of tables
    spec: Spec

    @property
    def path(self) -> str:
        """The dotted path; `queues[].name` for a field of a queue's entry."""
        return f"{self.section}.{self.name}"

    @property
    def unit(self) -> str:
        """The unit of the value in words, or ""; by rule the name holds it."""
        if self.name.endswith("_ms"):
            return "ms"
        return "bytes" if "_bytes" in self.name else ""

    @property
    def variable(self) -> str:
        """The environment variable that sets it; "" for a field of a queue's entry."""
        if self.section.endswith("[]"):
            return ""
        return f"SEPP_{self.section}__{self.name}".upper()

    @property
    def bounds(self) -> str:
        """The bounds in words: `1…9`, `1…`, or ""."""
        low, high = self.spec.ge, self.spec.le
        if low is None and high is None:
            return ""
        high = None if high in (U32_MAX, I64_MAX) else high
        return f"{'' if low is None else low}…{'' if high is None else high}"


def rows(section: str, struct: type[msgspec.Struct]) -> tuple[Key, ...]:
    """Return the rows of all fields of `struct` that carry a `Spec`, as declared."""
    hints = typing.get_type_hints(struct, include_extras=True)
    found = []
    for field in msgspec.structs.fields(struct):
        spec = next((m for m in getattr(hints[field.name], "__metadata__", ()) if _is(m)), None)
        if spec is not None:
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            found.append(_row(section, field.name, hints[field.name].__origin__, default, spec))
    return tuple(found)


def _is(metadata: object) -> bool:
    return isinstance(metadata, Spec)


def _row(section: str, name: str, annotation: object, default: object, spec: Spec) -> Key:
    is_optional = typing.get_origin(annotation) in (Union, types.UnionType)
    if is_optional:
        annotation = next(a for a in typing.get_args(annotation) if a is not type(None))
    choices: tuple[str, ...] = ()
    entry = None
    kind: Kind
    if typing.get_origin(annotation) is Literal:
        kind, choices = "choice", typing.get_args(annotation)
    elif typing.get_origin(annotation) is tuple:
        item = typing.get_args(annotation)[0]
        kind, entry = ("texts", None) if item is str else ("tables", item)
    elif annotation is str:
        kind = "address" if spec.is_address else "text"
    else:
        kinds: dict[object, Kind] = {bool: "bool", int: "int", float: "float"}
        kind = kinds[annotation]
    default = None if default is msgspec.NODEFAULT else default
    return Key(section, name, kind, default, is_optional, choices, entry, spec)
