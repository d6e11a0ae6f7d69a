"""What a run shows of a row's bug, in its verdict or in the brokers' own logs.

``originals.json`` keeps what every run of the ladder showed, in the order of the runs. A run is
*sound* if it came to its end, nothing of the harness failed, and, where it shows nothing, no
checker had to say "unknown" because the machine stalled. Only sound runs are counted; the others
stay in the file, with the reason.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.logs.log_order import FreshReads
from shalott.core.errors import StoreError
from shalott.harness.originals.row import Lines, Row
from shalott.harness.report.results import RunResults, classes, violations
from shalott.harness.run.atomic_file import write_atomically
from shalott.harness.run.store import RunDirectory

LOOKS_FILE = "evidence/originals.json"
Side = Literal["with", "control", "ours-on", "ours-off", "published"]
SIDES: tuple[Side, ...] = ("with", "control", "ours-on", "ours-off")
# A run in which one of these had to say "unknown" saw too little to say that a bug is not there;
# and so did one in which another one had, if it judges an anomaly by which the row's bug is known.
SEEING = ("log", "reads", "group", "noticed", "stalls", "stats", "run")
JUDGES: Mapping[str, str] = {
    "stuck": "liveness",
    "unavailable": "availability",
    "diverged": "convergence",
    "lost-on-node": "liveness",
}
# Of what checkers count, what the ladder tells beside the classes' own numbers.
TOLD = ("acked-count", "send-ok-count", "longest-gap-ms", "takeover-ms-max", "stalled-ms")
NS = 1_000_000_000


class Look(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run. ``release``: of RocketMQ, or our system's name. ``classes``: of anomalies because of
    which the run was invalid. ``lines``: how often the row's line stood in a node's log, the most
    of all nodes. ``counts``: how many of each class, and what else checkers count that the ladder
    tells. ``first_s``: when the first anomaly was, in s from the beginning of the load.
    ``elapsed_s``: the whole run, boot to checks. ``load``: of the machine, over the last minute.
    ``own_cpu_s``: what the harness and the nodes computed; ``memory_mib``: what the nodes took
    together while all ``nodes`` ran, the median. 0: not known.
    ``void``: why it is not sound; "" if it is.
    """

    side: Side
    release: str
    run: str
    seed: int
    found: bool
    valid: bool | str
    classes: tuple[str, ...] = ()
    lines: int = 0
    counts: dict[str, float] = {}
    first_s: float | None = None
    elapsed_s: float = 0.0
    load: float = 0.0
    nodes: int = 0
    own_cpu_s: float = 0.0
    memory_mib: float = 0.0
    void: str = ""


KeptLooks = dict[str, list[Look]]
Kept = TypeVar("Kept")


class Tally(msgspec.Struct, frozen=True):
    """Of one side's sound runs."""

    found: int
    runs: int

    @property
    def words(self) -> str:
        return f"{self.found} of {self.runs}" if self.runs else "-"


def tally(looks: Sequence[Look], side: Side) -> Tally:
    sound = [look for look in looks if look.side == side and not look.void]
    return Tally(sum(look.found for look in sound), len(sound))


def minutes_to_first(looks: Sequence[Look], side: Side = "with") -> float | None:
    """Of running the plan, void runs included, until it was found for the first time."""
    passed = 0.0
    for look in looks:
        if look.side == side:
            passed += look.elapsed_s
            if look.found and not look.void:
                return passed / 60
    return None


def look_at(
    row: Row, side: Side, release: str, found: RunResults, directory: Path | None, load: float
) -> Look:
    """``directory``: the run's, where its nodes' logs are; None if there are none.

    ``load``: of the machine, over the last minute.
    """
    wanted = row.ours.anomalies if row.ours and side.startswith("ours") else ()
    wanted = wanted or row.shows.anomalies
    if row.shows.fresh_reads and directory is not None:
        judged = FreshReads().check(RunDirectory(directory).load_history())
        found = msgspec.structs.replace(found, results=(*found.results, judged))
    kinds = classes(violations(found.results))
    lines = 0
    if row.shows.lines is not None and directory is not None:
        lines = most_lines(row.shows.lines, directory)
    is_found = bool(set(kinds) & set(wanted))
    if row.shows.with_line is not None and directory is not None:
        lines = most_lines(row.shows.with_line, directory)
        is_found &= lines >= row.shows.with_line.least
    if row.shows.lines is not None and lines >= row.shows.lines.least:
        is_found = True
    if row.shows.route_changes and directory is not None:
        lines = most_route_changes(directory)
        is_found |= lines >= row.shows.route_changes
    return Look(
        side=side,
        release=release,
        run=found.run or found.name,
        seed=found.seed,
        found=is_found,
        valid=found.valid,
        classes=kinds,
        lines=lines,
        counts=_counts(found.results, kinds),
        first_s=first_s(found.results, wanted) if is_found else None,
        elapsed_s=round(found.elapsed_ns / NS, 1),
        load=round(load, 2),
        void=why_void(found, wanted, is_found=is_found),
    )


