"""RocketMQ's C++ client in a process of its own: ``python program.py BODY_BYTES``.

The library has threads that outlive what they were started for, prints, and can only be killed with
its process. So it is driven over pipes: one JSON object a line comes in on standard input, one goes
out on standard output. What the library itself prints goes to standard error.

    in     {"do": "produce", "name_server", "group", "instance", "timeout_ms"}
           {"do": "send", "id", "topic", "queue", "body" (hex), "tag", "delay", "retries"}
           {"do": "join", "name_server", "group", "instance", "topics", "tags", "orderly",
            "broadcast", "threads"}
           {"do": "verdict", "id", "success"}    what the listener made of a delivery
           {"do": "leave"}
    out    {"said": "ready"}, {"said": "joined"}, {"said": "left"}, {"said": "failed", "error"}
           {"said": "sent", "id", "status", "offset"} or {"said": "sent", "id", "error"}
           {"said": "delivered", "id", "topic", "queue", "offset", "body", "reconsumed", "tag",
            "retry"}    ``retry``: the topic that it was sent to, if it comes from the retry topic

The end of standard input ends the process at once, without a word to any broker: that is how a
member dies.

The C functions are those of the library's CMessageExt.h, CProducer.h and CPushConsumer.h, as the
package ``rocketmq`` 0.4.4 declares them. Bodies are binary and its accessors stop at a zero byte,
hence BODY_BYTES: every body of a run is so long.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import queue
import sys
import threading
from typing import Any

SUCCESS, LATER = 0, 1  # what a listener answers the library


class Program:
    """Reads what to do, and says what happened."""

    def __init__(self, body_bytes: int) -> None:
        self._body_bytes = body_bytes
        self._said = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._verdicts: dict[int, queue.SimpleQueue[bool]] = {}
        self._sends: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._kept: list[object] = []  # what the library calls back must not be collected
        self._producer: Any = None  # objects of the library's, made here
        self._consumer: Any = None

    def run(self) -> None:
        from rocketmq import ffi  # loads the library

        self._dll: Any = ffi.dll
        self._body = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
            ("GetMessageBody", self._dll)
        )
        threading.Thread(target=self._send_all, daemon=True).start()
        self._say(said="ready")
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                getattr(self, f"_{asked.pop('do')}")(**asked)
            except Exception as error:  # noqa: BLE001 - the other side is told of any error
                self._say(said="failed", error=f"{type(error).__name__}: {error}")
        os._exit(0)

    def _say(self, **what: object) -> None:
        with self._lock:
            self._said.write(json.dumps(what) + "\n")

    # -- producing ---------------------------------------------------------------------------------

    def _produce(self, name_server: str, group: str, instance: str, timeout_ms: int) -> None:
        from rocketmq.client import Producer

        producer = Producer(group, timeout=timeout_ms)
        self._dll.SetProducerInstanceName(producer._handle, instance.encode())
        producer.set_namesrv_addr(name_server)
        producer.start()
        self._producer = producer
        self._say(said="joined")

    def _send(self, **asked: Any) -> None:
        self._sends.put(asked)

    def _send_all(self) -> None:
        while True:
            asked = self._sends.get()
            try:
                self._say(said="sent", id=asked["id"], **self._sent(asked))
            except Exception as error:  # noqa: BLE001 - the other side is told of any error
                self._say(said="sent", id=asked["id"], error=f"{type(error).__name__}: {error}")

    def _sent(self, asked: dict[str, Any]) -> dict[str, object]:
        from rocketmq.client import Message

        message = Message(asked["topic"])
        body = bytes.fromhex(asked["body"])
        self._dll.SetByteMessageBody(message._handle, body, len(body))
        if asked["tag"]:
            message.set_tags(asked["tag"])
        if asked["delay"]:
            message.set_delay_time_level(asked["delay"])
        wanted = asked["queue"]
        result = self._producer.send_orderly(
            message,
            wanted,
            retry_times=asked["retries"],
            queue_selector=lambda count, _message, _argument: wanted % count,
        )
        return {"status": result.status.name, "offset": result.offset}

    # -- consuming ---------------------------------------------------------------------------------

    def _join(
        self,
        name_server: str,
        group: str,
        instance: str,
        topics: list[str],
        tags: str,
        orderly: bool,
        broadcast: bool,
        threads: int,
    ) -> None:
        from rocketmq.client import MessageModel, PushConsumer
        from rocketmq.exceptions import ffi_check
        from rocketmq.ffi import MSG_CALLBACK_FUNC

        model = MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING
        consumer = PushConsumer(group, orderly=orderly, message_model=model)
        consumer.set_instance_name(instance)
        consumer.set_namesrv_addr(name_server)
        consumer.set_thread_count(threads)
        for topic in topics:
            ffi_check(self._dll.Subscribe(consumer._handle, topic.encode(), tags.encode()))
        listener = MSG_CALLBACK_FUNC(self._listen)
        self._kept.append(listener)
        register = "RegisterMessageCallbackOrderly" if orderly else "RegisterMessageCallback"
        ffi_check(getattr(self._dll, register)(consumer._handle, listener))
        consumer.start()
        self._consumer = consumer
        self._say(said="joined")

    def _listen(self, _consumer: int, handle: int) -> int:
        from rocketmq.client import RecvMessage

        message = RecvMessage(handle)
        number = next(self._numbers)
        verdict: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._verdicts[number] = verdict
        body = ctypes.string_at(self._body(handle), self._body_bytes)
        self._say(
            said="delivered",
            id=number,
            topic=message.topic,
            queue=message.queue_id,
            offset=message.queue_offset,
            body=body.hex(),
            reconsumed=message.reconsume_times,
            tag=_text(message.tags),
            retry=_text(message.get_property("RETRY_TOPIC")),
        )
        return SUCCESS if verdict.get() else LATER

    def _verdict(self, id: int, success: bool) -> None:
        self._verdicts.pop(id).put(success)

    def _leave(self) -> None:
        # Beside the reading: the library waits for its listeners, who wait for verdicts.
        threading.Thread(target=self._shut_down, daemon=True).start()

    def _shut_down(self) -> None:
        if self._consumer is not None:
            self._consumer.shutdown()
        if self._producer is not None:
            self._producer.shutdown()
        self._say(said="left")


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode()


if __name__ == "__main__":
    Program(int(sys.argv[1])).run()
