"""A command's options come out of the structs that it takes, and the list of commands agrees."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from shalott.core.command_options import Argument, Option, Prefixed
from shalott.core.parameters import Flag
from shalott.harness.cli.commands import COMMANDS, ELSEWHERE
from shalott.harness.cli.options import SharedFlag, with_options

pytestmark = pytest.mark.unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    width: Annotated[int, Option("How wide.")] = 90
    is_open: Annotated[bool, Option("Whether one can go through.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    name: Annotated[str, Argument("How it is called.")]
    rooms: Annotated[tuple[str, ...], Option("One after the other.", ("--room", "-r"))] = ()
    roof: Annotated[str, Option("Of what it is.", after="height")] = "slate"
    door: Annotated[Door, Prefixed("door_")] = Door()
    given: Mapping[str, object] = field(default_factory=dict)
    unsaid: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    height: Annotated[float, Option("Above the sea.")] = 0.5


COLOUR = SharedFlag(Flag("colour", "colour", "text", "white", "Of the walls."), ("plaster",))


def build(*words: str) -> tuple[list[object], str]:
    """What the command was called with, and what was printed."""
    called: list[object] = []

    def command(house: House, site: Site) -> None:
        """Builds."""
        called.extend((house, site))

    command.__annotations__ = {"house": House, "site": Site}
    app = typer.Typer(add_completion=False)
    app.command()(with_options(command, (COLOUR,)))
    return called, CliRunner().invoke(app, list(words)).output


def test_fields_become_options_with_their_defaults() -> None:
    (house, site), _ = build("mill")
    assert (house, site) == (House(name="mill"), Site())


def test_what_was_typed_stands_in_the_fields() -> None:
    words = ("mill", "-r", "hall", "--room", "loft", "--door-is-open", "--door-width", "80")
    (house, site), _ = build(*words, "--height", "2", "--roof", "tin", "--colour", "red")
    assert house == House(
        name="mill",
        rooms=("hall", "loft"),
        roof="tin",
        door=Door(width=80, is_open=True),
        given={"colour": "red"},
    )
    assert site == Site(height=2.0)


def test_help_says_what_the_fields_say_in_the_order_that_they_want() -> None:
    _, printed = build("--help")
    flags = [word for word in printed.split() if word.startswith("--")]
    assert flags == [
        *("--room", "--door-width", "--door-is-open", "--height", "--roof", "--help-all", "--help")
    ]
    assert "Above the sea." in printed and "Of the walls." not in printed
    assert "--no-door-is-open" not in printed and "unsaid" not in printed


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ELSEWHERE])
def test_the_list_of_commands_says_what_each_says_itself(name: str) -> None:
    module = import_module(COMMANDS[name].module)
    first, _, _ = (inspect.getdoc(getattr(module, name.replace("-", "_"))) or "").partition("\n\n")
    assert COMMANDS[name].text == first


def test_what_is_not_common_is_shown_by_help_all() -> None:
    def command(house: House, site: Site) -> None:
        """Builds."""

    command.__annotations__ = {"house": House, "site": Site}
    app = typer.Typer(add_completion=False)
    app.command()(with_options(command, (COLOUR,), ("name", "height")))
    short = CliRunner().invoke(app, ["--help"]).output
    whole = CliRunner().invoke(app, ["--help-all"]).output
    assert "--height" in short and "--help-all" in short
    for flag in ("--roof", "--door-width", "--colour"):
        assert flag not in short and flag in whole
    assert CliRunner().invoke(app, ["x", "--roof", "tin", "--colour", "red"]).exit_code == 0
