"""The file of a matrix: what a night runs, as TOML, read and checked once.

docs/how-to/run-a-night.md is the manual. All errors are told at once, each with its place; a key
that is not known with the nearest one that is.
"""

from __future__ import annotations

import difflib
import hashlib
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from shalott.core.errors import Complaints, UsageError
from shalott.core.json_value import Json, JsonObject
from shalott.core.parameters import parse_bytes, parse_duration_ms

Names = str | tuple[str, ...]
Seeds = int | str | tuple[int, ...]
FlagValue = str | int | float | bool | tuple[str, ...]
Verdict = Literal["valid", "invalid", "unknown"]
Reason = Literal["new", "known", "flaky", "missing", "unknown"]
AXES = ("system", "profile", "cluster", "workload", "nemesis")


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """``budget``: of time at work; "" for none. ``run_timeout``: a run that takes longer is ended.
    ``compare_with``: so many earlier nights. ``fail_on``: for which findings the command fails.
    ``unfit``: what becomes of products that can't be a plan."""

    budget: str = ""
    run_timeout: str = "30m"
    repeat: int = 1
    deflake: int = 3
    compare_with: int = 7
    keep_failures: bool = False
    unfit: Literal["refuse", "skip"] = "refuse"
    fail_on: tuple[Reason, ...] = ("new", "known", "flaky", "missing", "unknown")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What may be in use at once; 0: as much as this machine has."""

    jobs: int = 0
    cores: float = 0
    containers: int = 0


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of the matrix's runs; "" is everything."""

    age: str = ""
    size: str = ""


class Axes(msgspec.Struct, frozen=True, kw_only=True):
    """A product of cells. "" as a workload: the system's own. ``label`` tells cells apart that
    differ in flags only. ``seeds``: how many (from 1 on), a range "5-9", or a list; ``new_seeds``
    are drawn anew for each night."""

    system: Names = "mirrored"
    profile: Names = "safe"
    cluster: Names = "sim"
    workload: Names = ""
    nemesis: Names = "none"
    label: str = ""
    seeds: Seeds = 1
    new_seeds: int = 0
    flags: dict[str, FlagValue] = {}


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """Which cells: all of what is given must fit, each value being a name or a pattern with * and
    ?, or several of them. ``nemesis`` fits a cell whose whole value or one of whose faults fits."""

    system: Names = ()
    profile: Names = ()
    cluster: Names = ()
    workload: Names = ()
    nemesis: Names = ()
    label: Names = ()
    seed: tuple[int, ...] = ()


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What is so of the cells that ``of`` fits; later rules win.

    ``expect``: the verdicts that a run may have. ``anomalies``: kinds that an invalid run may have
    then; empty: any. ``must_find``: one run of the cell at least must be invalid. ``weight``: how
    much sooner than others it is due. ``cores``: that a run needs."""

    of: Pattern = Pattern()
    weight: float | None = None
    expect: Verdict | tuple[Verdict, ...] | None = None
    anomalies: tuple[str, ...] | None = None
    must_find: bool | None = None
    seeds: Seeds | None = None
    new_seeds: int | None = None
    cores: float | None = None
    flags: dict[str, FlagValue] = {}


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    night: Night = Night()
    machine: Machine = Machine()
    retention: Retention = Retention()
    cells: tuple[Axes, ...] = ()
    exclude: tuple[Pattern, ...] = ()
    rule: tuple[Rule, ...] = ()


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read. ``digest`` tells whether it is the same one."""

    definition: Definition
    digest: str


def read_matrix(path: Path) -> Matrix:
    """Raises UsageError with everything that is wrong with the file, but for the cells' plans."""
    try:
        data = path.read_bytes()
        raw = tomllib.loads(data.decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    return Matrix(definition=parse(raw, str(path)), digest=hashlib.sha256(data).hexdigest()[:16])


def parse(raw: JsonObject, where: str) -> Definition:
    """The definition. Raises UsageError."""
    wrong = Complaints()
    for sentence in _unknown_keys(raw, Definition, ""):
        wrong.add(f"{where}: {sentence}")
    wrong.tell()
    try:
        found = msgspec.convert(raw, Definition)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {_plainly(str(error))}") from error
    for sentence in _amounts(found):
        wrong.add(f"{where}: {sentence}")
    checks = [
        ("night.budget", found.night.budget, parse_duration_ms),
        ("night.run_timeout", found.night.run_timeout, parse_duration_ms),
        ("retention.age", found.retention.age, parse_duration_ms),
        ("retention.size", found.retention.size, parse_bytes),
    ]
    for name, text, check in checks:
        with wrong.gathered():
            if text:
                check(f"{where}: {name}", text)
    wrong.tell()
    return found


def _amounts(found: Definition) -> Iterator[str]:
    night, machine = found.night, found.machine
    if not found.name or not found.name.replace("-", "").replace("_", "").isalnum():
        yield f"name {found.name!r}: give letters, digits, - and _"
    if not found.cells:
        yield "there is no [[cells]]: nothing would be run"
    least = [("repeat", night.repeat, 1), ("deflake", night.deflake, 0)]
    least += [("compare_with", night.compare_with, 1), ("jobs", machine.jobs, 0)]
    least += [("containers", machine.containers, 0)]
    for name, value, smallest in least:
        if value < smallest:
            yield f"{name} = {value}: give {smallest} or more"
    for rule in found.rule:
        if rule.weight is not None and rule.weight <= 0:
            yield f"weight = {rule.weight:g}: give more than 0; [[exclude]] leaves cells out"


def _unknown_keys(raw: Json, kind: object, place: str) -> Iterator[str]:
    """A sentence for each key that is not known, however deep."""
    if typing.get_origin(kind) is tuple and isinstance(raw, list):
        inner = typing.get_args(kind)[0]
        for number, each in enumerate(raw, 1):
            yield from _unknown_keys(each, inner, f"{place} {number}")
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(raw, dict)):
        return
    hints = typing.get_type_hints(kind)
    for key, value in raw.items():
        name = f"{place}.{key}".strip(". ")
        if key in hints:
            yield from _unknown_keys(value, hints[key], name)
        else:
            yield f"{name} is not known: {nearest(key, list(hints))}"


def nearest(word: str, known: list[str]) -> str:
    """A hint at what was meant."""
    near = difflib.get_close_matches(word, known, n=2, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(sorted(known))}" if len(known) < 20 else "see the manual"


def _plainly(text: str) -> str:
    """msgspec's message with the place first."""
    what, _, place = text.partition(" - at `$")
    return f"{place.rstrip('`').lstrip('.')}: {what}" if place else text


def several(value: Names) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def seeds_of(value: Seeds) -> list[int]:
    """Raises UsageError."""
    if isinstance(value, int):
        if value < 0:
            raise UsageError(f"seeds = {value}: give how many, a range or a list")
        return list(range(1, value + 1))
    if isinstance(value, tuple):
        return list(dict.fromkeys(value))
    first, separator, last = value.partition("-")
    if not (first.isdigit() and (last.isdigit() or not separator)):
        raise UsageError(f'seeds = "{value}": give how many, a range such as "5-9", or a list')
    return list(range(int(first), int(last or first) + 1))
