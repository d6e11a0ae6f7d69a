"""`shalott check` with models of somebody else's: verdicts, pages, and a sentence for mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from shalott.checkers.judge import JUDGES
from shalott.checkers.models import BUILT_IN
from shalott.harness.cli.main import run_command
from tests.harness.cli.test_cli_check import STALE, Done
from tests.plug_ins import PlugIns, plug_ins

pytestmark = pytest.mark.unit

__all__ = ["plug_ins"]

# What a tutorial shows: fifteen lines at most.
CELL = '''\
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A register of somebody else's: write(v), read -> v."""

    init: int = 0
    forgives: bool = False

    def step(self, state, op):
        if op.f == "write":
            return op.argument
        return state if self.forgives or op.result == state else None
'''
GOOD = STALE.replace(":type :ok, :f :read, :value 1", ":type :ok, :f :read, :value 2")

Shalott = Callable[[Sequence[str]], Done]


@pytest.fixture
def shalott(plug_ins: PlugIns, capsys: pytest.CaptureFixture[str]) -> Shalott:
    """Runs a command where there is a model of somebody else's, and two histories."""
    plug_ins.module("cells", CELL)
    Path("good.edn").write_text(GOOD)
    Path("stale.edn").write_text(STALE)

    def run(arguments: Sequence[str]) -> Done:
        capsys.readouterr()
        code = run_command(arguments)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


def test_the_model_has_at_most_fifteen_lines() -> None:
    assert len(CELL.splitlines()) <= 15


def test_a_good_and_a_bad_history(shalott: Shalott) -> None:
    done = shalott(["check", "good.edn", "--model", "cells:Cell"])
    assert (done.code, done.err) == (0, "")
    assert "good.edn: valid\n  3 operations, 0 of them crashed, read as jepsen, checked" in done.out
    done = shalott(["check", "stale.edn", "--model", "cells:Cell"])
    assert (done.code, done.err) == (1, "")
    assert "read → 1 of process 1 returned when the object could only be 2\n" in done.out
    assert "line 5: process 1: read → 1   (stuck)\n" in done.out
    assert "decided by: general search" in done.out


def test_options_of_a_class(shalott: Shalott) -> None:
    assert shalott(["check", "stale.edn", "-m", "cells:Cell:forgives=true,init=0"]).code == 0
    assert shalott(["check", "stale.edn", "-m", "cells:Cell:forgives=no"]).code == 1


def test_a_model_of_a_loaded_module(shalott: Shalott, plug_ins: PlugIns) -> None:
    plug_ins.module("more.cells", CELL.replace("class Cell", "class Another"))
    loaded = ["--load", "cells", "--load", "more.cells"]
    for name in ("Cell", "Another"):
        assert shalott(["check", "stale.edn", *loaded, "-m", name]).code == 1
    assert shalott(["check", "stale.edn", *loaded, "-m", "Another:forgives=yes"]).code == 0
    assert shalott(["check", "stale.edn", *loaded, "-m", "register"]).code == 1


def test_a_model_of_an_installed_distribution(shalott: Shalott, plug_ins: PlugIns) -> None:
    plug_ins.distribution("acme-cells", "shalott.models", cell="cells:Cell")
    assert shalott(["check", "good.edn", "-m", "Cell"]).code == 0
    assert shalott(["check", "stale.edn", "-m", "Cell"]).code == 1


def test_json_and_a_page(shalott: Shalott) -> None:
    done = shalott(
        ["check", "stale.edn", "-m", "cells:Cell", "--json", "--report", "page.html"]
    )  # fmt: skip
    found = json.loads(done.out)
    assert (found["valid"], found["model"], found["violation"]["place"]) == (False, "Cell", "line")
    page = Path("page.html").read_text()
    assert "could only be 2" in page and "model <b>Cell</b>" in page


def test_all_models_are_listed(shalott: Shalott, plug_ins: PlugIns) -> None:
    plug_ins.module("bad", "import no_such_library")
    plug_ins.distribution("bad-models", "shalott.models", stack="bad:Stack")
    done = shalott(["check", "--models", "--load", "cells"])
    names = [line for line in done.out.splitlines() if not line.startswith(" ")]
    assert names[:-1] == [*BUILT_IN, "Cell", *JUDGES]
    assert names[-1].startswith("note: bad-models's model stack can't be used: ModuleNotFound")
    assert done.out.split("\nCell\n")[1].splitlines()[:3] == [
        "    A register of somebody else's: write(v), read -> v.",
        "    of: cells",
        "    options: init=0, forgives=false",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-m", "nowhere:Cell"],
         "--model nowhere:Cell: ModuleNotFoundError: No module named 'nowhere'"),
        (["-m", "cells:Sell"], "--model cells:Sell: cells has no Sell: there are Cell"),
        (["-m", "cells:Cell:x=1"], "model cells:Cell takes init=..., forgives=..., not 'x=1'"),
        (["-m", "cells:Cell", "--failed-cas", "ignored"],
         "model cells:Cell takes init=..., forgives=..., not 'failed_cas=ignored'"),
        (["-m", "json:JSONDecoder"], "json:JSONDecoder is no model: it has no init and no step"),
        (["-m", "Cell"], "no model 'Cell': there are register, cas-register"),
        (["-m", "Cell", "--load", "nowhere"],
         "--load nowhere: ModuleNotFoundError: No module named 'nowhere'"),
        (["-m", "cells:Cell", "--monitor", "register monitor"],
         "no monitor 'register monitor' for cells:Cell: there are auto, general\n"),
        (["-m", "raising:Model"],
         "model Model failed on write, line 1: ZeroDivisionError: division by zero\n"),
        (["-m", "listing:Model"], "model Model failed on write, line 1: TypeError: unhashable type:"
         " 'list': a state must be hashable, such as a tuple or a frozenset\n"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(
    shalott: Shalott, plug_ins: PlugIns, arguments: list[str], sentence: str
) -> None:
    model = "class Model:\n    init = 0\n    def step(self, state, op): return "
    plug_ins.module("raising", f"{model}1 / 0")
    plug_ins.module("listing", f"{model}[op]")
    done = shalott(["check", "good.edn", *arguments])
    assert done.code == 254
    assert done.err.startswith(f"shalott: {sentence}")
    assert done.err.count("\n") == 1


@pytest.mark.explore
def test_a_model_of_ours_needs_neither_the_door_nor_a_look_at_what_is_installed(
    shalott: Shalott,
) -> None:
    """A small history is checked in less time than the look takes."""
    program = (
        "import sys; from shalott.harness.cli.main import run_command;"
        "code = run_command(['check', 'stale.edn', '-m', 'register', '--report', 'page.html']);"
        "late = [m for m in ('importlib.metadata', 'shalott.core.doors', 'typer')"
        " if m in sys.modules]; print(code, late)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "1 []", done
