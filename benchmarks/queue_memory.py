"""What a queue's life costs a node in memory, ours beside RabbitMQ 3.10's, in one run.

    python -m benchmarks.queue_memory [--rounds 4] [--messages 50000] [--body-bytes 10240]
        [--backlog 200000] [--image shalott-rabbitmq:TAG]

Each broker is one node. *Rounds*: a queue is filled, half of it is drained, the rest is deleted
with it; then the resident memory of the node's process. *Backlog*: a long queue, once default and
once lazy (x-queue-mode), with the node's watermark at --watermark bytes; the highest resident
memory while it is filled and drained. Messages are transient unless --persistent, one publisher
without confirms, one consumer with prefetch 500. RabbitMQ runs in a container of the image that
`shalott prepare` makes; without --image it is left out. Rates are messages a second.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pika

from shalott.broker.rabbit.config import NodeConfig
from shalott.cluster.systems.rabbit.mirrored import to_toml

BOOT_S = 60
PREFETCH = 500
SAMPLE_EVERY = 2000  # messages


@dataclass(slots=True)
class Broker:
    """A node that listens on ``port``; ``pid``: the process whose memory is looked at."""

    name: str
    port: int
    pid: int
    host: str = "127.0.0.1"
    peak_mb: float = 0.0

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        rss = int(found.split()[1]) / 1024
        self.peak_mb = max(self.peak_mb, rss)
        return rss

    def connect(self) -> pika.BlockingConnection:
        parameters = pika.ConnectionParameters(self.host, self.port, heartbeat=0)
        deadline = time.monotonic() + BOOT_S
        while True:
            try:
                return pika.BlockingConnection(parameters)
            except (pika.exceptions.AMQPError, OSError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


@contextmanager
def ours(directory: str, watermark: int) -> Iterator[Broker]:
    config = NodeConfig(
        name="n1",
        data_dir=f"{directory}/data",
        bind_host="127.0.0.1",
        amqp_port=35672,
        cluster_port=35673,
        management_port=35674,
        vm_memory_high_watermark_absolute=watermark,
    )
    path = Path(directory) / "node.toml"
    path.write_text(to_toml(config))
    command = (sys.executable, "-m", "shalott.broker", "--config", str(path))
    with (Path(directory) / "log").open("w") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        yield Broker("ours", config.amqp_port, process.pid)
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def rabbitmq(image: str, watermark: int) -> Iterator[Broker]:
    start = (
        f"printf 'vm_memory_high_watermark.absolute = {watermark}\\nloopback_users = none\\n'"
        " > /etc/rabbitmq/rabbitmq.conf && exec rabbitmq-server"
    )
    command = ("docker", "run", "-d", "--entrypoint", "sh", image, "-c", start)
    container = _said(*command)
    try:
        address = _said(*("docker", "inspect", "-f", "{{.NetworkSettings.IPAddress}}", container))
        broker = Broker("rabbitmq", 5672, 0, host=address)
        broker.connect().close()
        rows = _said("docker", "top", container, "-eo", "pid,comm").splitlines()
        broker.pid = next(int(row.split()[0]) for row in rows if "beam" in row)
        yield broker
    finally:
        _said("docker", "rm", "-f", container)


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def fill(broker: Broker, queue: str, count: int, body: bytes, *, persistent: bool) -> float:
    """Returns the rate, until the broker has taken all."""
    with broker.connect() as connection:
        channel = connection.channel()
        properties = pika.BasicProperties(delivery_mode=2 if persistent else 1)
        began = time.monotonic()
        for number in range(count):
            channel.basic_publish("", queue, body, properties)
            if number % SAMPLE_EVERY == 0:
                broker.rss_mb()
        while channel.queue_declare(queue, passive=True).method.message_count < count:
            broker.rss_mb()
            time.sleep(0.1)
        return count / (time.monotonic() - began)


def drain(broker: Broker, queue: str, count: int) -> float:
    """Returns the rate."""
    with broker.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        began = time.monotonic()
        for last, (method, _, _) in enumerate(channel.consume(queue), start=1):
            if last % (PREFETCH // 2) == 0 or last == count:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if last % SAMPLE_EVERY == 0:
                broker.rss_mb()
            if last == count:
                break
        rate = count / (time.monotonic() - began)
        channel.cancel()
        return rate


def declare(broker: Broker, queue: str, mode: str) -> None:
    with broker.connect() as connection:
        connection.channel().queue_declare(queue, durable=True, arguments={"x-queue-mode": mode})


def delete(broker: Broker, queue: str) -> None:
    with broker.connect() as connection:
        connection.channel().queue_delete(queue)


def measure(broker: Broker, options: argparse.Namespace, out: Any) -> None:
    body = bytes(options.body_bytes)
    broker.connect().close()
    out.write(f"{broker.name}: idle {broker.rss_mb():.0f} MB\n")
    for number in range(1, options.rounds + 1):
        broker.peak_mb = 0
        declare(broker, "round", "default")
        filled = fill(broker, "round", options.messages, body, persistent=options.persistent)
        drained = drain(broker, "round", options.messages // 2)
        delete(broker, "round")
        time.sleep(2)  # a garbage collector may have its turn
        out.write(
            f"{broker.name}: round {number}: fill {filled:.0f}/s, drain {drained:.0f}/s,"
            f" peak {broker.peak_mb:.0f} MB, deleted {broker.rss_mb():.0f} MB\n"
        )
        out.flush()
    for mode in options.modes.split(",") if options.backlog else ():
        broker.peak_mb = 0
        declare(broker, mode, mode)
        filled = fill(broker, mode, options.backlog, body, persistent=options.persistent)
        held, peak = broker.rss_mb(), broker.peak_mb
        drained = drain(broker, mode, options.backlog)
        delete(broker, mode)
        out.write(
            f"{broker.name}: backlog of {options.backlog * len(body) / 2**20:.0f} MB, {mode}:"
            f" fill {filled:.0f}/s, peak {peak:.0f} MB, holding {held:.0f} MB, drain"
            f" {drained:.0f}/s, peak {broker.peak_mb:.0f} MB, deleted {broker.rss_mb():.0f} MB\n"
        )
        out.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--body-bytes", type=int, default=10_240)
    parser.add_argument("--backlog", type=int, default=200_000)
    parser.add_argument("--modes", default="default,lazy")
    parser.add_argument("--watermark", type=int, default=1 << 30)
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--dir", default=None)
    parser.add_argument("--image", default="")
    options = parser.parse_args()
    with TemporaryDirectory(dir=options.dir) as directory, ours(directory, options.watermark) as b:
        measure(b, options, sys.stdout)
    if options.image:
        with rabbitmq(options.image, options.watermark) as broker:
            measure(broker, options, sys.stdout)


if __name__ == "__main__":
    main()
