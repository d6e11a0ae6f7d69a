"""The system ``compose``: a project of a user's own, as a compose file describes it.

It has no clients of its own: a program is the client (``--client``), of any of the shared
workloads. The file is read where a plan is made and where it is run; what judges a stored run needs
none.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from shalott.cluster.system import System
from shalott.cluster.systems.record import Parameters, Profile, Services, SystemRecord
from shalott.core.errors import MissingHere, UsageError
from shalott.core.parameters import make_parameters
from shalott.core.plan import Plan

if TYPE_CHECKING:
    from shalott.cluster.compose.project import Project

NAME = "compose"
SERVING = "client"  # what nodes host that clients connect to


class ComposeParameters(msgspec.Struct, frozen=True, kw_only=True):
    compose: Annotated[str, msgspec.Meta(description="The file.")] = ""


def project_of(parameters: Parameters) -> Project:
    """Raises UsageError: there is no file, or what it says is not honoured."""
    path = make_parameters(ComposeParameters, parameters).compose
    if not path:
        raise UsageError("--system compose takes its nodes from a file: --compose FILE")
    require_yaml()
    from shalott.cluster.compose.project import read_project

    return read_project(Path(path), os.environ)


def file_options(path: str) -> dict[str, str | bool | tuple[str, ...]]:
    """The options that the file gives itself. Raises UsageError."""
    require_yaml()
    from shalott.cluster.compose.project import options_in

    return options_in(Path(path), os.environ)


def require_yaml() -> None:
    if find_spec("yaml") is None:
        raise MissingHere("--compose needs the package pyyaml: pip install 'shalott[docker]'")


def _make(plan: Plan) -> System:
    from shalott.cluster.compose.system import ComposeSystem

    return ComposeSystem(project_of(plan.system.parameters))


def _places(parameters: Parameters) -> Services:
    nodes = project_of(parameters).nodes
    return {name: (SERVING,) if spec.ports else () for name, spec in nodes.items()}


def _check(plan: Plan) -> None:
    """The file may have changed since the plan was made. Raises UsageError."""
    nodes = tuple(project_of(plan.system.parameters).nodes)
    if nodes != plan.cluster.nodes:
        path = plan.system.parameters["compose"]
        raise UsageError(
            f"--compose {path}: its nodes are {', '.join(nodes)}, and the plan was made for"
            f" {', '.join(plan.cluster.nodes)}"
        )


COMPOSE = SystemRecord(
    name=NAME,
    summary="a project of your own, as a compose file describes it (containers only)",
    make=_make,
    speaks=(),
    workload="queue",
    profiles={"default": Profile()},
    parameters=ComposeParameters,
    check=_check,
    serves=SERVING,
    places=_places,
)
