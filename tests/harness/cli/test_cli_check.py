"""`shalott check` and `shalott export`: verdicts, exit codes, a sentence for every mistake."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from shalott.checkers.judge import JUDGES
from shalott.checkers.models import BUILT_IN
from shalott.checkers.reading import read_history
from shalott.core.errors import UnreadableHistory
from shalott.core.history import write_history
from shalott.core.op import NEMESIS, Completion, Invocation
from shalott.core.recording import HistoryWriter, recover
from shalott.harness.cli.main import run_command
from tests.checkers.reading.test_edn import REGISTER, REGISTER_SEEN
from tests.checkers.reading.test_logs import ETCD, RECORDED, VIOLIN, record
from tests.checkers.reading.written import seen

pytestmark = pytest.mark.unit

STALE = """\
{:process 0, :type :invoke, :f :write, :value 1}
{:process 0, :type :ok, :f :write, :value 1}
{:process 0, :type :invoke, :f :write, :value 2}
{:process 0, :type :ok, :f :write, :value 2}
{:process 1, :type :invoke, :f :read, :value nil}
{:process 1, :type :ok, :f :read, :value 1}
"""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str


Shalott = Callable[[Sequence[str]], Done]


@pytest.fixture
def shalott(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shalott:
    """Runs a command in a directory with a few histories."""
    monkeypatch.chdir(tmp_path)
    Path("good.edn").write_text(REGISTER)
    Path("stale.edn").write_text(STALE)
    Path("etcd.log").write_text(ETCD)
    Path("queue.log").write_text(VIOLIN)
    Path("strange.edn").write_text(STALE.replace(":write", ":dance").replace(":read", ":sing"))

    def run(arguments: Sequence[str]) -> Done:
        capsys.readouterr()
        code = run_command(arguments)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def run_stored(shalott: Shalott) -> Path:
    """A run in the store, the latest."""
    place = Path("store/fifo/20260101T000000.000Z")
    place.mkdir(parents=True)
    record(place / "recording").close()
    write_history(recover(place / "recording").ops, place / "history.parquet")
    Path("store/latest").symlink_to("fifo/20260101T000000.000Z", target_is_directory=True)
    Path("store/fifo/latest").symlink_to("20260101T000000.000Z", target_is_directory=True)
    return place


def test_a_valid_history(shalott: Shalott) -> None:
    done = shalott(["check", "good.edn", "--model", "cas-register"])
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(
        "good.edn: valid\n  5 operations, 2 of them crashed, read as jepsen, checked against"
        " cas-register\n  decided by: "
    )


def test_an_invalid_history_names_the_operations_and_their_lines(shalott: Shalott) -> None:
    done = shalott(["check", "stale.edn", "-m", "register"])
    assert (done.code, done.err) == (1, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("stale.edn: INVALID: ")
    assert any(
        line.startswith("    line 5: process 1: read → 1") and line.endswith("(stuck)")
        for line in lines
    )
    assert "  decided by: register monitor, in " in done.out


def test_the_worst_verdict_decides_the_exit_code(shalott: Shalott) -> None:
    done = shalott(["check", "good.edn", "stale.edn", "-m", "cas-register"])
    assert done.code == 1
    good, stale = done.out.splitlines()
    assert good == "good.edn: valid: cas-register: 5 operations, 2 of them crashed"
    assert stale.startswith("stale.edn: INVALID: cas-register: ")


def test_unknown_says_why_and_how_far_it_got(shalott: Shalott) -> None:
    done = shalott(["check", "good.edn", "-m", "cas-register", "--memory-limit", "1KB"])
    assert (done.code, done.err) == (2, "")
    assert done.out.startswith("good.edn: unknown (memory)")
    assert "  not decided in " in done.out


def test_json_says_the_same(shalott: Shalott) -> None:
    done = shalott(["check", "good.edn", "stale.edn", "-m", "cas-register", "--json"])
    good, stale = (json.loads(line) for line in done.out.splitlines())
    assert (good["valid"], good["dialect"], good["operations"], good["crashed"]) == (
        True, "jepsen", 5, 2
    )  # fmt: skip
    assert stale["valid"] is False
    assert stale["violation"]["place"] == "line"
    assert 5 in stale["violation"]["places"]
    assert "1" in stale["violation"]["reason"]


def test_the_general_search_or_a_monitor_may_be_asked_for(shalott: Shalott) -> None:
    general = shalott(["check", "stale.edn", "-m", "register", "--monitor", "general"])
    assert (general.code, "decided by: general search" in general.out) == (1, True)
    monitor = shalott(["check", "stale.edn", "-m", "register", "--monitor", "register monitor"])
    assert (monitor.code, "decided by: register monitor" in monitor.out) == (1, True)


def test_failed_compare_and_set(shalott: Shalott) -> None:
    """It failed though the value was what it asked for: only to be believed if it is looked at."""
    Path("failed.edn").write_text(
        "{:process 0, :type :invoke, :f :write, :value 1}\n"
        "{:process 0, :type :ok, :f :write, :value 1}\n"
        "{:process 0, :type :invoke, :f :cas, :value [1 2]}\n"
        "{:process 0, :type :fail, :f :cas, :value [1 2]}\n"
    )
    for how, code in (("checked", 1), ("ignored", 0)):
        done = shalott(["check", "failed.edn", "-m", "cas-register", "--failed-cas", how])
        assert done.code == code


def test_logs_and_runs(shalott: Shalott, run_stored: Path) -> None:
    assert shalott(["check", "etcd.log", "-m", "cas-register"]).code == 0
    assert shalott(["check", "queue.log", "-m", "fifo-queue"]).code == 0
    for run in ("latest", "fifo", str(run_stored), f"{run_stored}/history.parquet"):
        done = shalott(["check", run, "-m", "fifo-queue"])
        assert done.code == 0, done
        assert done.out.startswith(f"{run}: valid\n  5 operations on 2 keys, 2 of them crashed")


def test_keyed_values(shalott: Shalott) -> None:
    Path("keyed.edn").write_text(STALE.replace(":value 2", ":value [:b 2]")
                                 .replace(":value 1", ":value [:a 1]")
                                 .replace(":value nil", ":value [:a nil]"))  # fmt: skip
    assert shalott(["check", "keyed.edn", "-m", "register", "--keyed"]).code == 0


def test_a_torn_file_is_told(shalott: Shalott) -> None:
    Path("torn.edn").write_text(REGISTER[:-20])
    done = shalott(["check", "torn.edn", "-m", "cas-register"])
    assert done.code == 0
    assert "  note: the file is cut off at line 10: it was read up to the last whole" in done.out


def test_a_page_is_drawn_of_what_is_invalid(shalott: Shalott) -> None:
    done = shalott(["check", "stale.edn", "-m", "register", "--report", "page.html"])
    assert done.out.endswith("page.html is written\n")
    page = Path("page.html").read_text()
    assert "stale.edn" in page and "read → 1" in page
    done = shalott(["check", "good.edn", "-m", "cas-register", "--report", "none.html"])
    assert done.out.endswith("none.html is not written: nothing is invalid\n")
    assert not Path("none.html").exists()


def test_models_are_listed(shalott: Shalott) -> None:
    done = shalott(["check", "--models"])
    assert done.code == 0
    assert [line for line in done.out.splitlines() if not line.startswith(" ")] == [
        *BUILT_IN,
        *JUDGES,
    ]
    assert "options: initial=nil, nil=value, failed_cas=checked" in done.out


def test_help(shalott: Shalott) -> None:
    done = shalott(["check", "--help"])
    assert done.code == 0 and "--memory-limit" in done.out
    assert "check" in shalott(["--help"]).out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "which history? shalott check FILE --model NAME"),
        (["strange.edn"], "which model? strange.edn has dance, sing: no model or judge has those"),
        (["good.edn", "-m", "heap"], "no model 'heap': there are register, cas-register"),
        (["good.edn", "-m", "register:x=1"], "model register takes"),
        (["good.edn", "-m", "register", "--monitor", "bus"],
         "no monitor 'bus' for register: there are auto, general, register monitor"),
        (["good.edn", "-m", "register", "--time-limit", "soon"],
         "--time-limit soon: give a time above 0"),
        (["good.edn", "-m", "register", "--memory-limit", "2PB"],
         "--memory-limit 2PB: give a size above 0, such as 2GB"),
        (["good.edn", "-m", "register", "--threads", "-2"],
         "--threads -2: give a number of threads, or 0"),
        (["good.edn", "-m", "register", "--threads", "many"], "argument --threads: invalid int"),
        (["good.edn", "--modle", "register"], "unrecognized arguments: --modle"),
        (["nowhere.edn", "-m", "register"],
         "cannot read nowhere.edn: there is no such file, nor a run of store"),
        (["latest", "-m", "register"], "there is no run yet in store: name a file, or --store"),
        (["good.edn", "-m", "fifo-queue"], "model fifo-queue knows enqueue and dequeue, line 1"),
        (["good.edn", "-m", "cas-register", "--dialect", "latin"], "no dialect 'latin'"),
        (["good.edn", "-m", "cas-register", "--keyed"], "good.edn, line 1, column 57: "),
        (["stale.edn", "-m", "register", "--report", "no/where.html"],
         "cannot write no/where.html: No such file or directory"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(shalott: Shalott, arguments: list[str], sentence: str) -> None:
    done = shalott(["check", *arguments])
    assert done.code == 254
    assert done.err.startswith(f"shalott: {sentence}")
    assert done.err.count("\n") == 1


@pytest.mark.explore
def test_ctrl_c_stops_at_once(shalott: Shalott, tmp_path: Path) -> None:
    """A pipe that nobody writes to: the check waits for its file until it is interrupted."""
    os.mkfifo("pipe.edn")
    command = [
        sys.executable,
        "-m",
        "shalott.harness.cli.main",
        "check",
        "pipe.edn",
        "-m",
        "register",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with open("pipe.edn", "w") as pipe:  # noqa: PTH123 - opens when the other side has opened it
        pipe.write(STALE * 2)
        pipe.flush()
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, err = process.communicate(timeout=60)
        assert time.monotonic() - began < 5
    assert process.returncode == 2
    assert err == "shalott: interrupted before there was a verdict\n"


@pytest.mark.explore
def test_a_pipe_is_read_like_a_file(shalott: Shalott, tmp_path: Path) -> None:
    os.mkfifo("pipe.edn")
    for text, code, said in ((STALE, 1, "invalid"), ("nonsense", 254, "pipe.edn")):
        command = [
            sys.executable,
            "-m",
            "shalott.harness.cli.main",
            "check",
            "pipe.edn",
            "-m",
            "register",
        ]
        with subprocess.Popen(command, text=True, stdout=-1, stderr=-2) as process:
            Path("pipe.edn").write_text(text)
            out, _ = process.communicate(timeout=60)
        assert (process.returncode, said in out) == (code, True), out
        assert "/shalott-" not in out


def test_one_bad_file_does_not_end_a_batch(shalott: Shalott) -> None:
    Path("bad.edn").write_text("{:process 0, :type :invoke, :f :read, :value [1}}")
    files = ["nowhere.edn", "good.edn", "bad.edn", "queue.log", "good.edn"]
    done = shalott(["check", *files, "-m", "cas-register"])
    told = [line for line in done.out.splitlines() if not line.startswith(" ")]
    assert [line.split(": ")[:2] for line in told] == [
        ["nowhere.edn", "NOT CHECKED"],
        ["good.edn", "valid"],
        ["bad.edn", "NOT CHECKED"],
        ["queue.log", "NOT CHECKED"],
        ["good.edn", "valid"],
    ]
    assert "bad.edn, line 1, column 48: a bracket is closed by one of another kind" in done.out
    assert done.code == 254
    assert shalott(["check", "stale.edn", "bad.edn", "-m", "cas-register"]).code == 1
    lines = shalott(["check", *files, "-m", "cas-register", "--json"]).out.splitlines()
    assert [json.loads(line)["valid"] for line in lines] == [
        "unknown", True, "unknown", "unknown", True
    ]  # fmt: skip
    assert "column 48" in json.loads(lines[2])["error"]


def test_a_compressed_file_is_read_like_a_plain_one(
    shalott: Shalott, run_stored: Path, tmp_path: Path
) -> None:
    for name in ("stale.edn", "etcd.log", run_stored / "history.parquet", run_stored / "recording"):
        content = gzip.compress(Path(name).read_bytes())
        Path("packed.gz").write_bytes(content)
        assert seen(read_history("packed.gz")) == seen(read_history(name))
        Path("packed.gz").write_bytes(content[:-20])
        with pytest.raises(UnreadableHistory, match=r"packed\.gz: the gzip file is damaged"):
            read_history("packed.gz")
    Path("packed.gz").write_bytes(gzip.compress(b"nonsense"))
    done = shalott(["check", "packed.gz", "-m", "register"])
    assert (done.code, done.err[:32]) == (254, "shalott: packed.gz is no history")
    Path("run.gz").write_bytes(gzip.compress((run_stored / "history.parquet").read_bytes()))
    exported = shalott(["export", "run.gz", "--nemesis"])
    assert exported.out == shalott(["export", "latest", "--nemesis"]).out


@pytest.mark.explore
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("piped", [False, True])
def test_standard_input_is_a_file(shalott: Shalott, packed: bool, piped: bool) -> None:
    def main(*arguments: str, content: bytes) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "shalott.harness.cli.main", *arguments]
        content = gzip.compress(content) if packed else content
        if piped:
            return subprocess.run(command, input=content, capture_output=True, check=False)
        Path("input").write_bytes(content)
        with Path("input").open("rb") as given:
            return subprocess.run(command, stdin=given, capture_output=True, check=False)

    done = main("check", "-", "-m", "register", content=STALE.encode())
    assert (done.returncode, done.stdout[:12]) == (1, b"-: INVALID: "), done
    done = main("check", "-", "-m", "register", content=b"nonsense")
    assert (done.returncode, done.stderr[:38]) == (254, b"shalott: standard input is no history ")


# --- export ---------------------------------------------------------------------------------------


def test_export_writes_what_check_reads(shalott: Shalott, run_stored: Path) -> None:
    done = shalott(["export", "latest", "-o", "run.edn", "--plain"])
    assert (done.code, done.out, done.err) == (0, "run.edn is written: 5 operations\n", "")
    assert seen(read_history("run.edn")) == RECORDED
    assert shalott(["check", "run.edn", "-m", "fifo-queue"]).code == 0
    assert shalott(["export", "latest", "-o", "keyed.edn"]).code == 0
    assert seen(read_history("keyed.edn", keyed=True)) == RECORDED


def test_export_to_standard_output_with_the_nemesis(shalott: Shalott, run_stored: Path) -> None:
    done = shalott(["export", "fifo", "--nemesis"])
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "; values are [key value]"
    assert lines[1] == (
        '{:index 0, :process :nemesis, :type :info, :f :partition, :value "begun", :time 10, '
        ':extra {:fault "p1"}}'
    )
    assert [line for line in lines if ":nemesis" in line and '"healed", :time 80, :extra ' in line]
    Path("again.edn").write_text(done.out)
    assert seen(read_history("again.edn")) == RECORDED


def test_export_keeps_what_logs_brought_and_whom_faults_hit(shalott: Shalott) -> None:
    writer = HistoryWriter(Path("history.jsonl"), clock_ns=iter(range(100)).__next__)
    targets = {"kind": "partition", "nodes": ["n1", "n2"], "links": [["n1", "n3"]]}
    fault = writer.invoke(NEMESIS, "", Invocation(f="partition", extra=targets))
    sent = writer.invoke(0, "n1", Invocation(f="send", key="t/0", value=7))
    writer.complete(sent, Completion(type="ok", value=7, offset=3))
    other = writer.invoke(0, "n1", Invocation(f="send", key="t/1", value=8))
    writer.complete(other, Completion(type="ok", value=8, offset=0))
    poll = writer.invoke(1, "n2", Invocation(f="poll", key="t/0"))
    writer.complete(poll, Completion(type="ok", extra={"from": 3, "records": [[3, 7]]}))
    writer.complete(fault, Completion(type="info", extra={**targets, "proved_effective": True}))
    writer.close()
    assert shalott(["export", "history.jsonl", "--nemesis", "-o", "log.edn"]).code == 0
    lines = Path("log.edn").read_text().splitlines()
    faults = [line for line in lines if ":nemesis" in line]
    assert all(':nodes ["n1" "n2"], :links [["n1" "n3"]]' in line for line in faults)
    assert [
        line for line in lines if ":extra {:from 3, :records [[3 7]]}" in line and ":ok" in line
    ]
    assert [line for line in lines if ':type :ok, :f :send, :value ["t/0" 3]' in line]
    found = seen(read_history("log.edn"))
    assert [row[1:4] for row in found] == [("send", 7, 3), ("send", 8, 0), ("poll", None, None)]
    write_history(recover(Path("history.jsonl")).ops, Path("history.parquet"))
    assert [row[1:4] for row in seen(read_history("history.parquet"))][:2] == [
        ("send", 7, 3),
        ("send", 8, 0),
    ]


def test_the_help_of_export_shows_brackets(shalott: Shalott) -> None:
    assert "[key value]" in " ".join(shalott(["export", "--help"]).out.replace("│", " ").split())


def test_export_of_another_dialect(shalott: Shalott) -> None:
    done = shalott(["export", "good.edn", "--format", "edn"])
    Path("again.edn").write_text(done.out)
    assert seen(read_history("again.edn")) == REGISTER_SEEN


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["good.edn", "--format", "csv"],
         "--format csv: there are edn, porcupine-kv, json, log, openchaos, jepsen, shalott"),
        (["good.edn", "--format", "jepsen"],
         "--format jepsen is a directory: say which, --out DIRECTORY"),
        (["good.edn", "--nemesis"],
         "good.edn is no run of ours: what its nemesis did is not known"),
        (["good.edn", "-o", "no/where.edn"],
         "cannot write no/where.edn: No such file or directory"),
        ([], "there is no run yet in store: name a file, or --store"),
    ],
)  # fmt: skip
def test_export_mistakes_are_one_sentence(
    shalott: Shalott, arguments: list[str], sentence: str
) -> None:
    done = shalott(["export", *arguments])
    assert (done.code, done.err) == (254, f"shalott: {sentence}\n")
