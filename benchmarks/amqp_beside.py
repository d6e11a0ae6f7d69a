"""What messages cost a broker, ours beside RabbitMQ 3.10's on the same machine, in CPU time.

    python -m benchmarks.amqp_beside [--sizes 64,1024,10240,102400] [--mirrors 0,1,2]
        [--windows 1,200] [--seconds 2] [--quiet-only]

For each size, number of mirrors and window: microseconds of all nodes' processor time a message,
published persistent with so many unconfirmed at most, and consumed with acknowledgements; both
brokers run at once, and take turns. Then a quiet client, which publishes one message after the
other on a queue of its own, beside one that floods another queue: median and 99th percentile of its
confirms. Other load on the machine blurs latencies, and the ratio less; it is printed.
Debian's rabbitmq-server must be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pamqp.frame
from pamqp import body, commands, header

from tests.broker.rabbit.amqp.pika_flows import Address
from tests.world.processes.rabbit import running_nodes
from tests.world.rabbit.original_tools import running_originals
from tests.world.rabbit.raw_client import RawClient, raw

NAMES = ("n1", "n2", "n3")
FRAME = 131072
FLOOD_WINDOW = 2000
QUIET = 300  # confirms


@dataclass(frozen=True, slots=True)
class Broker:
    name: str
    address: Address
    management_port: int
    pids: tuple[int, ...]

    def cpu_s(self) -> float:
        """Of all nodes so far."""
        used = 0
        for pid in self.pids:
            told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += int(told[11]) + int(told[12])
        return used / os.sysconf("SC_CLK_TCK")

    def mirror(self, count: int) -> None:
        """From now on queues that are called q have so many mirrors."""
        definition = {"ha-mode": "exactly", "ha-params": count + 1}
        self._put("/api/policies/%2F/ha", {"pattern": "^q", "definition": definition})

    def _put(self, path: str, value: object) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.management_port}{path}",
            json.dumps(value).encode(),
            {
                "Authorization": "Basic " + b64encode(b"guest:guest").decode(),
                "Content-Type": "application/json",
            },
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=30).close()


def encoded(queue: str, size: int, *, persistent: bool = True) -> bytes:
    """A publish to ``queue``, as frames on channel 1."""
    properties = commands.Basic.Properties(delivery_mode=2 if persistent else 1)
    frames: list[object] = [
        commands.Basic.Publish(routing_key=queue),
        header.ContentHeader(body_size=size, properties=properties),
    ]
    step = FRAME - 8
    frames += [body.ContentBody(bytes(min(step, size - at))) for at in range(0, size, step)]
    return b"".join(pamqp.frame.marshal(frame, 1) for frame in frames)


@contextmanager
def client(broker: Broker, queue: str) -> Iterator[RawClient]:
    with raw(broker.address, timeout_s=120) as made:
        made.shake_hands(frame_max=FRAME)
        made.open_channel()
        made.declare(queue, durable=True)
        yield made


def publish(made: RawClient, message: bytes, window: int, seconds: float) -> tuple[int, float]:
    """With at most ``window`` unconfirmed; how many, and how long it took."""
    made.send(1, commands.Confirm.Select())
    made.expect(commands.Confirm.SelectOk, 1)
    sent = undecided = last = 0
    single: dict[int, None] = {}  # confirmed beyond the last of a multiple one
    began = time.monotonic()
    while (is_on := time.monotonic() - began < seconds) or undecided:
        if is_on and (room := window - undecided) >= max(1, window // 4):
            made.send_bytes(message * room)
            sent += room
            undecided += room
        ack = made.expect(commands.Basic.Ack, 1)
        tag = int(ack.delivery_tag or 0)
        if ack.multiple:
            settled = [at for at in range(last + 1, tag + 1) if at not in single]
            last, single = tag, {at: None for at in single if at > tag}
        else:
            settled, single[tag] = [tag], None
        undecided -= len(settled)
    return sent, time.monotonic() - began


def consume(made: RawClient, queue: str, count: int, size: int) -> None:
    made.send(1, commands.Basic.Qos(prefetch_count=200))
    made.expect(commands.Basic.QosOk, 1)
    made.send(1, commands.Basic.Consume(queue=queue, consumer_tag="c"))
    made.expect(commands.Basic.ConsumeOk, 1)
    for number in range(1, count + 1):
        made.receive_bytes(frames_of_delivery(made, size))
        if number % 50 == 0 or number == count:
            made.send(1, commands.Basic.Ack(number, multiple=True))


def frames_of_delivery(made: RawClient, size: int) -> int:
    """Read the method's and the header's frame; how many bytes of body frames follow."""
    for _ in range(2):
        start = made.receive_bytes(7)
        made.receive_bytes(int.from_bytes(start[3:7], "big") + 1)
    step = FRAME - 8
    return size + 8 * -(-size // step)


def costs(broker: Broker, queue: str, size: int, window: int, seconds: float) -> tuple[float, ...]:
    """Microseconds a message: published, its time by the clock, and consumed."""
    with client(broker, queue) as made:
        message = encoded(queue, size)
        publish(made, message, window, 0.3)  # warm
    with client(broker, queue) as made:
        made.send(1, commands.Queue.Purge(queue=queue))
        made.expect(commands.Queue.PurgeOk, 1)
        began = broker.cpu_s()
        count, took = publish(made, message, window, seconds)
        published = broker.cpu_s() - began
    with client(broker, queue) as made:
        began = broker.cpu_s()
        consume(made, queue, count, size)
        made.send(1, commands.Queue.Delete(queue=queue))
        made.expect(commands.Queue.DeleteOk, 1)
        consumed = broker.cpu_s() - began
    return (1e6 * published / count, 1e6 * took / count, 1e6 * consumed / count)


# -- the quiet client ------------------------------------------------------------------------------


def flood(port: int, persistent: bool) -> None:
    """Until it is killed; a process of its own."""
    with raw(Address("127.0.0.1", port), timeout_s=60) as made:
        made.shake_hands(frame_max=FRAME)
        made.open_channel()
        made.declare("flooded", durable=True, arguments={"x-max-length": 100_000})
        sys.stdout.write("floods\n")
        sys.stdout.flush()
        publish(made, encoded("flooded", 1024, persistent=persistent), FLOOD_WINDOW, 1e9)


def quiet_latencies(broker: Broker, *, persistent: bool) -> list[float]:
    """Milliseconds of each confirm."""
    words = (sys.executable, "-m", "benchmarks.amqp_beside", "--flood", str(broker.address.port))
    with subprocess.Popen([*words, str(int(persistent))], stdout=subprocess.PIPE) as flooding:
        try:
            assert flooding.stdout is not None and flooding.stdout.readline()
            time.sleep(1.0)  # until it floods
            with client(broker, "quiet") as made:
                made.send(1, commands.Confirm.Select())
                made.expect(commands.Confirm.SelectOk, 1)
                message, found = encoded("quiet", 64, persistent=persistent), []
                for _ in range(QUIET):
                    began = time.monotonic()
                    made.send_bytes(message)
                    made.expect(commands.Basic.Ack, 1)
                    found.append(1e3 * (time.monotonic() - began))
                    select.select([], [], [], 0.005)
        finally:
            flooding.kill()
    return found


# -- brokers ---------------------------------------------------------------------------------------


@contextmanager
def brokers(directory: Path, count: int) -> Iterator[list[Broker]]:
    with ExitStack() as stack:
        nodes = stack.enter_context(running_nodes(directory / "ours", NAMES[:count]))
        originals = stack.enter_context(running_originals(directory / "theirs", count))
        pids = [node.process.pid for node in nodes if node.process is not None]
        yield [
            Broker("ours", nodes[0].address, nodes[0].management_port, tuple(pids)),
            Broker(
                "RabbitMQ",
                Address("127.0.0.1", originals[0].amqp_port),
                originals[0].management_port,
                tuple(original.pid() for original in originals),
            ),
        ]


def compare(both: Sequence[Broker], mirrors: int, arguments: argparse.Namespace) -> None:
    for broker in both:
        broker.mirror(mirrors)
    for size in map(int, arguments.sizes.split(",")):
        for window in map(int, arguments.windows.split(",")):
            found = [costs(each, "q", size, window, arguments.seconds) for each in both]
            told = " | ".join(
                f"{ours:.0f} / {theirs:.0f} = {ours / theirs:.2f}"
                for ours, theirs in zip(*found, strict=True)
            )
            print(f"| {size} | {mirrors} | {window} | {told} |", flush=True)


def compare_quiet(both: Sequence[Broker]) -> None:
    for persistent in (True, False):
        for broker in both:
            found = sorted(quiet_latencies(broker, persistent=persistent))
            p50, p99 = statistics.median(found), found[int(0.99 * len(found))]
            kind = "persistent" if persistent else "transient"
            print(f"quiet, {kind}, {broker.name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="64,1024,10240,102400")
    parser.add_argument("--mirrors", default="0,1,2")
    parser.add_argument("--windows", default="1,200")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--quiet-only", action="store_true")
    parser.add_argument("--flood", nargs=2, type=int, metavar=("PORT", "PERSISTENT"))
    arguments = parser.parse_args()
    if arguments.flood:
        flood(arguments.flood[0], bool(arguments.flood[1]))
        return 0
    with TemporaryDirectory() as directory:
        with brokers(Path(directory) / "one", 1) as both:
            compare_quiet(both)
            if arguments.quiet_only:
                return 0
            print("\n| bytes | mirrors | window | publish µs | by the clock µs | consume µs |")
            print("| --- | --- | --- | --- | --- | --- |")
            if "0" in arguments.mirrors.split(","):
                compare(both, 0, arguments)
        counts = [int(each) for each in arguments.mirrors.split(",") if each != "0"]
        if counts:
            with brokers(Path(directory) / "three", 3) as both:
                for mirrors in counts:
                    compare(both, mirrors, arguments)
    print(f"\nload {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
