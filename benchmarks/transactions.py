"""How fast histories of transactions are judged, and how much memory that takes.

    python benchmarks/transactions.py [--quick] [--only WORD] [--runs N]

Prints a line for each figure: CPU seconds of `shalott check FILE --model JUDGE`, from the start of
the interpreter to its end (the least of N runs), its peak resident memory, and the bar. Histories
are drawn once into the temporary directory, as Elle's generator draws them (elle.txn/wr-txns: ten
keys in use, each half as often as the next, one to four micro-operations, up to 256 writes a key):

- sound: each transaction takes effect at once, at some moment between its call and its return
- stale: ten transactions read keys as they were a write ago, as from a replica that lags
- skew: one in ten reads keys as they were up to four writes ago (read skew, write skew, lost
  updates, intermediate reads): thousands of cycles

--quick: a hundredth of the transactions and no bars. Exits with 1 if a bar is missed or a verdict
is wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.processes import run  # noqa: E402

MB: Final = 1_000_000
DIRECTORY: Final = Path(tempfile.gettempdir()) / "shalott-transactions"
PROCESSES: Final = 10
KEYS: Final = 10
WRITES_A_KEY: Final = 256
LONGEST: Final = 4
BEHIND: Final = 5  # writes, at most one less


@dataclass(frozen=True, slots=True)
class Figure:
    judge: str
    kind: str
    count: int
    valid: bool
    limit_s: float
    limit_mb: float

    @property
    def name(self) -> str:
        return f"{self.judge}, {self.kind}, {self.count:,}"


FIGURES: Final = (
    Figure("list-append", "sound", 100_000, True, 3.0, 1000.0),
    Figure("list-append", "stale", 100_000, False, 3.0, 1000.0),
    Figure("list-append", "skew", 100_000, False, 3.0, 1000.0),
    Figure("list-append", "sound", 1_000_000, True, 40.0, 8000.0),
    Figure("list-append", "stale", 1_000_000, False, 40.0, 8000.0),
    Figure("list-append", "skew", 1_000_000, False, 40.0, 8000.0),
    Figure("rw-register", "sound", 100_000, True, 5.0, 1000.0),
    Figure("rw-register", "stale", 100_000, False, 5.0, 1000.0),
    Figure("rw-register:linearizable_keys=true", "sound", 100_000, True, 5.0, 1000.0),
)


class Drawing:
    """One history, written as it is drawn."""

    def __init__(self, file: TextIO, judge: str, kind: str, seed: int) -> None:
        self._file = file
        self._is_list = judge.startswith("list-append")
        self._kind = kind
        self._rng = random.Random(seed)
        self._keys = list(range(KEYS))
        self._left = [self._writes() for _ in self._keys]
        self._next_key = KEYS
        self._asked: dict[int, int] = {}  # of each key: the last value that was written
        self._index = 0
        self._stale = 0.0  # how often a read is

    def _writes(self) -> int:
        """Zipf's: most keys are written a few times."""
        return min(WRITES_A_KEY, int(1 / (1 - self._rng.random())) + 1)

    def _mops(self) -> list[tuple[bool, int, int]]:
        found = []
        for _ in range(self._rng.randint(1, LONGEST)):
            place = (1 + self._rng.randrange((1 << KEYS) - 1)).bit_length() - 1
            if self._rng.random() < 0.5:
                found.append((False, self._keys[place], 0))
                continue
            if self._left[place] == 0:
                self._keys[place], self._left[place] = self._next_key, self._writes()
                self._next_key += 1
            self._left[place] -= 1
            key = self._keys[place]
            asked = self._asked[key] = self._asked.get(key, 0) + 1
            found.append((True, key, asked))
        return found

    def write(self, count: int) -> None:
        self._stale = 10 / count
        lists: dict[int, list[int]] = {}
        running: dict[int, list[tuple[bool, int, int]]] = {}
        begun = 0
        while begun < count or running:
            process = self._rng.randrange(PROCESSES)
            if process in running:
                self._complete(process, running.pop(process), lists)
            elif begun < count:
                begun += 1
                running[process] = self._mops()
                self._line("invoke", process, [self._shown(m, None) for m in running[process]])

    def _complete(
        self, process: int, mops: list[tuple[bool, int, int]], lists: dict[int, list[int]]
    ) -> None:
        lag = self._lag()
        shown, own = [], set[int]()
        for is_write, key, value in mops:
            of_key = lists.setdefault(key, [])
            if is_write:
                of_key.append(value)
                own.add(key)
                shown.append(self._shown((True, key, value), None))
            else:
                seen = len(of_key) if key in own else max(0, len(of_key) - lag)
                shown.append(self._shown((False, key, 0), of_key[:seen]))
        self._line("ok", process, shown)

    def _lag(self) -> int:
        drawn = self._rng.random()
        if self._kind == "stale":
            return 1 if drawn < self._stale else 0
        return self._rng.randrange(1, BEHIND) if self._kind == "skew" and drawn < 0.1 else 0

    def _shown(self, mop: tuple[bool, int, int], seen: list[int] | None) -> str:
        is_write, key, value = mop
        if is_write:
            return f"[{':append' if self._is_list else ':w'} {key} {value}]"
        if not seen:
            return f"[:r {key} {'[]' if self._is_list and seen is not None else 'nil'}]"
        told = "[" + " ".join(map(str, seen)) + "]" if self._is_list else str(seen[-1])
        return f"[:r {key} {told}]"

    def _line(self, kind: str, process: int, mops: list[str]) -> None:
        self._file.write(
            f"{{:index {self._index}, :type :{kind}, :process {process}, :f :txn, "
            f":time {1000 * self._index}, :value [{' '.join(mops)}]}}\n"
        )
        self._index += 1


def history(figure: Figure, count: int) -> Path:
    semantics = figure.judge.partition(":")[0]
    path = DIRECTORY / f"{semantics}-{figure.kind}-{count}.edn"
    if not path.exists():
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".part").open("w") as file:
            Drawing(file, semantics, figure.kind, seed=count).write(count)
        path.with_suffix(".part").rename(path)
    return path


def command(figure: Figure, path: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "shalott.harness.cli.main", "check", str(path),
            "--model", figure.judge)  # fmt: skip


def measured(figure: Figure, count: int, runs: int, *, with_bars: bool) -> bool:
    """Prints the figure; whether it is right and within its bars."""
    path = history(figure, count)
    ran = [run(command(figure, path)) for _ in range(runs)]
    cpu_s, peak_mb = min(each.cpu_s for each in ran), max(each.peak for each in ran) / MB
    right = all((each.exit == 0) == figure.valid and each.exit < 2 for each in ran)
    within = not with_bars or (cpu_s <= figure.limit_s and peak_mb <= figure.limit_mb)
    size = path.stat().st_size / MB
    said = "" if right else "  WRONG VERDICT"
    bars = f"  (bar {figure.limit_s:g} s, {figure.limit_mb:g} MB)" if with_bars else ""
    print(f"{figure.name:52} {size:7.1f} MB {cpu_s:7.2f} s {peak_mb:8.0f} MB{bars}{said}"
          f"{'' if within else '  MISSED'}")  # fmt: skip
    return right and within


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--runs", type=int, default=1)
    asked = parser.parse_args()
    chosen = [each for each in FIGURES if asked.only in each.name]
    kept = [
        measured(each, each.count // (100 if asked.quick else 1), asked.runs,
                 with_bars=not asked.quick)
        for each in chosen
    ]  # fmt: skip
    return 0 if chosen and all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
