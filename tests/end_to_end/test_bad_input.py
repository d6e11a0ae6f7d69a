"""What users get wrong, and what machines do to them: one sentence that says what to do, the right
exit code, nothing started, and nothing lost that was recorded."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.plan import PLAN_VERSION, Plan, dump_plan
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.workloads.record import WORKLOADS
from tests.conftest import why_no_spark
from tests.end_to_end.leftovers import leftovers
from tests.end_to_end.runs import Done, Running, shalott

pytestmark = pytest.mark.local

BAD_ARGUMENTS = 254
HARNESS_FAILED = 255
BRIEFLY = ("--nodes", "1", "--nemesis", "none", "--time-limit", "1s", "--min-acked", "1")


def assert_refused(done: Done, code: int, *parts: str) -> None:
    """One sentence is all it said, and nothing was begun."""
    assert done.exit_code == code, done
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert len(done.complaints) == 1
    for part in parts:
        assert part in done.stderr
    assert not (done.cwd / "store").exists()


@pytest.mark.parametrize(
    ("flag", "known"),
    [
        ("workload", ", ".join(sorted(WORKLOADS.names()))),
        ("system", ", ".join(sorted(SYSTEMS.names()))),
        ("nemesis", "partition, "),
        ("profile", "upstream, safe"),
        ("cluster", "auto, docker, local"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(
    flag: str, known: str, tmp_path: Path
) -> None:
    done = shalott(["test", f"--{flag}", "atlantis"], tmp_path)
    assert_refused(done, BAD_ARGUMENTS, f"unknown {flag} atlantis: choose one of {known}")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--system", "controller", "--layout", "x"),
            "unknown layout x: choose one of together, separate, standalone",
        ),
        (
            ("--system", "controller", "--layout", "standalone"),
            "--layout standalone of controller needs at least 4 nodes, 2 of them brokers, and the"
            " plan has 3: use --nodes 7",
        ),
        (
            ("--layout", "separate"),
            "mirrored has no services to lay out on its nodes: leave out --layout, or use --system"
            " controller",
        ),
    ],
)
def test_a_layout_that_can_not_be_is_refused(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    assert_refused(shalott(["test", *arguments], tmp_path), BAD_ARGUMENTS, sentence)


def good_plan() -> Plan:
    request = Request(nodes="1", nemesis="none", time_limit="1s", min_acked=1)
    return make_plan(request, backend="local", seed=1)


def changed(text: bytes, *, old: str, new: str) -> bytes:
    assert text.count(old.encode()) == 1
    return text.replace(old.encode(), new.encode())


BAD_PLANS = {
    "not JSON": (b"name: x\n", "is not a plan: JSON is malformed"),
    "empty": (b"", "is not a plan: Input data was truncated"),
    "not a plan": (b"{}", "is not a plan: Object missing required field `name`"),
    "a wrong type": (
        changed(dump_plan(good_plan()), old='"seed": 1,', new='"seed": "one",'),
        "is not a plan: Expected `int`, got `str` - at `$.seed`",
    ),
    "an unknown field": (
        changed(dump_plan(good_plan()), old='"seed": 1,', new='"seed": 1, "sead": 2,'),
        "is not a plan: Object contains unknown field `sead`",
    ),
    "another version": (
        dump_plan(msgspec.structs.replace(good_plan(), version=PLAN_VERSION + 1)),
        f"is a plan of version {PLAN_VERSION + 1}; this is version {PLAN_VERSION}",
    ),
    "an unknown system": (
        changed(
            dump_plan(good_plan()),
            old='"system": {\n    "name": "mirrored"',
            new='"system": {\n    "name": "atlantis"',
        ),
        "unknown system atlantis: choose one of compose, controller, dledger, master-slave",
    ),
}


@pytest.mark.parametrize("case", BAD_PLANS.values(), ids=BAD_PLANS.keys())
def test_a_bad_plan_is_refused_with_the_reason(case: tuple[bytes, str], tmp_path: Path) -> None:
    content, sentence = case
    (tmp_path / "plan.json").write_bytes(content)
    done = shalott(["test", "--plan", "plan.json"], tmp_path)
    assert_refused(done, BAD_ARGUMENTS, sentence)


def test_the_plan_that_the_bad_ones_are_made_from_is_good(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(dump_plan(good_plan()))
    done = shalott(["test", "--plan", "plan.json"], tmp_path)
    assert done.exit_code == 0, done
    assert leftovers(done) == []


# -- the machine -----------------------------------------------------------------------------------


@contextmanager
def forbidden_socket(path: Path) -> Iterator[tuple[dict[str, str], tuple[str, ...]]]:
    """An engine that nobody may talk to: the environment that names it, and what takes away root's
    right to talk to it nevertheless."""
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may do anything, and there is no setpriv to give that up")
        prefix = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(path))
        engine.listen()
        path.chmod(0)
        yield {**os.environ, "DOCKER_HOST": f"unix://{path}"}, prefix


def test_no_permission_on_the_docker_socket(tmp_path: Path) -> None:
    with forbidden_socket(tmp_path / "engine.sock") as (environment, prefix):
        done = shalott(
            ["test", "--cluster", "docker"], tmp_path, environment=environment, prefix=prefix
        )
    assert_refused(done, BAD_ARGUMENTS, "no permission on the Docker socket", "usermod -aG docker")


def test_without_permission_auto_takes_local_nodes_and_says_why(tmp_path: Path) -> None:
    with forbidden_socket(tmp_path / "engine.sock") as (environment, prefix):
        done = shalott(["test", *BRIEFLY], tmp_path, environment=environment, prefix=prefix)
    assert done.exit_code == 0, done
    said = done.stderr.splitlines()[0]
    assert said.startswith("cluster local: one process a node, since no permission on the Docker")
    assert leftovers(done) == []


def test_no_docker_engine(tmp_path: Path) -> None:
    environment = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/nothing.sock"}
    done = shalott(["test", "--cluster", "docker"], tmp_path, environment=environment)
    assert_refused(done, BAD_ARGUMENTS, "no Docker engine on this machine", "apt-get install")
    done = shalott(["test", "--system", "rabbitmq"], tmp_path, environment=environment)
    assert_refused(done, BAD_ARGUMENTS, "rabbitmq runs in containers or on hosts over SSH")


def test_spark_without_java(tmp_path: Path) -> None:
    if "pyspark" in (why_no_spark() or ""):
        pytest.skip("without pyspark that is what is missing first")
    (tmp_path / "runs").mkdir()
    environment = {**os.environ, "PATH": str(tmp_path)}
    environment.pop("JAVA_HOME", None)
    done = shalott(["report", "runs", "--engine", "spark"], tmp_path, environment=environment)
    install = "sudo apt-get install -y default-jre-headless"
    assert_refused(done, BAD_ARGUMENTS, "needs Java", install)


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """A file system of its own at ``path``, with room for a few megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> None:
    """Write to the file until the disk is full."""
    with path.open("wb", buffering=0) as ballast:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    ballast.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC


