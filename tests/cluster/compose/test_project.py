"""What a compose file means to a run, and what of it is refused by its name."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from shalott.cluster.compose.document import (
    environment_beside,
    fill_in,
    read_document,
    read_environment,
)
from shalott.cluster.compose.project import Project, options_in, read_project
from shalott.cluster.nodes import Build, ContainerSpec, Health
from shalott.cluster.services import COMPLETED, HEALTHY
from shalott.core.errors import UsageError

pytestmark = pytest.mark.unit


def project(tmp_path: Path, text: str, **environment: str) -> Project:
    path = tmp_path / "compose.yaml"
    path.write_text(textwrap.dedent(text))
    return read_project(path, environment)


def container(tmp_path: Path, text: str, **environment: str) -> ContainerSpec:
    """Of one service: ``text`` is what stands below its image."""
    lines = textwrap.indent(textwrap.dedent(text), "    ")
    found = project(
        tmp_path, f"services:\n  one:\n    image: x:1\n    expose: [1]\n{lines}", **environment
    )
    told = found.nodes["one"].container
    assert told is not None
    return told


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("$A-$B", "1-"),
        ("${A}${B}", "1"),
        ("${B:-two}", "two"),
        ("${E:-two}|${E-two}", "two|"),
        ("${A:+other}|${B:+other}|${E+other}", "other||other"),
        ("${B:-${A}x}", "1x"),
        ("$$A $${A}", "$A ${A}"),
        ("${A:?needed}", "1"),
    ],
)
def test_variables_are_filled_in_as_the_specification_says(text: str, filled: str) -> None:
    assert fill_in(text, {"A": "1", "E": ""}, "here") == filled


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${B:?tell me}", "the variable B is required: tell me"),
        ("${E?}", ""),
        ("${B?}", "the variable B is required: it is not set"),
        ("a $", "write '\\$\\$'"),
        ("${A", "not closed"),
        ("${1A}", "is no variable"),
    ],
)
def test_variables_that_can_not_be_filled_in(text: str, said: str) -> None:
    if not said:
        assert fill_in(text, {"E": ""}, "here") == ""
        return
    with pytest.raises(UsageError, match=said):
        fill_in(text, {"A": "1"}, "here")


def test_the_file_env_beside_it_stands_behind_the_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=file\nB=file\n")
    path = tmp_path / "compose.yaml"
    path.write_text("x: $A $B\n")
    assert read_document(path, environment_beside(path, {"A": "own"})) == {"x": "own file"}


def test_the_project_s_name_is_a_variable(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text("name: Own.Name\nx: $COMPOSE_PROJECT_NAME\n")
    assert read_document(path, {})["x"] == "ownname"
    assert read_document(path, {"COMPOSE_PROJECT_NAME": "other"})["x"] == "other"


def test_environment_files(tmp_path: Path) -> None:
    path = tmp_path / "some.env"
    path.write_text(
        "# a comment\nexport A=1 # behind\nB='$A # as it is'\nC=\"a\\nb $A\"\nD=${A}2\nE=\nF\nG\n"
        "H='Let\\'s go' # behind\nI=one# two\n"
    )
    assert read_environment(path, {"F": "outer"}) == {
        "A": "1", "B": "$A # as it is", "C": "a\nb 1", "D": "12", "E": "", "F": "outer",
        "H": "Let's go", "I": "one# two",
    }  # fmt: skip
    for text, said in (
        ("no value\n", "no NAME=VALUE"),
        ('A="one\ntwo"\n', "ends on its line"),
        ("A='one' two\n", "ends on its line"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=f"some.env:1: .*{said}"):
            read_environment(path, {})


def test_yaml_is_read_as_compose_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text("a: yes\nb: 22:22\nc: 0x10\nd: 010\ne: true\nf: &x {k: 1}\ng: {<<: *x, l: 2}\n")
    assert read_document(path, {}) == {
        "a": "yes", "b": "22:22", "c": 16, "d": 10, "e": True, "f": {"k": 1}, "g": {"k": 1, "l": 2},
    }  # fmt: skip
    path.write_text("a: 1\na: 2\n")
    with pytest.raises(UsageError, match="'a' stands twice"):
        read_document(path, {})


def test_services_that_share_an_image_and_have_ports_are_nodes(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        """
        services:
          a: {image: "db:1", ports: ["127.0.0.1:7001:7000/tcp"]}
          b: {image: "db:1", expose: ["7000"]}
          setup: {image: "db:1", depends_on: {a: {condition: service_healthy}, b: {}}}
          c:
            image: "db:1"
            ports: [{target: 7005}]
            depends_on: {setup: {condition: service_completed_successfully}}
          proxy: {image: "proxy:1", ports: ["80"], links: ["a:first"]}
        """,
    )
    assert {name: dict(spec.ports) for name, spec in found.nodes.items()} == {
        "a": {"client": 7000}, "b": {"client": 7000}, "c": {"client": 7005},
    }  # fmt: skip
    by_name = {each.name: each for each in found.services}
    assert by_name["setup"].is_job and not by_name["proxy"].is_job
    assert by_name["c"].waits == {"setup": COMPLETED}
    assert by_name["setup"].waits == {"a": HEALTHY, "b": "service_started"}


def test_replicas_are_nodes_of_their_own(tmp_path: Path) -> None:
    found = project(
        tmp_path, "services: {My_db: {image: x, expose: [1], deploy: {replicas: '${N}'}}}", N="3"
    )
    assert list(found.nodes) == ["my-db-1", "my-db-2", "my-db-3"]
    (spec, *_) = found.nodes.values()
    assert spec.container is not None and "My_db" in spec.container.names


def test_what_a_service_says_of_being_a_node_counts(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        """
        services:
          a: {image: "x:1", x-shalott: {node: true, port: 5}}
          b: {image: "y:1", x-shalott: {node: true, port: false}}
          c: {image: "x:1", expose: [5]}
        """,
    )
    assert {name: dict(spec.ports) for name, spec in found.nodes.items()} == {
        "a": {"client": 5}, "b": {},
    }  # fmt: skip


def test_which_are_nodes_must_be_clear(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="may be a or b: say x-shalott"):
        project(tmp_path, 'services: {a: {image: "x", expose: [1]}, b: {image: "y", expose: [1]}}')
    with pytest.raises(UsageError, match="service a is a node and publishes no port"):
        project(tmp_path, "services: {a: {image: x}, b: {image: x}}")


def test_the_words_of_the_engine(tmp_path: Path) -> None:
    (tmp_path / "some.env").write_text("A=1\nB=2\n")
    told = container(
        tmp_path,
        """
        command: run --flag "two words"
        entrypoint: [/bin/entry]
        env_file: some.env
        environment: {B: 3, C: , D: true}
        user: 999
        working_dir: /srv
        stop_signal: SIGINT
        stop_grace_period: 1m30s
        mem_limit: 64m
        cpus: "0.5"
        cap_add: [SYS_NICE]
        ulimits: {nofile: 100}
        sysctls: [net.core.somaxconn=1024]
        extra_hosts: ["far:10.0.0.1"]
        tmpfs: /run:size=1m
        restart: on-failure:3
        healthcheck: {test: ping me, interval: 10s, timeout: 2s, retries: 30}
        """,
        C="outer",
    )
    assert told.config == {
        "Env": ["A=1", "B=3", "C=outer", "D=true"],
        "Healthcheck": {"Test": ["NONE"]},
        "Entrypoint": ["/bin/entry"],
        "Cmd": ["run", "--flag", "two words"],
        "User": "999",
        "WorkingDir": "/srv",
        "StopSignal": "SIGINT",
    }
    assert told.host == {
        "Memory": 64 << 20,
        "CapAdd": ["SYS_NICE"],
        "ExtraHosts": ["far:10.0.0.1"],
        "NanoCpus": 500_000_000,
        "Sysctls": {"net.core.somaxconn": "1024"},
        "Ulimits": [{"Name": "nofile", "Soft": 100, "Hard": 100}],
        "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3},
        "Tmpfs": {"/run": "size=1m"},
    }
    assert told.stop_ms == 90_000
    assert told.health == Health(words=("/bin/sh", "-c", "ping me"), timeout_s=2, patience_s=360)


def test_where_volumes_lie(tmp_path: Path) -> None:
    (tmp_path / "one.conf").write_text("x")
    (tmp_path / "init").mkdir()
    found = project(
        tmp_path,
        """
        services:
          one:
            image: x
            expose: [1]
            volumes: ["own:/data", /anonymous, "certs:/certs:ro", "./one.conf:/etc/one.conf:ro"]
            secrets: [key]
          two:
            image: x
            expose: [1]
            volumes: ["./one.conf:/etc/one.conf", "./init:/init", "./new:/new", "certs:/certs"]
            configs: [{source: text, target: /etc/text}]
            x-shalott: {data: /new}
        volumes: {own: , certs: }
        secrets: {key: {environment: KEY}}
        configs: {text: {content: hello}}
        """,
        KEY="k",
    )
    one, two = (spec.container for spec in found.nodes.values())
    assert one is not None and two is not None
    assert (one.data, one.volumes, one.shared) == (
        "/data", ("/anonymous",), {"/certs": "certs:ro"},
    )  # fmt: skip
    assert one.binds == {"/etc/one.conf": str(tmp_path / "one.conf")}
    assert one.contents == {"/run/secrets/key": "k"}
    assert (two.data, two.volumes) == ("/new", ("/init",))
    assert two.copies == {
        "/etc/one.conf": str(tmp_path / "one.conf"), "/init": str(tmp_path / "init"),
    }  # fmt: skip
    assert two.contents == {"/etc/text": "hello"}
    assert found.volumes == ("certs",)


def test_addresses_of_its_own(tmp_path: Path) -> None:
    text = """
        services:
          one: {image: x, expose: [1], networks: {n: {ipv4_address: 172.30.0.5, aliases: [first]}}}
          two: {image: x, expose: [1], networks: [n]}
        networks: {n: {ipam: {config: [{subnet: 172.30.0.0/24}]}}}
        """
    found = project(tmp_path, text)
    assert found.subnet == "172.30.0.0/24"
    one = found.nodes["one"].container
    assert one is not None and one.address == "172.30.0.5" and one.names == ("one", "first")


def test_images_that_are_built(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    told = container(tmp_path, "build: {context: ., args: [A=1, B], target: last}", B="2")
    assert told.build == Build(
        context=str(tmp_path), dockerfile="Dockerfile", arguments={"A": "1"}, target="last"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("services: {a: {image: x, gpus: all}}", "services.a.gpus is not honoured"),
        ("services: {a: {image: x, devices: [/dev/x]}}", "services.a.devices is not honoured"),
        ("services: {a: {image: x, network_mode: host}}", "services.*network_mode"),
        ("services: {a: {image: x, volumes_from: [b]}}", "services.a.volumes_from"),
        ("services: {a: {image: x, pid: host}}", "services.a.pid is not honoured"),
        ("services: {a: {image: x, extends: b}}", "services.a.extends: there is no service b"),
        (
            "services: {a: {image: x, deploy: {placement: {}}}}",
            "services.a.deploy.placement is not honoured",
        ),
        ("include: [other.yaml]\nservices: {a: {image: x}}", "other.yaml: it can't be read"),
        (
            "services: {a: {image: x, expose: [1], secrets: [s]}}\nsecrets: {s: {environment: S}}",
            "s: S is not set",
        ),
        ("services: {a: {image: x, env_file: [{path: e, format: raw}]}}", "env_file.format"),
        ("services: {a: {image: x, logging: {driver: syslog}}}", "logging.driver"),
        ("services: {a: {image: x, x-shalott: {nod: true}}}", "x-shalott.nod is not honoured"),
        ("services: {a: {image: x, volumes: ['v:/v:rshared']}}\nvolumes: {v: }", "mode rshared"),
        ("services: {a: {image: x, volumes: ['v:/v']}}", "volumes have no v"),
        ("services: {a: {image: x}}\nvolumes: {v: {external: true}}", "volumes.*external"),
        ("services: {a: {image: x}}\nvolumes: {v: {driver: nfs}}", "volumes.*driver"),
        ("services: {a: {image: x}}\nnetworks: {n: {external: true}}", "networks.*external"),
        ("services: {a: {image: x}}\nnetworks: {n: {internal: true}}", "networks.*internal"),
        ("services: {a: {image: x, networks: [n]}}", "networks have no n"),
        (
            "services: {a: {image: x, networks: [n]}, b: {image: x}}\nnetworks: {n: }",
            "a and b share no network",
        ),
        ("services: {a: {image: x, depends_on: [b]}}", "depends on b, which is not there"),
        (
            "services: {a: {image: x, depends_on: [b]}, b: {image: x, depends_on: [a]}}",
            "wait for each other: a, b",
        ),
        ("services: {a: {expose: [1]}}", "neither an image nor a build"),
        ("services: {a: {build: nowhere}}", "no such directory"),
        ("services: {a: {image: x, restart: sometimes, expose: [1]}}", "restart: sometimes"),
        ("services: {a: {image: x, mem_limit: much, expose: [1]}}", "'much' is no size"),
        ("services: {a: {image: x, healthcheck: {test: [PING]}, expose: [1]}}", "begins with CMD"),
        ("services: {a: {image: x, volumes: ['/dev/null:/x'], expose: [1]}}", "neither a file nor"),
        ("services: {a: {image: x, volumes: ['./no:/x:ro'], expose: [1]}}", "there is no ./no"),
        ("services: []", "services: Expected"),
        ("{}", "it has no services"),
        ("- a", "no mapping of services"),
        ("a: [", "compose.yaml"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        project(tmp_path, text)
    assert str(caught.value).startswith("--compose ")


def test_the_options_that_a_file_gives_itself(tmp_path: Path) -> None:
    (tmp_path / "client.sh").write_text("")
    path = tmp_path / "compose.yaml"
    path.write_text(
        "x-shalott: {client: client.sh --fast, nemesis: [kill, pause], reread: true, rate: 50}\n"
    )
    assert options_in(path, {}) == {
        "client": f"{tmp_path}/client.sh --fast",
        "nemesis": ("kill", "pause"),
        "reread": True,
        "rate": "50",
    }
