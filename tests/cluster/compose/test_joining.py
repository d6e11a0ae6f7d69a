"""Services that extend others, and projects that a compose file includes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from shalott.cluster.compose.project import Project, read_project
from shalott.cluster.nodes import ContainerSpec
from shalott.cluster.services import HEALTHY
from shalott.core.errors import UsageError

pytestmark = pytest.mark.unit


def project(directory: Path, files: Mapping[str, str], **environment: str) -> Project:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return read_project(directory / "compose.yaml", environment)


def container(found: Project, name: str) -> ContainerSpec:
    (told,) = [s.containers[name].container for s in found.services if name in s.containers]
    assert told is not None
    return told


def test_a_service_has_what_it_extends_and_over_it_its_own(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        {
            "compose.yaml": """
                services:
                  base:
                    image: x
                    expose: [1]
                    command: [one, two]
                    environment: {A: 1, B: 2}
                    cap_add: [NET_ADMIN]
                    volumes: ["old:/data", "./conf:/conf:ro"]
                    healthcheck: {test: [CMD, ping], retries: 7, interval: 30s, timeout: 10s}
                    depends_on: [helper]
                    x-shalott: {node: true}
                  one:
                    extends: base
                    command: three
                    environment: [B=3, C]
                    cap_add: [SYS_NICE, NET_ADMIN]
                    volumes: ["new:/data"]
                    healthcheck: {test: pong}
                    depends_on: {helper: {condition: service_healthy}}
                  two: {extends: {service: one}, user: "5"}
                  helper: {image: y, healthcheck: {test: ping}}
                volumes: {old: , new: }
                """,
            "conf": "",
        },
        C="outer",
    )
    one = container(found, "one")
    assert one.config["Cmd"] == ["three"]
    assert one.config["Env"] == ["A=1", "B=3", "C=outer"]
    assert one.host["CapAdd"] == ["NET_ADMIN", "SYS_NICE"]
    assert (one.shared, one.binds) == ({"/data": "new"}, {"/conf": str(tmp_path / "conf")})
    assert one.health is not None
    assert (one.health.words, one.health.patience_s) == (("/bin/sh", "-c", "pong"), 280)
    assert [each.waits for each in found.services if each.name == "one"] == [{"helper": HEALTHY}]
    assert container(found, "two").config == {**one.config, "User": "5"}
    assert list(found.nodes) == ["base", "one", "two"]


def test_paths_of_another_file_are_relative_to_it(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        {
            "compose.yaml": """
                services:
                  a: {extends: {file: sub/base.yaml, service: b}, environment: {OWN: 1}}
                """,
            "sub/base.yaml": """
                services:
                  c: {build: ., expose: [1], env_file: c.env, volumes: ["./conf:/conf:ro"]}
                  b: {extends: {service: c}}
                """,
            "sub/c.env": "C=1\n",
            "sub/conf": "",
            "sub/Dockerfile": "FROM x\n",
        },
    )
    told = container(found, "a")
    assert told.build is not None and told.build.context == str(tmp_path / "sub")
    assert told.binds == {"/conf": str(tmp_path / "sub/conf")}
    assert told.config["Env"] == ["C=1", "OWN=1"]


def test_an_included_project_s_entries_are_this_one_s(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        {
            ".env": "TAG=outer\n",
            "compose.yaml": """
                include:
                  - sub/other.yaml
                  - {path: third.yaml, env_file: third.env}
                services:
                  a: {image: "x:${TAG}", expose: [1], depends_on: [b]}
                """,
            "sub/.env": "TAG=inner\nMORE=inner\n",
            "sub/other.yaml": """
                name: other
                x-any: 1
                services:
                  b: {image: "x:${TAG}", expose: [1], labels: ["m=$MORE"], secrets: [key],
                      environment: ["M=$MORE"], volumes: ["v:/v"]}
                volumes: {v: }
                secrets: {key: {file: ./key}}
                """,
            "sub/key": "k",
            "third.env": "THIRD=3\n",
            "third.yaml": "services: {c: {image: y, environment: ['T=$THIRD']}}\n",
        },
    )
    assert list(found.nodes) == ["a", "b"]
    assert {spec.image for spec in found.nodes.values()} == {"x:outer"}
    told = container(found, "b")
    assert told.copies == {"/run/secrets/key": str(tmp_path / "sub/key")}
    assert (told.config["Env"], told.data) == (["M=inner"], "/v")
    assert container(found, "c").config["Env"] == ["T=3"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("services: {a: {extends: a}}", "services.a.extends: it extends itself"),
        ("services: {a: {extends: b}, b: {extends: a}}", "extends: it extends itself"),
        ("services: {a: {extends: {file: b.yaml, service: c}}}", "no service c in b.yaml"),
        ("services: {a: {extends: {file: no.yaml, service: c}}}", "no.yaml: it can't be read"),
        ("services: {a: {extends: {service: b, only: x}}, b: {}}", "extends.only is not honoured"),
        ("services: {a: {extends: {file: b.yaml}}}", "say which service"),
        ("services: {a: {extends: {file: b.yaml, service: b}}}", "services.a.gpus is not honoured"),
        ("include: compose.yaml\nservices: {}", "it includes itself"),
        ("include: [{path: [b.yaml, c.yaml]}]", "include takes the path of one file each"),
        ("include: [{path: b.yaml, profiles: x}]", "include.profiles is not honoured"),
        ("include: b.yaml\nservices: {b: {image: z}}", "services.b is in what it includes, too"),
        ("include: c.yaml", "c.yaml: networking is not honoured"),
    ],
)
def test_what_can_not_be_joined_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    others = {
        "b.yaml": "services: {b: {image: x, gpus: all}}\n",
        "c.yaml": "networking: {}\nservices: {}\n",
    }
    with pytest.raises(UsageError, match=said):
        project(tmp_path, {**others, "compose.yaml": text})
