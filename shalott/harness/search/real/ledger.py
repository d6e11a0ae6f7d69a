"""The ledger of a shrinking: every run of every candidate, written down as it ends.

``minimal.trials.jsonl`` beside ``minimal.json`` has a first line that says what is made small, then
a line a run. Candidates are tried in one order, so the same command that goes on after a kill finds
what was decided before and runs nothing twice. A torn last line is cut off. A ledger of another
plan, or of other code, is set aside under a name with a number.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from shalott.core.errors import StoreError
from shalott.core.plan import Plan, canonical, dump_plan
from shalott.harness.search.rule import Trials, trials_of


class LedgerHeader(msgspec.Struct, frozen=True, kw_only=True, tag="shrink", tag_field="line"):
    """What is made small, by which class of anomaly. ``plan``: a digest of the plan."""

    version: int = 1
    plan: str
    anomaly: str
    code: str


class Tried(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="line"):
    """A run. ``failed``: None if it proved nothing, ``why`` then says why. ``of``: base, candidate,
    or minimal: at the end, anew."""

    plan: str
    of: str
    failed: bool | None
    why: str = ""
    seconds: float = 0.0


class Chosen(msgspec.Struct, frozen=True, kw_only=True, tag="anomaly", tag_field="line"):
    """The class to keep, where the first failure said it."""

    anomaly: str


Line = LedgerHeader | Tried | Chosen


@dataclass
class Ledger:
    """An open ledger. ``went_on``: runs that were there when it was opened. ``anomaly``: the class
    that is kept, "" as long as nobody knows."""

    path: Path
    anomaly: str = ""
    went_on: int = 0
    _outcomes: dict[tuple[str, str], list[bool | None]] = field(default_factory=dict)
    _runs: int = 0

    @property
    def runs(self) -> int:
        """All that were ever made."""
        return self._runs

    def trials(self, plan: Plan, of: str) -> Trials:
        return trials_of(self._outcomes.get((digest_of(plan), of), ()))

    def add(self, plan: Plan, of: str, failed: bool | None, *, why: str, seconds: float) -> None:
        line = Tried(plan=digest_of(plan), of=of, failed=failed, why=why, seconds=round(seconds, 3))
        self._append(line)

    def choose(self, anomaly: str) -> None:
        self._append(Chosen(anomaly=anomaly))

    def _append(self, line: Line) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        self.take(line)

    def take(self, line: Line) -> None:
        """Of the file."""
        if isinstance(line, Chosen):
            self.anomaly = line.anomaly
        if not isinstance(line, Tried):
            return
        self._outcomes.setdefault((line.plan, line.of), []).append(line.failed)
        self._runs += 1


def digest_of(plan: Plan) -> str:
    """Tells candidates apart, whatever they are called."""
    return hashlib.blake2b(dump_plan(canonical(plan)), digest_size=12).hexdigest()


def open_ledger(path: Path, header: LedgerHeader) -> Ledger:
    """Go on with the ledger, or begin it. Raises StoreError."""
    ledger = Ledger(path, anomaly=header.anomaly)
    try:
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        lines = _decoded(whole)
        if lines is None or lines[:1] != [header]:
            _set_aside(path)
            path.write_bytes(msgspec.json.encode(header) + b"\n")
            return ledger
        if len(whole) < len(data):
            os.truncate(path, len(whole))
    except OSError as error:
        raise StoreError(f"cannot keep {path}: {error.strerror}") from error
    for line in lines[1:]:
        ledger.take(line)
    ledger.went_on = ledger.runs
    return ledger


def _decoded(data: bytes) -> list[Line] | None:
    decoder = msgspec.json.Decoder(Line)
    try:
        return [decoder.decode(line) for line in data.splitlines()]
    except msgspec.MsgspecError:
        return None


def _set_aside(path: Path) -> None:
    if not path.exists():
        return
    number = 1
    while (aside := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    path.rename(aside)
