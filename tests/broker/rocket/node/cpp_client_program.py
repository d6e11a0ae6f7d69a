"""Produces and consumes with the C++ client of the package ``rocketmq`` 0.4.4, in an interpreter
that has it: ``python cpp_client_program.py NAME_SERVER TOPIC COUNT``. Says what happened as JSON.

Sends COUNT messages one by one, COUNT as a batch and one that is one-way; then pulls everything,
and has everything pushed to it.
"""

from __future__ import annotations

import json
import sys
import threading

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer  # type: ignore

PUSH_TIMEOUT_S = 40.0
ONEWAY = "one-way"


def message(topic: str, text: str) -> Message:
    made = Message(topic)
    made.set_keys(f"key-{text}")
    made.set_tags("tag")
    made.set_body(text)
    return made


def produce(name_server: str, topic: str, count: int) -> list[list[object]]:
    """Status and queue offset of each send that is answered."""
    producer = Producer("cpp-producers")
    producer.set_namesrv_addr(name_server)
    producer.start()
    results = [producer.send_sync(message(topic, f"single-{n}")) for n in range(count)]
    batch = [message(topic, f"batch-{n}") for n in range(count)]
    results.append(producer.send_batch(batch))
    producer.send_oneway(message(topic, ONEWAY))
    producer.shutdown()
    return [[result.status.name, result.offset, result.msg_id] for result in results]


def pull(name_server: str, topic: str) -> list[str]:
    consumer = PullConsumer("cpp-pullers")
    consumer.set_namesrv_addr(name_server)
    consumer.start()
    bodies = [one.body.decode() for one in consumer.pull(topic)]
    consumer.shutdown()
    return sorted(bodies)


def have_pushed(name_server: str, topic: str, count: int) -> list[str]:
    bodies: list[str] = []
    all_there = threading.Event()

    def take(one: object) -> None:
        bodies.append(one.body.decode())  # type: ignore[attr-defined]
        if len(bodies) >= count:
            all_there.set()

    consumer = PushConsumer("cpp-pushed")
    consumer.set_namesrv_addr(name_server)
    consumer.subscribe(topic, take, "tag")
    consumer.start()
    all_there.wait(PUSH_TIMEOUT_S)
    consumer.shutdown()
    return sorted(bodies)


def main() -> None:
    name_server, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    said: dict[str, object] = {"sent": produce(name_server, topic, count)}
    said["pulled"] = pull(name_server, topic)
    said["pushed"] = have_pushed(name_server, topic, 2 * count + 1)
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
