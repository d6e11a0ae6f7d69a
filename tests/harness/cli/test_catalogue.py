"""`shalott systems` and its like: all that there is, told as the pages tell it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from shalott.checkers.checker import CHECKERS
from shalott.checkers.judge import JUDGES
from shalott.checkers.models.outside import MODELS
from shalott.cluster.systems.record import SYSTEMS
from shalott.harness.cli import catalogue
from shalott.harness.cli.catalogue import KINDS
from shalott.harness.cli.main import run_command
from shalott.harness.cli.markdown import refitted
from shalott.harness.cli.near_names import unknown
from shalott.harness.cli.reference import PAGES
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.nemesis.record import FAULTS, nemesis_names
from shalott.workloads.record import WORKLOADS
from tests.docs.pages import DOCS
from tests.plug_ins import PlugIns, plug_ins

__all__ = ["plug_ins"]
pytestmark = pytest.mark.unit

EVERY = [(command, name) for command in KINDS for name in KINDS[command].entries()]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run_command(words) == 0
    return capsys.readouterr().out


def example_of(command: str, name: str) -> str:
    return KINDS[command].entries()[name].example()


def test_a_list_has_every_name_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for command, names in {
        "systems": SYSTEMS.names(),
        "faults": nemesis_names(),
        "workloads": WORKLOADS.names(),
        "checkers": CHECKERS.names(),
        "models": (*MODELS.names(), *JUDGES),
    }.items():
        lines = told(capsys, command).splitlines()
        for name in names:
            assert any(re.match(rf"{re.escape(name)} +\S", line) for line in lines), name
        assert f"`shalott {command} NAME` tells all about one." in lines


@pytest.mark.parametrize(("command", "name"), EVERY)
def test_what_is_told_of_one_stands_on_its_page(command: str, name: str) -> None:
    """But parameters that several workloads have stand with the first of them."""
    page = (DOCS / "reference" / f"{command}.md").read_text()
    head, _, parameters = KINDS[command].entries()[name].text().partition("\n\nParameters:")
    assert head in page and parameters in page
    if command != "workloads":
        assert f"{head}\n\nParameters:{parameters}" in page or not parameters


def test_a_system_tells_its_settings_with_types_its_faults_and_promises(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = " ".join(told(capsys, "systems", "mirrored").split())
    assert "- `--net-tick` TIME (`4s`): Silence before a peer is down." in text
    assert "- `--memory-limit-bytes` INTEGER (`0`): " in text
    assert "Under `safe` it promises: " in text
    assert "- Faults: all but `failover`, `stray-report`." in text
    faults = text.partition("- Faults that fit: ")[2].partition(".")[0].split(", ")
    assert {"kill", "partition-halves"} <= {*faults} and "failover" not in faults
    assert text.endswith("shalott test --system mirrored --cluster sim --time-limit 30")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("systems", "mirored"), "unknown system mirored: did you mean mirrored?"),
        (("faults", "partition-half"), "did you mean partition-halves"),
        (("workloads", "Queue"), "did you mean queue?"),
        (("checkers", "xyzzy"), "unknown checker xyzzy: nothing has a name like it"),
        (("models", "cas-registre"), "did you mean cas-register"),
        (("systems", "xyzzy"), "choose one of compose, controller"),
        (("up", "mirored"), "unknown system mirored: did you mean mirrored?"),
        (("ctl", "list_queue"), "unknown verb list_queue: did you mean list_queues"),
        (("completion", "bsh"), "unknown shell bsh: did you mean bash"),
    ],
)
def test_an_unknown_name_is_254_and_names_the_near_ones(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(words) == 254
    assert sentence in capsys.readouterr().err


def test_where_nothing_is_near_few_are_all_named() -> None:
    assert "choose one of one, two;" in str(unknown("thing", "xyzzy", ("one", "two"), "x"))
    many = unknown("thing", "xyzzy", map(str, range(99)), "shalott things")
    assert str(many).endswith("nothing has a name like it; `shalott things` lists all")


PLUGIN = '''
from dataclasses import replace
from shalott.cluster.systems.record import SYSTEMS
from shalott.checkers.models.collections import Stack

OURS = replace(SYSTEMS.find("mirrored"), name="mirrored-too", summary="another one")


class Pile(Stack):
    """A pile of things. More of it."""

    name = "pile"
'''


def test_what_is_loaded_is_listed_with_its_provider(
    plug_ins: PlugIns, capsys: pytest.CaptureFixture[str]
) -> None:
    plug_ins.module("pile_plugin", PLUGIN)
    load = ("--load", "pile_plugin")
    listed = told(capsys, "systems", *load)
    assert "mirrored-too  another one (of pile_plugin)\n" in listed
    text = told(capsys, "systems", "mirrored-too", *load)
    assert "Provided by pile_plugin." in text
    assert "shalott test --load pile_plugin --system mirrored-too --cluster sim" in text
    assert "pile" in told(capsys, "models", *load)
    assert "A pile of things" in told(capsys, "models", "pile", *load)
    assert "`mirrored-too`" in told(capsys, "workloads", "queue", *load)
    assert "mirrored-too" not in PAGES["workloads.md"]()


@pytest.mark.parametrize("name", MODELS.names())
def test_a_models_example_can_be_typed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, _, command = example_of("models", name).partition(" | ")
    (tmp_path / "typed").write_text(shlex.split(line)[1] + "\n")
    words = [str(tmp_path / "typed") if word == "-" else word for word in shlex.split(command)]
    assert run_command(words[1:]) == 0
    assert ": valid\n" in capsys.readouterr().out


def test_every_example_of_a_run_makes_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def plan(request: Request, **_: object) -> int:
        asked.append(request.nemesis)
        make_plan(request, backend=request.cluster, seed=1)
        return 0

    monkeypatch.setattr("shalott.harness.cli.test.run_request", plan)
    monkeypatch.setattr("shalott.harness.run.request._check_engine", lambda request: None)
    examples = {example_of(command, name) for command, name in EVERY if command != "models"}
    of_a_file = {each for each in examples if "--compose" in each}  # which is a user's own
    assert len(of_a_file) == 1
    for example in sorted(examples - of_a_file):
        assert run_command(shlex.split(example)[1:]) == 0, example
    assert {*asked} >= {*FAULTS.names(), "partition"}


def simulated() -> list[str]:
    examples = {example_of(command, name) for command, name in EVERY if command != "models"}
    return sorted(each for each in examples if "--cluster sim" in each)


@pytest.mark.sim
@pytest.mark.nightly("a run for each fault and workload")
@pytest.mark.parametrize("example", simulated())
def test_an_example_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command([*shlex.split(example)[1:], "--seed", "1", "--rate", "20"]) in (0, 1, 2)


def test_a_text_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = KINDS["systems"].entries()["rabbitmq"].text()
    narrow = refitted(text, 60)
    assert max(map(len, narrow.splitlines())) <= 62
    assert narrow.split() == text.split()
    assert refitted(text, 120) == text
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    assert catalogue.columns() == 120