def why_void(
    found: RunResults, wanted: Sequence[str], *, is_found: bool, judges: Sequence[str] = ()
) -> str:
    """ "" for a sound run. What was found was found, although a checker saw too little of the
    rest. ``wanted``: the anomalies that would have been a find; ``judges``: the checkers that
    would have told it."""
    if found.failures:
        return f"the harness failed: {found.failures[0][:160]}"
    if not found.complete:
        return "the recording was cut short"
    if is_found:
        return ""
    needed = {*SEEING, *judges, *(JUDGES[kind] for kind in wanted if kind in JUDGES)}
    blind = [r.checker for r in found.results if r.valid == "unknown" and r.checker in needed]
    return f"saw too little: {', '.join(blind)}" if blind else ""


def most_lines(lines: Lines, directory: Path) -> int:
    """How often the line stands in a node's log, the most of all nodes."""
    pattern = re.compile(lines.pattern)
    logs = sorted(directory.glob(f"nodes/*/log/{lines.service}.log"))
    return max((matches(pattern, path) for path in logs), default=0)


def most_route_changes(directory: Path) -> int:
    """How often a node's name server named another master than when it was asked before, the most
    of all nodes."""
    history = RunDirectory(directory).load_history()
    masters: dict[str, list[str]] = {}
    for row in history.ops.select(["f", "node", "extra"]).to_pylist():
        if row["f"] != "observe" or not row["extra"]:
            continue
        seen = msgspec.json.decode(row["extra"]).get("name_server") or {}
        if master := seen.get("master"):
            masters.setdefault(row["node"], []).append(master)
    return max((_changes(named) for named in masters.values()), default=0)


def _changes(named: Sequence[str]) -> int:
    return sum(one != other for one, other in itertools.pairwise(named))


def matches(pattern: re.Pattern[str], path: Path) -> int:
    with path.open(errors="replace") as text:
        return sum(pattern.search(line) is not None for line in text)


def _counts(results: Sequence[Result], kinds: Sequence[str]) -> dict[str, float]:
    wanted = {*TOLD, *(f"{kind}-count" for kind in kinds)}
    return {
        name: value
        for result in results
        for name, value in result.counts.items()
        if name in wanted and value
    }


def first_s(results: Sequence[Result], wanted: Sequence[str]) -> float | None:
    """When the first anomaly that is told with a time was, from the run's beginning."""
    times = [
        float(at_ns)
        for result in results
        if result.valid is False
        for anomaly in result.anomalies
        if anomaly.kind in wanted and (at_ns := _at_ns(anomaly)) is not None
    ]
    return round(min(times) / NS, 1) if times else None


def _at_ns(anomaly: Anomaly) -> float | None:
    told = anomaly.detail.get("at_ns", anomaly.detail.get("begin_ns"))
    return float(told) if isinstance(told, int | float) else None


# -- the file -------------------------------------------------------------------------------------


def load_looks(directory: Path) -> KeptLooks:
    """{} if nothing was run. Raises StoreError."""
    return read_kept(directory / LOOKS_FILE, KeptLooks) or {}


def keep_look(directory: Path, name: str, look: Look) -> None:
    """Beside what others have kept meanwhile."""
    kept = load_looks(directory)
    kept.setdefault(name, []).append(look)
    save_looks(directory, kept)


def save_looks(directory: Path, kept: Mapping[str, Sequence[Look]]) -> None:
    """Raises StoreError. A kill in the midst leaves the file as it was."""
    write_kept(directory / LOOKS_FILE, kept)


def read_kept(path: Path, kind: type[Kept]) -> Kept | None:
    """None if the file is not there. Raises StoreError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error


def write_kept(path: Path, value: object) -> None:
    """Raises StoreError."""
    data = msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write into {path.parent}: {error.strerror}") from error
    write_atomically(path, data + b"\n")
