"""A night from its file to its summary: planted failures, kills, shards, retention, refusals.

The runs are a stub's (tests/world/harness/stub_run.py), which takes milliseconds; all else is real.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from shalott.harness.cli.main import run_command
from shalott.harness.store.runs_table import refresh
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.explore

STUB = ROOT / "tests" / "world" / "harness" / "stub_run.py"
START = f"""
import sys
from shalott.harness.matrix import night_runs
night_runs.PROGRAM = (sys.executable, "-S", {str(STUB)!r})
from shalott.harness.cli.main import main
main(sys.argv[1:])
"""
FILE = """
name = "test"
[night]
deflake = 2
[machine]
cores = 8
[[cells]]
system = ["mirrored", "dledger"]
profile = ["safe", "upstream"]
nemesis = ["none", "kill"]
seeds = {seeds}
[[rule]]
of = {{ profile = "upstream" }}
expect = ["valid", "invalid"]
anomalies = ["lost"]
"""
PLANTED = [
    ["mirrored/safe/*/kill", "lost"],
    ["*upstream*", "lost"],
    ["dledger/safe/*/kill", "flaky"],
]


NIGHTLY = pytest.mark.nightly("nights of several commands take half a minute each")


class Nights:
    """Runs `shalott matrix` with the stub, in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file(FILE.format(seeds=2))

    def file(self, text: str) -> None:
        (self.directory / "m.toml").write_text(text)

    def start(
        self, *words: str, rules: Any = (), store: str = "store", cli: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        environment = {**os.environ, "STUB_RULES": json.dumps(rules)}
        environment["STUB_GO"] = str(self.directory / "go")
        environment["PYTHONPATH"] = str(ROOT)
        command = [sys.executable, "-c", START, "matrix", *(cli or ["m.toml", "--store", store])]
        return subprocess.Popen(
            [*command, *words],
            env=environment,
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, **more: Any) -> tuple[int, str]:
        process = self.start(*words, **more)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def summary(self, night: str, store: str = "store") -> dict[str, Any]:
        path = self.directory / store / "_nights" / night / "summary.json"
        return dict(json.loads(path.read_bytes()))

    def calls(self, store: str = "store") -> list[str]:
        path = self.directory / store / "calls.txt"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def named(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["status"], one["cell"], one["kind"]) for one in summary["findings"]]


MIRRORED, DLEDGER = "mirrored/safe/sim/queue/kill", "dledger/safe/sim/log/kill"


def test_new_known_flaky_fixed_and_failed_are_told_apart(nights: Nights) -> None:
    code, output = nights.run("--night", "n1")
    assert (code, named(nights.summary("n1"))) == (0, []), output
    code, output = nights.run("--night", "n2", rules=PLANTED)
    found = nights.summary("n2")
    assert code == 1 and named(found) == [
        ("new", MIRRORED, "lost"),
        ("flaky", DLEDGER, "lost"),
    ]
    new, flaky = found["findings"]
    assert new["seeds"] == [1, 2] and (new["again"]["k"], new["again"]["n"]) == (4, 4)
    assert (flaky["again"]["k"], flaky["again"]["n"]) == (2, 4)
    assert (found["verdicts"], found["ran"], found["again"]) == (
        {"invalid": 12, "valid": 4},
        16,
        8,
    )
    rules = [[MIRRORED, "lost"], [DLEDGER, "crash"], ["dledger/safe/*/none", "unknown"]]
    code, output = nights.run("--night", "n3", rules=rules)
    assert code == 255 and named(nights.summary("n3")) == [
        ("harness-failed", DLEDGER, "harness-failed"),
        ("new", "dledger/safe/sim/log/none", "unknown total-queue"),
        ("known", MIRRORED, "lost"),
        ("unseen", DLEDGER, "lost"),  # nobody knows: it has no verdict, and was flaky
    ]
    assert nights.summary("n3")["findings"][2]["seen_in"] == ["n2"]
    assert "SIGKILL" in nights.summary("n3")["findings"][0]["headline"]
    code, output = nights.run("--night", "n4", rules=[[DLEDGER, "refused"]])
    assert code == 255
    assert ("fixed", MIRRORED, "lost") in named(nights.summary("n4"))
    assert f"{DLEDGER} seed 1: The run has no verdict: its process ended with 254: " in output
    assert "no such thing" in output
    assert nights.summary("n4")["again"] == 0  # it would be refused again
    assert "Compared with 3 earlier nights." in output


