"""Compose projects with clients that are programs: what is found, and what is not.

No registry is asked: images of Debian's packages stand for the stock ones.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.runs import Done, shalott
from tests.tidy.sources import ROOT

pytestmark = [
    pytest.mark.docker,
    pytest.mark.nightly("boots containers of others' brokers"),
    pytest.mark.timeout(1200),  # the first of them builds images
]

HERE = Path(__file__).parent / "compose"
EXAMPLES = ROOT / "examples" / "programs"
GUIDE = ROOT / "docs" / "getting-started" / "test-your-system.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUICK = ("--time-limit", "20", "--nemesis-interval", "8", "--nemesis-duration", "3", "--rate", "50")
needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")


def stand_in(name: str, tag: str) -> str:
    subprocess.run(["docker", "build", "-q", "-t", tag, str(HERE / "images" / name)], check=True)
    return tag


@pytest.fixture(scope="module")
def images() -> dict[str, str]:
    return {
        "REDIS_IMAGE": stand_in("redis", "shalott-test-redis:7"),
        "NATS_IMAGE": stand_in("nats", "shalott-test-nats:2"),
    }


def run(place: Path, images: dict[str, str], *words: str, **more: str) -> Done:
    own = {"PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **own, **images, **more}
    return shalott(["test", *words, *QUICK], place, environment=environment)


@needs_go
def test_two_files_and_one_command_find_what_redis_forgets(
    tmp_path: Path, images: dict[str, str]
) -> None:
    """Three nodes, a client in Go: what was acknowledged is lost with the memory of the leader, and
    is not with its file."""
    for name in ("compose.yaml", "client.go"):
        shutil.copy(EXAMPLES / "redis" / name, tmp_path)
    lost = run(tmp_path, images, "--compose", "compose.yaml", "--seed", "1")
    assert lost.exit_code == 1, (lost.stdout, lost.stderr)
    assert re.search(r"Invalid: [\d,]+ acknowledged messages were lost", lost.stdout)
    kept = run(tmp_path, images, "--compose", "compose.yaml", "--seed", "1", AOF="yes")
    assert kept.exit_code == 0, (kept.stdout, kept.stderr)
    assert "Valid: nothing was lost of" in kept.stdout


@needs_go
@pytest.mark.parametrize(
    ("system", "client", "workload"),
    [
        ("redis", "client.sh", "partitions"),
        ("nats", "client.sh", "partitions"),
        ("nats", "client.go", "queue"),
    ],
)
def test_examples_in_go_and_shell(
    system: str, client: str, workload: str, tmp_path: Path, images: dict[str, str]
) -> None:
    """With disks that are synced, or three replicas, kills lose nothing that was acknowledged."""
    example = EXAMPLES / system
    assert len((example / client).read_text().splitlines()) < 80
    done = run(
        tmp_path, images, "--compose", str(example / "compose.yaml"), "--seed", "2",
        "--client", str(example / client), "--workload", workload, "--nemesis", "kill",
        "--min-acked", "10", AOF="yes",
    )  # fmt: skip
    assert done.exit_code == 0, (done.stdout, done.stderr)


def test_a_file_with_much_in_it(tmp_path: Path, images: dict[str, str]) -> None:
    """A build, replicas, a job before and one after, a helper, secrets, volumes that are shared and
    own; under faults of processes, links and disks."""
    shutil.copytree(HERE / "rich", tmp_path / "rich")
    done = run(tmp_path, images, "--compose", "rich/compose.yaml", "--seed", "3")
    assert done.exit_code == 0, (done.stdout, done.stderr)
    assert re.search(r"Valid: .* linearizable", done.stdout)
    assert "power" in done.stderr


@pytest.mark.parametrize("how", ["dies", "stalls", "no-json", "wrong-id", "floods-errors"])
def test_a_client_that_goes_wrong_is_no_verdict(
    how: str, tmp_path: Path, images: dict[str, str]
) -> None:
    strange = ROOT / "tests" / "clients" / "programs" / "strange.py"
    done = run(
        tmp_path, images, "--compose", str(EXAMPLES / "redis" / "compose.yaml"), "--seed", "1",
        "--client", f"{sys.executable} {strange} {how} 0", "--nemesis", "none",
        "--workload", "register", "--op-timeout", "1", "--targets", "one",
    )  # fmt: skip
    assert done.exit_code == 2, (done.stdout, done.stderr)
    assert "client's program broke" in (done.directory.path / "results.json").read_text()


def test_what_a_project_can_not_have_is_said_before_it_boots(
    tmp_path: Path, images: dict[str, str]
) -> None:
    (tmp_path / "compose.yaml").write_text("services: {a: {image: x, expose: [1], gpus: all}}\n")
    (tmp_path / "failing.yaml").write_text(
        "services:\n"
        "  a: {image: '${REDIS_IMAGE}', expose: [6379], depends_on: {job: {condition:"
        " service_completed_successfully}}}\n"
        "  job: {image: '${REDIS_IMAGE}', command: sh -c 'echo it is broken; exit 3'}\n"
    )
    refused = run(tmp_path, images, "--compose", "compose.yaml", "--client", "cat")
    assert refused.exit_code == 254
    assert "services.a.gpus is not honoured" in refused.stderr
    failed = run(
        tmp_path, images, "--compose", "failing.yaml", "--client", "cat", "--nemesis", "kill"
    )
    assert failed.exit_code == 255
    assert "job: it ended with exit code 3" in failed.stdout + failed.stderr


@pytest.fixture
def stock_redis() -> Iterator[None]:
    """The image that the guide names, where it can be neither found nor pulled."""
    there = ["docker", "image", "inspect", "redis:7"]
    is_ours = subprocess.run(there, capture_output=True).returncode != 0
    if is_ours:
        stand_in("redis", "redis:7")
    yield
    if is_ours:
        subprocess.run(["docker", "image", "rm", "redis:7"], capture_output=True, check=True)


def test_the_guide_word_by_word(tmp_path: Path, stock_redis: None) -> None:
    """Every file is written and every command is typed as the page has it, in its order."""
    text, at = GUIDE.read_text(), 0
    verdicts: list[int] = []
    for found in BLOCK.finditer(text):
        kind, body = found.groups()
        if kind != "sh":
            named = re.findall(r"into\s+`([\w.]+)`", text[at : found.start()])
            (tmp_path / named[-1]).write_text(body)
        for command in body.splitlines() if kind == "sh" else ():
            if command.startswith("shalott "):
                done = shalott(command.split()[1:], tmp_path)
                verdicts.append(done.exit_code)
                assert done.exit_code in (0, 1), (done.stdout, done.stderr)
            else:
                subprocess.run(command, shell=True, cwd=tmp_path, check=True)
        for program in re.findall(r"`chmod \+x ([\w.]+)`", text[at : found.start()]):
            path = tmp_path / program
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        at = found.end()
    assert verdicts == [1, 0], "lost, and mended"
    assert not os.access(tmp_path / "compose.yaml", os.X_OK)
