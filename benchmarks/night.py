"""A night of short cells with three planted regressions and one flaky cell: what is told of it?

``python -m benchmarks.night DIRECTORY [--cells 200] [--docker 2] [--jobs 4] [--shard-cells 24]``

The night before, all of it sound, is run first (the special cells and a few others). Then tonight's
whole matrix, in which three cells run a broken broker (switches of `shalott bugs`) and a checker
fails every other run of one cell. Tonight is killed with SIGKILL after a third and after two thirds
of its runs, and gone on with. At last some of its cells, the special ones among them, are run once
as a whole and once as two shards, each in stores that begin as the night before left them. It
prints figures, and exits with 1 unless the summaries name exactly what was planted, nothing was run
twice, and the merged shards say what the whole says.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import cycle, islice
from pathlib import Path
from typing import Any

SOUND = (
    *(("mirrored", nemesis) for nemesis in ("none", "kill", "power-all", "pause")),
    *(("dledger", nemesis) for nemesis in ("none", "kill", "power-all", "partition")),
    *(("master-slave", nemesis) for nemesis in ("none", "kill")),
    *(("controller", nemesis) for nemesis in ("none", "kill")),
)
PLANTED = {  # label -> (system, nemesis, bug, kinds of which one at least must be told)
    "planted-1": ("mirrored", "power-all", "OUR-03", {"lost"}),
    "planted-2": ("dledger", "power-all", "KB-DL-22", {"stale-read"}),
    "planted-3": ("dledger", "power-all", "KB-DL-16", {"lost-write", "diverged"}),
}
FLAKY = "dledger/safe/sim/log/none@coin"
# Failing over by hand leaves too little time for acknowledgements in so short a run.
RULES = """
[[rule]]
of = { system = "master-slave", nemesis = "kill" }
expect = ["valid", "unknown"]
"""
FLAGS = """
[cells.flags]
time-limit = "5s"
rate = 20
nemesis-interval = "1200ms"
nemesis-duration = "800ms"
min-acked = 5
"""
Summary = dict[str, Any]


def matrix_text(cells: int, docker: int, jobs: int, *, broken: bool) -> str:
    """The file. The same cells, whether the brokers are broken or not."""
    text = [
        f'name = "planted"\n[night]\ndeflake = 3\nrun_timeout = "10m"\n[machine]\njobs = {jobs}'
    ]
    text.append(f"cores = {jobs}\ncontainers = 3\n")
    sound = cells - len(PLANTED) - 1 - docker
    for number, (system, nemesis) in enumerate(islice(cycle(SOUND), sound)):
        text.append(_cell(system, nemesis, f"s{number:03}"))
    text += [_cell("mirrored", "none", f"d{number}", "docker") for number in range(docker)]
    text.append(_cell("dledger", "none", "coin") + 'name = "coin"\n')
    for label, (system, nemesis, bug, _) in PLANTED.items():
        text.append(_cell(system, nemesis, label))
        if broken:
            text.append(f'[[rule]]\nof = {{ label = "{label}" }}\nflags = {{ bug = "{bug}" }}\n')
    return "\n".join([*text, RULES])


def _cell(system: str, nemesis: str, label: str, cluster: str = "sim") -> str:
    axes = f'system = "{system}"\nnemesis = "{nemesis}"\nlabel = "{label}"\ncluster = "{cluster}"'
    return f"[[cells]]\n{axes}\nseeds = 1\n{FLAGS}"


class Bench:
    def __init__(self, directory: Path, jobs: int) -> None:
        self.directory, self.jobs = directory, jobs

    def start(self, file: str, store: str, *words: str, coin: bool) -> subprocess.Popen[bytes]:
        """The command, in a process."""
        environment = {**os.environ}
        if coin:
            environment["SHALOTT_COIN"] = str(self.directory / f"{store.partition('-')[0]}.coin")
        command = [sys.executable, "-m", "shalott.harness.cli.main", "matrix"]
        command += ["--load", "benchmarks.night_coin", *words]
        if "--merge" not in words:
            command += [str(self.directory / file), "--store", str(self.directory / store)]
        log = (self.directory / f"{store}.log").open("ab")
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def finish(self, file: str, store: str, *words: str, coin: bool = True) -> int:
        return self.start(file, store, *words, coin=coin).wait()

    def journal(self, store: str, night: str) -> list[Any]:
        found = (self.directory / store / "_nights").glob(f"{night}*/journal.jsonl")
        lines = [line for path in found for line in path.read_bytes().splitlines()]
        return [entry for line in lines if "outcome" in (entry := _json(line))]

    def summary(self, path: str) -> Summary:
        return dict(json.loads((self.directory / path / "summary.json").read_bytes()))

    def kill_after(self, count: int, file: str, store: str, night: str) -> int:
        """Start the night, kill it as soon as it has ``count`` runs; how many it has then."""
        process = self.start(file, store, "--night", night, coin=True)
        while process.poll() is None and len(self.journal(store, night)) < count:
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return len(self.journal(store, night))


def _json(line: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except ValueError:
        return {}


def named(summary: Summary) -> dict[str, set[str]]:
    """What a summary names: "status cell" -> kinds."""
    found: dict[str, set[str]] = {}
    for one in summary["findings"]:
        found.setdefault(f"{one['status']} {one['cell']}", set()).add(one["kind"])
    return found


def wrong_with(summary: Summary) -> list[str]:
    """Sentences; none if it names what was planted and nothing else."""
    found = named(summary)
    wrong = []
    wanted = {}
    for label, (system, nemesis, _, kinds) in PLANTED.items():
        workload = "queue" if system == "mirrored" else "log"
        wanted[f"new {system}/safe/sim/{workload}/{nemesis}@{label}"] = kinds
    wanted[f"flaky {FLAKY}"] = {"tails"}
    for name, kinds in wanted.items():
        if not found.get(name, set()) & kinds:
            wrong.append(f"not named: {name} ({', '.join(kinds)})")
    wrong += [f"named: {name}: {kinds}" for name, kinds in found.items() if name not in wanted]
    return wrong


def same(first: Summary, second: Summary) -> list[str]:
    """In what two summaries of one night differ, apart from when and where it was run."""
    told = ("matrix", "digest", "planned", "ran", "again", "not_run", "verdicts", "exit_code")
    wrong = [
        f"{name}: {first[name]} and {second[name]}" for name in told if first[name] != second[name]
    ]
    places = ("run", "command")
    findings = [
        [{k: v for k, v in one.items() if k not in places} for one in each["findings"]]
        for each in (first, second)
    ]
    if findings[0] != findings[1]:
        wrong.append(f"findings differ: {findings}")
    if first["cells"] != second["cells"]:
        wrong.append("cells differ")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--docker", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--shard-cells", type=int, default=24)
    asked = parser.parse_args()
    bench = Bench(asked.directory, asked.jobs)
    asked.directory.mkdir(parents=True)
    sizes = (asked.cells, asked.docker, asked.jobs)
    (asked.directory / "sound.toml").write_text(matrix_text(*sizes, broken=False))
    (asked.directory / "tonight.toml").write_text(matrix_text(*sizes, broken=True))
    special = ["--only", "*@planted-?", "--only", "*@coin"]
    few = [word for n in range(asked.shard_cells - 4) for word in ("--only", f"*@s{n:03}")]
    began_s = time.monotonic()
    wrong = []
    code = bench.finish("sound.toml", "whole", "--night", "before", *special, *few[:8], coin=False)
    print(f"The night before ended with {code} after {_since(began_s)}.", flush=True)
    for name in ("night", "sharded-1", "sharded-2"):
        shutil.copytree(asked.directory / "whole", asked.directory / name, symlinks=True)
    wrong += _whole_night(bench, asked.cells)
    wrong += _shards(bench, [*special, *few])
    print("\n".join(wrong) or "All as planted.")
    sys.exit(bool(wrong))


def _since(began_s: float) -> str:
    return f"{(time.monotonic() - began_s) / 60:.1f} min"


def _whole_night(bench: Bench, cells: int) -> list[str]:
    began_s, file = time.monotonic(), "tonight.toml"
    for part in (1, 2):
        had = bench.kill_after(part * cells // 3, file, "night", "tonight")
        print(f"Killed with {had} runs in the journal, after {_since(began_s)}.", flush=True)
    code = bench.finish(file, "night", "--night", "tonight")
    summary = bench.summary("night/_nights/tonight")
    runs = Counter(
        (one["outcome"]["cell"], one["outcome"]["seed"], one["outcome"].get("turn"))
        for one in bench.journal("night", "tonight")
    )
    print(
        f"{summary['ran']} of {summary['planned']} runs and {summary['again']} again in"
        f" {_since(began_s)}, at work {summary['spent_s'] / 60:.1f} min: {summary['verdicts']};"
        f" exit code {code}.",
        flush=True,
    )
    for name, kinds in named(summary).items():
        print(f"  {name}: {', '.join(sorted(kinds))}")
    wrong = wrong_with(summary)
    wrong += [f"ran {count} times: {run}" for run, count in runs.items() if count > 1]
    wrong += [] if code == 1 else [f"exit code {code}"]
    return wrong + ([] if summary["ran"] == cells else [f"{summary['ran']} runs of {cells}"])


def _shards(bench: Bench, chosen: list[str]) -> list[str]:
    began_s, file = time.monotonic(), "tonight.toml"
    bench.finish(file, "whole", "--night", "part", *chosen)
    for shard in (1, 2):
        words = ["--night", "part", "--shard", f"{shard}/2", *chosen]
        bench.finish(file, f"sharded-{shard}", *words)
    stores = [str(bench.directory / f"sharded-{shard}") for shard in (1, 2)]
    bench.finish(file, "merge", "--merge", *stores, "--out", str(bench.directory / "merged"))
    whole, merged = bench.summary("whole/_nights/part"), bench.summary("merged")
    print(f"{whole['ran']} runs as a whole and as two shards in {_since(began_s)}.")
    return [*same(whole, merged), *wrong_with(merged)]


if __name__ == "__main__":
    main()