def test_a_full_disk_while_recording_ends_the_run_and_keeps_what_was_recorded(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    with small_disk(store):
        arguments = ["test", "--cluster", "local", "--profile", "safe", "--nemesis", "pause"]
        arguments += ["--time-limit", "90", "--nemesis-interval", "2", "--nemesis-duration", "70"]
        with Running([*arguments, "--rate", "100", "--seed", "3"], tmp_path) as running:
            running.await_fault()
            fill(store / "ballast")
            done = running.wait()
        assert done.exit_code == HARNESS_FAILED, done
        assert len(done.complaints) == 1, done.stderr
        assert "the harness failed, which is no verdict on the broker: " in done.complaints[0]
        assert "cannot record the history in " in done.complaints[0]
        assert "No space left on device" in done.complaints[0]
        assert "what was recorded before is kept: free some space" in done.complaints[0]
        assert "Traceback" not in done.stderr
        assert leftovers(done) == []
        assert done.history.ops.num_rows > 100
        assert done.rows("pause")[0]["complete_ns"] is not None, "nobody tried to heal it"
        (store / "ballast").unlink()
        again = shalott(["analyze"], tmp_path)
        assert again.exit_code == 2, again
        assert again.complaints == []
        assert "it was cut short in the phase load" in again.stdout


def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with small_disk(store):
        fill(store / "ballast")
        done = shalott(["test", "--cluster", "local", *BRIEFLY], tmp_path)
        assert done.exit_code == HARNESS_FAILED, done
        assert len(done.complaints) == 1, done.stderr
        assert "No space left on device" in done.complaints[0]
        assert "Traceback" not in done.stderr
        assert leftovers(done) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"PAR1 and then nothing", "cannot read"),
        (b"\x00\x01\x02", "is no history that is known"),
        (b"{:process 0, :type :invoke, :f :read}\n" * 2,
         "line 2, column 1: process 0 invokes an operation while the one that it invoked in line 1"
         " is open"),
        (b"[1] call add(1)\n[2] return\n", "line 2, column 1: operation 2 completes, but is not"),
        (b'{"index":0,"type":"invoked","at_ns":1}\n', "line 1, column 20: a type is invoke, ok"),
    ],
)  # fmt: skip
def test_a_history_that_cannot_be_read_is_refused(
    content: bytes, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "history").write_bytes(content)
    done = shalott(["check", "history", "--model", "register"], tmp_path)
    assert_refused(done, BAD_ARGUMENTS, sentence)
