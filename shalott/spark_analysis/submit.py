"""The program for spark-submit: the report of a store, on the cluster that spark-submit names.

    spark-submit --master spark://host:7077 .../shalott/spark_analysis/submit.py s3a://bucket/runs \
        --out report

Master, packages and settings are spark-submit's. The driver's Python must have what the report
needs (docs/how-to/report-on-many-runs.md); the executors are sent the code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    # A script's own folder comes first on the path, and this one has modules with usual names.
    _here = Path(__file__).absolute()
    sys.path[:] = [place for place in sys.path if Path(place or ".").absolute() != _here.parent]
    sys.path.insert(0, str(_here.parents[2]))


def main(arguments: Sequence[str]) -> int:
    """The exit code: as ``shalott report`` has it."""
    from rich.console import Console

    from shalott.core.errors import ShalottError, UsageError
    from shalott.spark_analysis.findings import Wanted
    from shalott.spark_analysis.report import run_report
    from shalott.spark_analysis.store_stream import follow_store

    parser = argparse.ArgumentParser(prog="submit.py", description="Report on a store of runs.")
    parser.add_argument("store", help="a directory that executors can read, or a URI")
    parser.add_argument("--out", type=Path, help="a directory of the driver; else STORE/_report")
    parser.add_argument("--engine", default="spark", choices=("spark", "sql"))
    parser.add_argument("--follow", action="store_true", help="go on as runs come")
    told = parser.parse_args(arguments)
    console = Console()
    try:
        run = follow_store if told.follow else run_report
        run(told.store, told.out, console, Wanted(engine=told.engine))
    except ShalottError as error:
        Console(stderr=True).print(f"shalott: {error}", markup=False, highlight=False)
        return 254 if isinstance(error, UsageError) else 255
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
