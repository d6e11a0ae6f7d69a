"""How fast histories are read as entries, and how much memory it takes, whatever the file's size.

    python benchmarks/entries.py [--megabytes N] [--out DIRECTORY]

Draws a history of transactions (list-append: two entries of a hundred bytes each, lists of up to
seven numbers read) as one file of N MB (1,000), and reads it by each way: the batches of the
engine, which judges in C take; the printed text, which conversions take; entries as Python's
values, of a twentieth of it. JSON of the same entries, and Jepsen's block format, of a twentieth.
Each in a process of its own: CPU seconds, MB a CPU second, and the most that was resident. The bar
is 100 MB a CPU second of EDN; exits with 1 if it is missed. Files are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import peak_bytes  # noqa: E402
from shalott.checkers.engine import lib  # noqa: E402
from shalott.checkers.reading.edn import EdnMap, Keyword  # noqa: E402
from shalott.checkers.reading.entries import EntrySource  # noqa: E402
from shalott.checkers.reading.entries_export import TEXTS  # noqa: E402
from shalott.checkers.reading.jepsen_file import write_jepsen_file  # noqa: E402

MB: Final = 1_000_000
BAR: Final = 100  # MB a CPU second
PART: Final = 20  # what Python reads, or writes, is so much smaller


def lines(seed: int = 1) -> Iterator[str]:
    rng = random.Random(seed)
    now = 0
    for number in range(10**9):
        key, other = rng.randrange(1000), rng.randrange(1000)
        read = " ".join(str(number + each) for each in range(rng.randrange(8)))
        begin = f":f :txn, :value [[:append {key} {number}] [:r {other}"
        end = f":process {number % 20}, :index"
        now += rng.randrange(10_000)
        yield f"{{:type :invoke, {begin} nil]], :time {now}, {end} {2 * number}}}\n"
        yield f"{{:type :ok, {begin} [{read}]]], :time {now + 500}, {end} {2 * number + 1}}}\n"


def draw(path: Path, size: int) -> None:
    with path.open("w") as file:
        written = 0
        for line in lines():
            written += file.write(line)
            if written >= size:
                return


def batches(source: EntrySource) -> int:
    return sum(batch.count for batch in source.batches())


def printed(source: EntrySource) -> int:
    return sum(piece.count(b"\n") for piece in source.printed(lib.SHL_ENTRIES_EDN))


def values(source: EntrySource) -> int:
    return sum(1 for _ in source.entries())


WAYS: Final = {"batches": batches, "printed": printed, "values": values}


def measure(way: str, path: str) -> dict[str, float]:
    begun = time.process_time()
    count = WAYS[way](EntrySource.of_path(path))
    return {"cpu_s": time.process_time() - begun, "peak": peak_bytes(), "entries": count}


def measured(way: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--measure", way, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(*asked.measure)))
        return 0
    with tempfile.TemporaryDirectory(dir=asked.out, prefix="shalott-entries-") as directory:
        return report(Path(directory), asked.megabytes * MB)


def report(directory: Path, size: int) -> int:
    whole, part = directory / "history.edn", directory / "part.edn"
    draw(whole, size)
    draw(part, size // PART)
    source = EntrySource.of_path(part)
    with (directory / "part.json").open("wb") as file:
        file.writelines(TEXTS["json"](source))
    test = EdnMap({Keyword("name"): "drawn"})
    write_jepsen_file(directory / "part.jepsen", test, source.maps())
    rows = (
        ("EDN, batches", "batches", whole),
        ("EDN, batches", "batches", part),
        ("EDN, printed", "printed", whole),
        ("EDN, Python's values", "values", part),
        ("JSON, batches", "batches", directory / "part.json"),
        ("test.jepsen, batches", "batches", directory / "part.jepsen"),
    )
    print(f"{'what':24}{'MB':>8}{'entries':>12}{'CPU s':>8}{'MB/CPU s':>10}{'peak MB':>9}")
    held = True
    for name, way, path in rows:
        found = measured(way, path)
        megabytes = path.stat().st_size / MB
        speed = megabytes / found["cpu_s"]
        held &= path is not whole or way != "batches" or speed >= BAR
        print(
            f"{name:24}{megabytes:8,.0f}{found['entries']:12,.0f}{found['cpu_s']:8.2f}"
            f"{speed:10,.0f}{found['peak'] / MB:9,.0f}"
        )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
