"""RocketMQ itself, as it is released: name servers, brokers and controllers as processes of this
machine, for tests of what ours and it make of each other.

The jars come from Maven, once, into ``.tox/rocketmq-VERSION``. Where Java, Maven or the network is
missing, tests that need them are skipped and say so. Each process has a home of its own with its
logs, its store and what it printed; they are killed at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape

import msgspec
import pytest

from shalott.broker.rocket.config import RocketPeer, parse_address
from shalott.broker.rocket.remoting.command import RequestCode
from shalott.broker.rocket.remoting.java_json import decode_java_json
from shalott.broker.rocket.remoting.route_data import TopicConfig, TopicConfigs
from shalott.clients.rocketmq.rocket_client import RocketClient
from shalott.cluster.local.backend import HOST, port_of, reserve_port

ROOT = Path(__file__).parents[3]
VERSION = "5.3.3"
JARS = ROOT / ".tox" / f"rocketmq-{VERSION}"
FETCH_TIMEOUT_S = 240
BOOT_S = 180.0  # an idle machine needs 10
POLL_S = 0.05
INTERFACE_GONE = b"java.net.SocketException: No such device"  # as java.net.NetworkInterface says
BOOTED = b"boot success"

Kind = Literal["namesrv", "broker", "controller"]
MAINS: Mapping[Kind, str] = {
    "namesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
    "broker": "org.apache.rocketmq.broker.BrokerStartup",
    "controller": "org.apache.rocketmq.controller.ControllerStartup",
}
# Small and quick to start: upstream's own scripts ask for 4 GiB and more.
JVM = (
    *("-Xms32m", "-Xmx192m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC"),
    *("-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData", "-Dtls.server.mode=disabled"),
)
# Upstream's own makes a hundred appenders first.
LOGGING = """<configuration scan="false" debug="false">
<appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %p %logger{0} %m%n</pattern></encoder></appender>
<logger name="RocketmqConsole" level="INFO"/>
<root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>"""
JAVA, OURS = "java", "shalott"  # groups and clusters
# Files of a size that a test can look through; ours are told the same.
SEGMENT_BYTES, QUEUE_UNITS = 1 << 20, 1000
SMALL_STORE: Mapping[str, object] = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": QUEUE_UNITS * 20,
    "mappedFileSizeTimerLog": 102_400,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "diskMaxUsedSpaceRatio": 99,
}


def jars() -> Path:
    """The directory with all jars of the release, fetched if need be. Skips where that can't be."""
    for program in ("java", "mvn"):
        if program == "mvn" and (JARS / "whole").exists():
            continue
        if shutil.which(program) is None:
            pytest.skip(f"RocketMQ itself needs {program}, which is not installed")
    if not (JARS / "whole").exists():
        _fetch()
    return JARS


