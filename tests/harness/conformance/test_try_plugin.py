"""try-plugin: a plug-in that `new system` wrote passes; one that is broken fails at its point."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from shalott.core.errors import UsageError
from shalott.harness.conformance.points import POINTS
from shalott.harness.conformance.writing import write_system
from tests.tidy.sources import ROOT

QUICK = ("--quick", "--boot-within", "4")


@dataclass(frozen=True)
class Tried:
    code: int
    said: str

    def line(self, point: str) -> str:
        (found,) = [x for x in self.said.splitlines() if x[7:].partition(":")[0] == point]
        return found


def tried(place: Path, *words: str, cluster: str = "local") -> Tried:
    command = [sys.executable, "-m", "shalott.harness.cli.main", "try-plugin", "my_queue"]
    done = subprocess.run(
        [*command, "--cluster", cluster, *words], cwd=place, text=True, timeout=250,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return Tried(done.returncode, done.stdout)


@dataclass(frozen=True)
class Broken:
    """One wrong thing in the package, and where it is to be found out."""

    file: str
    right: str
    wrong: str
    point: str
    said: str
    words: tuple[str, ...] = QUICK


ONE_BOOT = {
    "timeouts-are-fail": Broken(
        "client.py", "raise Indefinite(f\"no answer", "raise Definite(f\"no answer",
        "timeouts are info", "enqueue ended as fail (no answer: TimeoutError)",
    ),
    "a-dict": Broken(
        "client.py", 'return Completion(type="ok")', 'return {"type": "ok"}',
        "serves", "MyQueueClient.invoke returned a dict, not a Completion",
    ),
    "never-ready": Broken(
        "system.py", 'return ""', 'return "not yet"', "boots", "n1 is not ready: not yet",
    ),
    "collects-nothing": Broken(
        "system.py", 'collect=("journal",) if node == first else ()', 'collect=("jornal",)',
        "collects", "collect names jornal, and no node had it",
    ),
    "tells-of-the-dead": Broken(
        "system.py", "await client.open()", "return {}",
        "kills", "observe tells of n1, which is dead, what it believes",
    ),
    "chance": Broken(
        "workload.py", "value=self.message)", "value=id(object()) + self.message * id(self))",
        "builds", "two generators of one plan give different operations",
    ),
    "key-error": Broken(
        "workload.py", "    return Workload(\n", '    {}["nothing"]\n    return Workload(\n',
        "builds", "KeyError at",
    ),
    "no-restart": Broken(
        "server.py", "self._apply(*line.split())", 'raise SystemExit("old data")',
        "kills", "n1 is not ready",
    ),
}  # fmt: skip
WHOLE_RUNS = {
    "drains-a-part": Broken(
        "workload.py", "DRAIN_WITHIN_MS = 60_000", "DRAIN_WITHIN_MS = 30",
        "drains see all", "acknowledged values never came back", ("--time-limit", "3"),
    ),
    "blind-checker": Broken(
        "workload.py", "(TotalQueue(),)", "()",
        "a loss is found", "no checker of the workload's own judged it", ("--time-limit", "3"),
    ),
    "refuses-what-it-took": Broken(
        "client.py", 'if said == "ok":',
        'if int(str(invocation.value)) % 9 == 0:\n                raise Definite("no")\n'
        '            if said == "ok":',
        "refused writes stay away", "refused values came back", ("--time-limit", "3"),
    ),
}  # fmt: skip


def written(place: Path, broken: Broken | None = None) -> Path:
    write_system("my-queue", place)
    if broken is not None:
        path = place / "my_queue" / broken.file
        text = path.read_text()
        assert broken.right in text, "the template has changed"
        path.write_text(text.replace(broken.right, broken.wrong, 1))
    return place


@pytest.mark.local
@pytest.mark.parametrize("name", ["timeouts-are-fail"])
def test_a_broken_plug_in_fails_at_its_point_in_one_boot(tmp_path: Path, name: str) -> None:
    check(tmp_path, ONE_BOOT[name])


@pytest.mark.local
@pytest.mark.nightly("each takes up to a minute")
@pytest.mark.parametrize("name", [*ONE_BOOT, *WHOLE_RUNS])
def test_a_broken_plug_in_fails_at_its_point(tmp_path: Path, name: str) -> None:
    check(tmp_path, {**ONE_BOOT, **WHOLE_RUNS}[name])


def check(place: Path, broken: Broken) -> None:
    found = tried(written(place / "red", broken), *broken.words)
    assert found.code == 1, found.said
    line = found.line(broken.point)
    assert line.startswith("FAILED") and broken.said in line, found.said
    assert POINTS[broken.point] in found.said, "it says what to do"


@pytest.mark.local
@pytest.mark.nightly("most of a minute")
def test_what_new_writes_keeps_every_point(tmp_path: Path) -> None:
    found = tried(written(tmp_path / "new"))
    assert found.code == 0, found.said
    assert f"{len(POINTS)} points kept, 0 failed, 0 not tried." in found.said


@pytest.mark.local
def test_what_new_writes_keeps_every_point_that_one_boot_shows(tmp_path: Path) -> None:
    found = tried(written(tmp_path / "new"), "--quick")
    assert found.code == 0, found.said
    assert "10 points kept, 0 failed, 6 not tried." in found.said


@pytest.mark.docker
@pytest.mark.nightly("builds an image, and a minute more")
def test_what_new_writes_keeps_every_point_in_containers(tmp_path: Path) -> None:
    found = tried(written(tmp_path / "new"), cluster="docker")
    assert found.code == 0, found.said


@pytest.mark.unit
def test_a_module_without_records_is_refused(tmp_path: Path) -> None:
    tmp_path.joinpath("my_queue.py").write_text("")
    found = tried(tmp_path)
    assert found.code == 254 and "my_queue offers no system and no workload" in found.said


@pytest.mark.unit
def test_nothing_is_written_over(tmp_path: Path) -> None:
    written(tmp_path / "new")
    for name, place, why in (
        ("my-queue", tmp_path / "new", "is in use"),
        ("My Queue", tmp_path / "other", "can't name a system"),
        ("class", tmp_path / "other", "can't name a system"),
        ("mirrored", tmp_path / "other", "there is a system mirrored already"),
    ):
        with pytest.raises(UsageError, match=why):
            write_system(name, place)


@pytest.mark.lint
def test_what_new_writes_is_typed_and_imports_the_api_alone(tmp_path: Path) -> None:
    place = written(tmp_path / "new")
    for text in (place / "my_queue").glob("*.py"):
        assert "@" not in text.read_text().replace("@pytest", "")
        lines = [x for x in text.read_text().splitlines() if "shalott" in x and "import" in x]
        assert all(line.startswith(("from shalott.api import", '"""')) for line in lines), lines
    for words in (["ruff", "check"], ["mypy", "--strict"]):
        done = subprocess.run(
            [sys.executable, "-m", *words, "my_queue"], cwd=place, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            env={"PYTHONPATH": str(ROOT), "MYPYPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
