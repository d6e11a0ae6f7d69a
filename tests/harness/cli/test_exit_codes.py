"""No command ends with 1 or 2 without a verdict, or shows a traceback: see exit_code_fuzz.py."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from shalott.harness.cli.main import run_command
from tests.harness.cli.exit_code_fuzz import SIMULATED, Call, Ended, campaign, perform

pytestmark = pytest.mark.explore

CALLS = int(os.environ.get("SHALOTT_FUZZ_CALLS", "40"))
SEED = int(os.environ.get("SHALOTT_FUZZ_SEED", "1"))
HISTORY = """{:type :invoke, :f :write, :value 1, :process 0, :time 1}
{:type :ok, :f :write, :value 1, :process 0, :time 2}
{:type :invoke, :f :read, :value nil, :process 1, :time 3}
{:type :ok, :f :read, :value 2, :process 1, :time 4}
"""
NIGHT = """
name = "nightly"
[[cells]]
system = ["mirrored"]
cluster = ["sim"]
profile = ["safe"]
seed = [1]
time_limit = ["2s"]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a valid run and an invalid one, and each of their files damaged in some way."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    place = tmp_path / "place"
    (place / "empty").mkdir(parents=True)
    monkeypatch.chdir(place)
    for more in (("--nemesis", "none"), ("--nemesis", "partition-halves", "--time-limit", "12")):
        run_command(["test", *SIMULATED, *more])
    (place / "night.toml").write_text(NIGHT)
    (place / "invalid.edn").write_text(HISTORY)
    (place / "big.edn").write_text(HISTORY.replace("2,", f"{'9' * 5000},"))
    rng = random.Random(1)
    run = (place / "store" / "latest").resolve()
    for file in [*run.iterdir(), place / "invalid.edn", place / "night.toml"]:
        if file.is_file():
            damage(file, rng)
    shutil.copytree(run, place / "store" / "damaged", symlinks=True)
    for file in (place / "store" / "damaged").iterdir():
        if file.is_file() and rng.random() < 0.5:
            file.write_bytes(damaged(file.read_bytes(), rng))
    return place


def damage(file: Path, rng: random.Random) -> None:
    """Lays a damaged copy beside it."""
    name = f"{file.stem}-damaged{file.suffix}"
    file.with_name(name).write_bytes(damaged(file.read_bytes(), rng))


def damaged(content: bytes, rng: random.Random) -> bytes:
    spot = rng.randrange(len(content) + 1)
    damages = (
        content[:spot],
        content[:spot] + b"\xff" + content[spot + 1 :],
        b"",
        content + content[:spot],
        content.replace(b"1", b"9" * 5000, 1),
        content.replace(b'"', b"", 1),
    )
    return rng.choice(damages)


def test_random_calls_end_as_they_should(place: Path) -> None:
    faults = campaign(place, CALLS, SEED)
    assert faults == [], f"{len(faults)} of {CALLS} calls:\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("ended", "fault"),
    [
        (Ended(1, "", "shalott: no such thing"), "ended with 1 without a verdict"),
        (Ended(2, "", ""), "ended with 2 without a verdict"),
        (Ended(-9, "", ""), "ended with -9"),
        (Ended(1, "Invalid", "Traceback (most recent call last):"), "a traceback was shown"),
        (Ended(255, "", "shalott: the harness failed: KeyError: 'x' (a, line 1); its traceback is"
               " in errors.log"), "nobody foresaw"),
    ],
)  # fmt: skip
def test_what_may_not_be_is_a_fault(ended: Ended, fault: str) -> None:
    (found,) = ended.faults(Call(("check", "x"), Path("/"), ""))
    assert fault in found


def test_an_exit_of_python_is_seen(place: Path) -> None:
    module = "import os\nos._exit(7)"
    ended = perform(Call(("runs", "--load", "broken"), place, module))
    assert ended.code in (7, 254)