def _fetch() -> None:
    JARS.mkdir(parents=True, exist_ok=True)
    (JARS / "pom.xml").write_text(_pom())
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
    try:
        subprocess.run(command, cwd=JARS, check=True, capture_output=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.SubprocessError as error:
        said = getattr(error, "stdout", None) or b""
        pytest.skip(f"RocketMQ {VERSION} can't be had from Maven: {said.decode()[-300:] or error}")
    (JARS / "whole").touch()


def _pom() -> str:
    names = ("broker", "namesrv", "controller", "tools", "client")
    wanted = "".join(
        f"<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{name}</artifactId>"
        f"<version>{escape(VERSION)}</version></dependency>"
        for name in names
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tests</groupId><artifactId>rocketmq</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>"
    )


class Original:
    """One process. ``properties`` are those of its configuration, by upstream's names."""

    def __init__(self, kind: Kind, home: Path, properties: Mapping[str, object]) -> None:
        self.kind = kind
        self.home = home
        self.properties = dict(properties)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def store(self) -> Path:
        """A broker's files."""
        return self.home / "store"

    @property
    def output(self) -> bytes:
        return (self.home / "output.log").read_bytes()

    def start(self) -> None:
        """Begin a life; ``await_booted`` says when it serves."""
        self.home.mkdir(parents=True, exist_ok=True)
        path = self.home / f"{self.kind}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self.properties.items()))
        logging = self.home / "logback.xml"
        logging.write_text(LOGGING)
        with (self.home / "output.log").open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *("java", *JVM, f"-Duser.home={self.home}"),
                    *(f"-Drmq.logback.configurationFile={logging}", "-cp", f"{jars()}/*"),
                    *(MAINS[self.kind], "-c", str(path)),
                ],
                cwd=self.home,
                env=os.environ | {"ROCKETMQ_HOME": str(self.home)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def await_booted(self) -> None:
        """Until it says so. It ends where one of the machine's interfaces goes while it lists them
        (a container's, beside these tests): then it is begun again."""
        assert self.process is not None
        deadline = time.monotonic() + BOOT_S
        while BOOTED not in self.output:
            lines = b"\n".join(self.output.splitlines()[-20:])
            assert time.monotonic() < deadline, f"{self.kind} does not start:\n{lines.decode()}"
            if self.process.poll() is not None:
                assert INTERFACE_GONE in self.output, f"{self.kind} ended:\n{lines.decode()}"
                self.start()
            time.sleep(POLL_S)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """SIGTERM is an orderly end, which takes a broker some seconds."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait()


@dataclass(frozen=True, slots=True)
class Both:
    """An original's name server, its master, and a master of ours, by their addresses."""

    name_server: str
    brokers: Mapping[str, str]  # by group, which is its cluster's name too
    master: Original
    master_ha: str
    name_server_peer: RocketPeer  # as our nodes' configurations have it
    fresh: Mapping[str, Mapping[str, TopicConfig]]  # topics of each before any test made some


class NoFields(msgspec.Struct):
    """A header without fields."""


async def topics_of(address: str) -> Mapping[str, TopicConfig]:
    """What a broker says it has."""
    client = RocketClient([], dial=parse_address, timeout_ms=10_000)
    try:
        answer = await client.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, NoFields())
    finally:
        await client.close()
    return decode_java_json(answer.body, TopicConfigs).topic_config_table


@contextlib.contextmanager
def originals(*processes: Original) -> Iterator[None]:
    """They serve; all are killed at the end."""
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.await_booted()
        yield
    finally:
        for process in processes:
            process.end()


@contextlib.contextmanager
def held_broker_ports() -> Iterator[int]:
    """A port for an original's broker, or for one that its slave copies; the one two before it is
    free as well."""
    with contextlib.ExitStack() as stack:
        while True:
            port = port_of(stack.enter_context(contextlib.closing(reserve_port())))
            second = stack.enter_context(socket.socket())
            try:
                second.bind((HOST, port - 2))
            except OSError:
                continue
            second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            yield port
            return


def name_server(home: Path, port: int) -> Original:
    return Original("namesrv", home, {"listenPort": port})


def broker(
    home: Path, port: int, ha_port: int, name_servers: str, **properties: object
) -> Original:
    """A master, unless ``properties`` say otherwise. It also listens at the port before the one
    before (``port`` - 2, "VIP")."""
    wanted: dict[str, object] = {
        "brokerClusterName": JAVA,
        "brokerName": JAVA,
        "brokerId": 0,
        "listenPort": port,
        "haListenPort": ha_port,
        "namesrvAddr": name_servers,
        "brokerIP1": HOST,
        "brokerIP2": HOST,
        "storePathRootDir": home / "store",
        "storePathCommitLog": home / "store" / "commitlog",
        **SMALL_STORE,
    }
    return Original("broker", home, wanted | properties)


def controller(home: Path, port: int) -> Original:
    """The only one of its group."""
    properties = {
        "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": f"n0-{HOST}:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": home / "controller",
        "mappedFileSize": SEGMENT_BYTES,
    }
    return Original("controller", home, properties)
