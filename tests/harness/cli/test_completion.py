"""`shalott completion`: bash itself is asked what it would offer."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shalott.harness.cli.commands import COMMANDS, make_app
from shalott.harness.cli.main import run_command
from shalott.harness.cli.options import COMPLETE
from shalott.harness.run.store import PLAN
from tests.tidy.sources import ROOT

pytestmark = [
    pytest.mark.explore,
    pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash"),
]

# What bash does when Tab is pressed behind a line.
ASK = """
eval "$(shalott completion bash)"
read -ra COMP_WORDS <<<"$1"
[[ "$1" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
$(complete -p shalott | sed 's/.*-F \\([^ ]*\\) .*/\\1/') shalott
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """With a `shalott` on the path, and a store of one run."""
    program = tmp_path / "bin" / "shalott"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m shalott.harness.cli.main "$@"\n')
    program.chmod(0o755)
    run = tmp_path / "store" / "mirrored-safe-queue" / "20261128T010203.004Z"
    run.mkdir(parents=True)
    (run / PLAN).write_text("{}")
    (run.parent / "latest").symlink_to(run.name)
    return tmp_path


def offered(place: Path, line: str) -> list[str]:
    environment = {
        **os.environ,
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(place),
    }
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK, "bash", line],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


LINES: tuple[tuple[str, list[str]], ...] = (
    ("shalott re", ["report", "replay"]),
    ("shalott test --partition-", ["--partition-mode"]),  # not in --help
    ("shalott test --nemesis kill,pau", ["kill,pause"]),
    ("shalott analyze mir", ["mirrored-safe-queue/20261128T010203.004Z"]),
    ("shalott check x.edn --model cas", ["cas-register"]),
    ("shalott ctl set_perm", ["set_permissions"]),
)
MORE: tuple[tuple[str, list[str]], ...] = (
    ("shalott ", ["test", "check", "systems", "completion"]),
    ("shalott test --nemesis-", ["--nemesis-interval", "--nemesis-duration"]),
    ("shalott test --system mirr", ["mirrored"]),
    ("shalott test --workload q", ["queue"]),
    ("shalott test --system controller --layout ", ["together", "separate"]),
    ("shalott test --partition-mode pause", ["pause_minority"]),
    ("shalott check --mod", ["--model"]),
    ("shalott faults partition-h", ["partition-halves"]),
    ("shalott ctl claims --run lat", ["latest"]),
    ("shalott up mast", ["master-slave"]),
    ("shalott search --bug KB-RMQ-0", ["KB-RMQ-02"]),
    ("shalott test --load no_such_module --clu", ["--cluster"]),
)
NIGHTLY = pytest.mark.nightly("a second of a processor for each line")


@pytest.mark.parametrize(
    ("line", "some"), [*LINES, *(pytest.param(*each, marks=NIGHTLY) for each in MORE)]
)
def test_bash_completes(line: str, some: list[str], place: Path) -> None:
    found = offered(place, line)
    assert {*some} <= {*found}
    beginning = line.rpartition(" ")[2]
    assert all(each.startswith(beginning) for each in found)


def test_it_is_installed_for_good(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(place))
    assert run_command(["completion", "bash", "--install"]) == 0
    assert "bash completion installed in" in capsys.readouterr().out
    rc = (place / ".bashrc").read_text()
    script = Path(shlex.split(rc.split("source ", 1)[1])[0])
    assert script.is_file() and "complete -o default" in script.read_text()


@pytest.mark.parametrize("shell", ["zsh", "fish", "powershell"])
def test_other_shells_have_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", shell]) == 0
    assert COMPLETE in capsys.readouterr().out


def test_every_command_can_be_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What values there are is read of every command's own function."""
    monkeypatch.setenv(COMPLETE, "complete_bash")
    for name in COMMANDS:
        assert make_app((name,)).registered_commands