@NIGHTLY
def test_expectations_are_kept_to(nights: Nights) -> None:
    nights.file(FILE.format(seeds=1) + "must_find = true\n")
    code, _ = nights.run("--night", "n", rules=[["mirrored/upstream/*", "lost"]])
    assert code == 1 and {one[:2] for one in named(nights.summary("n"))} == {
        ("missing", "dledger/upstream/sim/log/none"),
        ("missing", "dledger/upstream/sim/log/kill"),
    }
    other = FILE.format(seeds=1).replace('["lost"]', '["diverged"]')
    nights.file(other.replace('name = "test"', 'name = "other"'))
    code, _ = nights.run("--night", "o", rules=[["mirrored/upstream/*/kill", "lost"]])
    assert named(nights.summary("o")) == [("new", "mirrored/upstream/sim/queue/kill", "lost")]


@NIGHTLY
def test_junit_has_a_class_a_cell_and_a_case_a_seed(nights: Nights) -> None:
    nights.run("--night", "n", "--repeat", "2", rules=PLANTED)
    tree = ElementTree.parse(nights.directory / "store/_nights/n/junit.xml")
    cases = [(case.get("classname"), case.get("name")) for case in tree.iter("testcase")]
    assert len(cases) == len(set(cases)) == 32
    assert (MIRRORED, "seed 2, repeat 2") in cases
    failed = {
        case.get("classname") for case in tree.iter("testcase") if case.find("failure") is not None
    }
    assert failed == {MIRRORED, DLEDGER}
    suite = tree.getroot()[0]
    assert suite.get("tests") == "32" and suite.get("errors") == "0"


@NIGHTLY
def test_a_night_that_is_killed_twice_is_gone_on_with(nights: Nights) -> None:
    nights.file(FILE.format(seeds=6))
    rules = [["dledger/upstream/*", "slow"], ["mirrored/safe/*/kill", "lost"]]
    words = ("--night", "n", "--jobs", "4")
    for wanted in (6, 14):
        process = nights.start(*words, rules=rules)
        journal = nights.directory / "store/_nights/n/journal.jsonl"
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if journal.exists() and journal.read_bytes().count(b"\n") >= wanted:
                break
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        (nights.directory / "go").touch()  # what was under way comes to its end, seen by nobody
        with journal.open("ab") as file:
            file.write(b'{"outcome": {"cell": "to')  # and the last line is torn
    code, output = nights.run(*words, rules=rules)
    assert "Going on with the night n" in output
    found = nights.summary("n")
    assert code == 1 and named(found) == [("new", MIRRORED, "lost")]
    assert (found["ran"], found["not_run"], found["over"]) == (48, 0, True)
    lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
    done = [line["outcome"] for line in lines if "outcome" in line]
    counts = Counter((one["cell"], one["seed"], one.get("turn", "first")) for one in done)
    assert max(counts.values()) == 1
    rows = refresh(nights.directory / "store").table.to_pylist()
    assert sorted(row["run"] for row in rows) == sorted(one["run"] for one in done)


@NIGHTLY
def test_200_cells_with_three_regressions_and_a_flaky_one_in_two_shards(nights: Nights) -> None:
    labels = "".join(f'[[cells]]\nlabel = "c{n:03}"\nnemesis = "kill"\n' for n in range(200))
    nights.file(f'name = "test"\n[night]\ndeflake = 3\n[machine]\ncores = 8\n{labels}')
    rules = [["*@c017", "lost"], ["*@c101", "unknown"], ["*@c150", "lost"], ["*@c042", "flaky"]]
    nights.run("--night", "a", "--only", "*@c0?7", "--only", "*@c10?", "--only", "*@c150")
    for store in ("one", "two"):
        subprocess.run(["cp", "-r", "store", store], cwd=nights.directory, check=True)
    nights.run("--night", "b", rules=rules)
    whole = nights.summary("b")
    cell = "mirrored/safe/sim/queue/kill@{}".format
    assert named(whole) == [
        ("new", cell("c017"), "lost"),
        ("new", cell("c101"), "unknown total-queue"),
        ("new", cell("c150"), "lost"),
        ("flaky", cell("c042"), "lost"),
    ]
    for number, store in enumerate(("one", "two"), 1):
        nights.run("--night", "b", "--shard", f"{number}/2", rules=rules, store=store)
    assert not set(nights.calls("one")[-80:]) & set(nights.calls("two")[-80:])
    code, output = nights.run("--merge", "--out", "merged", cli=("one", "two"))
    merged = json.loads((nights.directory / "merged/summary.json").read_bytes())
    places = ("run", "started_wall_ns", "spent_s", "store", "shards", "of_shards", "command")
    for each in (whole, merged):
        for one in each["findings"]:
            one.pop("run")
    assert {k: v for k, v in merged.items() if k not in places} == {
        k: v for k, v in whole.items() if k not in places
    }, output
    assert merged["shards"] == [1, 2] and code == merged["exit_code"] == 1
    code, output = nights.run("--merge", cli=("one",))
    assert code == 254 and "shard 2 of 2 is missing" in output


