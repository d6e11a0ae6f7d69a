"""How fast the judge of partitions is: ``python benchmarks/kafka.py [operations] [--keep FILE]``.

A right history of sends, polls and transactions (tests/checkers/partitions/simulated_logs.py) is
drawn and written as EDN, once right and once with one acknowledged message polled by no client.
Prints for each, of a process of its own: operations, messages, the size of the file, CPU seconds
from the file to the verdict, and the peak of its memory; with ww_deps, too. The bar is ten CPU
seconds for a million operations.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from shalott.checkers.judge import Limits, make_judge  # noqa: E402
from shalott.checkers.reading.entries import EntrySource  # noqa: E402
from tests.checkers.partitions.simulated_logs import (  # noqa: E402
    Operation,
    Setting,
    right_history,
    text_of,
)
from tests.checkers.partitions.spoiled_logs import lose  # noqa: E402

SETTING = Setting(clients=20, keys=40, crash_rate=0.001, sends_at_once=2, polled_at_once=8)


def draw(count: int) -> list[Operation]:
    SETTING.operations = count
    return right_history(1, SETTING)


def judge(path: str, options: str) -> None:
    """In a process of its own: the figures of one judgement."""
    begun = time.process_time()
    result = make_judge(f"kafka:{options}").judge(EntrySource.of_path(path), Limits())
    seconds = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = Path(path).stat().st_size / 1e6
    print(
        f"{options or 'default':8} valid: {result.valid!s:7}"
        f" {result.counts['operation-count']:,} operations, {result.counts['message-count']:,}"
        f" messages, {size:,.0f} MB: {seconds:.2f} CPU s, {peak:,.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operations", nargs="?", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="where to keep the right history")
    parser.add_argument("--judge", nargs=2, metavar=("FILE", "OPTIONS"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.judge:
        judge(*asked.judge)
        return
    operations = draw(asked.operations)
    with tempfile.TemporaryDirectory() as directory:
        right, spoiled = Path(directory) / "right.edn", Path(directory) / "lost.edn"
        right.write_bytes(text_of(operations))
        lose(operations, random.Random(1))
        spoiled.write_bytes(text_of(operations))
        if asked.keep:
            asked.keep.write_bytes(right.read_bytes())
        for path in (right, spoiled):
            for options in ("", "ww_deps=true"):
                command = [sys.executable, __file__, "--judge", str(path), options]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
