"""originals.json: every run of the ladder that was made, in the order of their making.

A run is *sound* if it came to its end, nothing of the harness failed, and, where it shows nothing,
no checker had to say "unknown" because the machine stalled. Only sound runs are counted; the others
stay in the file, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from shalott.core.errors import StoreError
from shalott.harness.run.atomic_file import write_atomically

KEPT = "evidence/originals.json"
Side = Literal["with", "control", "ours-on", "ours-off"]
SIDES: tuple[Side, ...] = ("with", "control", "ours-on", "ours-off")


class Look(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run. ``release``: of RocketMQ, or our system's name. ``classes``: of anomalies because of
    which the run was invalid. ``lines``: how often the row's line stood in a node's log, the most
    of all nodes. ``counts``: how many of each class, and what else checkers count that the ladder
    tells. ``first_s``: when the first anomaly was, in s from the beginning of the load.
    ``elapsed_s``: the whole run, boot to checks. ``load``: of the machine, over the last minute.
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
    void: str = ""


Kept = dict[str, list[Look]]


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


def minutes_to_first(looks: Sequence[Look]) -> float | None:
    """Of running the plan, void runs included, until it was found for the first time."""
    passed = 0.0
    for look in looks:
        if look.side == "with":
            passed += look.elapsed_s
            if look.found and not look.void:
                return passed / 60
    return None


def load_kept(directory: Path) -> Kept:
    """{} if nothing was run. Raises StoreError."""
    path = directory / KEPT
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error


def save_kept(directory: Path, kept: Mapping[str, Sequence[Look]]) -> None:
    """Raises StoreError. A kill in the midst leaves the file as it was."""
    data = msgspec.json.format(msgspec.json.encode(kept, order="sorted"), indent=1)
    try:
        (directory / KEPT).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write into {directory}: {error.strerror}") from error
    write_atomically(directory / KEPT, data + b"\n")