@NIGHTLY
def test_order_budget_and_jobs(nights: Nights) -> None:
    file = 'name = "test"\n[machine]\njobs = 1\n' + "".join(
        f'[[cells]]\nlabel = "{label}"\n' for label in "abcd"
    )
    nights.file(file + '[[rule]]\nof = { label = "d" }\nweight = 1000\n')
    nights.run("--night", "1", "--only", "*@a")
    nights.run("--night", "2", "--only", "*@[bd]")
    nights.run("--night", "3")
    # c never ran; d ran last but weighs much; a is the one that ran longest ago.
    order = [call.partition("@")[2][0] for call in nights.calls()]
    assert order[3:] == ["c", "d", "a", "b"]
    code, output = nights.run("--night", "4", "--budget", "1ms")
    assert code == 0 and "4 were not run: the budget of time was used up" in output


@NIGHTLY
def test_what_is_kept(nights: Nights) -> None:
    nights.file(FILE.format(seeds=1) + '[retention]\nage = "30d"\nsize = "1"\n')
    nights.run("--night", "1", "--keep-failures", rules=PLANTED[:1])
    rows = refresh(nights.directory / "store").table.to_pylist()
    large = {
        row["cell"]
        for row in rows
        if (nights.directory / "store" / row["run"] / "history.parquet.txt").exists()
    }
    assert large == {MIRRORED} and len(rows) == 8 + 2
    nights.run("--night", "2")  # tonight's are never deleted, whatever their size
    rows = refresh(nights.directory / "store").table.to_pylist()
    assert {row["night"] for row in rows} == {"2"}


def test_the_summary_goes_to_a_command(nights: Nights) -> None:
    nights.run("--night", "n", "--notify", "cat > told.json; exit 3", rules=PLANTED)
    told = json.loads((nights.directory / "told.json").read_bytes())
    assert told == nights.summary("n")


def test_a_stopped_night_ends_in_order(nights: Nights) -> None:
    process = nights.start("--night", "n", rules=[["dledger/*", "slow"]])
    assert process.stdout is not None
    while "valid" not in (line := process.stdout.readline()):
        assert line
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "goes on with the night" in output
    tree = ElementTree.parse(nights.directory / "store/_nights/n/junit.xml")
    assert [case.get("classname") for case in tree.iter("testcase")][-1] == "test"
    code, output = nights.run("--night", "n")
    assert code == 0 and nights.summary("n")["ran"] == 16


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("name = ", ["is no TOML"]),
        ('nam = "x"', ["nam is not known", "did you mean name?"]),
        ('name = "x"', ["there is no [[cells]]"]),
        ('name = "x"\n[[cells]]\nsytem = "a"\n[[rule]]\nof = { labl = "x" }\n',
         ["cells 1.sytem", "did you mean system", "rule 1.of.labl", "label"]),
        ('name = "x"\n[[cells]]\nnemesis = "kil"', ["unknown nemesis kil"]),
        ('name = "x"\n[[cells]]\nflags = { rat = 3 }', ["flag rat", "rate"]),
        ('name = "x"\n[[cells]]\nflags = { rate = "many" }', ["flag rate", "give a number"]),
        ('name = "x"\n[[cells]]\nworkload = "log"', ["cell mirrored/safe/sim/log/none"]),
        ('name = "x"\n[[cells]]\n[[cells]]\n', ["is there twice", "label"]),
        ('name = "x"\n[[cells]]\ncluster = "auto"', ["cluster auto"]),
        ('name = "x"\n[[cells]]\nseeds = "9-x"', ["seeds"]),
        ('name = "x"\n[night]\nbudget = "soon"\n[[cells]]\n', ["night.budget soon"]),
        ('name = "x"\n[[cells]]\n[[rule]]\nexpect = "green"', ["rule[0].expect"]),
        ('name = "x"\n[machine]\ncores = 0.5\n[[cells]]\n', ["needs 1 cores"]),
    ],
)  # fmt: skip
def test_a_file_is_refused_with_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, words: list[str]
) -> None:
    path = tmp_path / "m.toml"
    path.write_text(file)
    assert run_command(["matrix", str(path), "--store", str(tmp_path / "store")]) == 254
    said = "".join(capsys.readouterr())
    assert "Traceback" not in said and said.count("\n") == 1
    assert all(word in said for word in words), said
