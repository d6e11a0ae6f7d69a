"""OpenChaos's history files (its recorder): a line a request, a response or a fault, tabs between.

A request says client, operation, REQUEST, value, sharding key, milliseconds, more. A response says
client, operation, RESPONSE, SUCCESS or FAILURE or UNKNOWN, value, sharding key, milliseconds, its
latency, more, and the latency from end to end. What is not there is ``null``.

As entries of EDN:

- Its drivers say FAILURE of anything that they caught, a timeout too: an enqueue or a put that
  failed is ``:info``, with ``:error :failure``. A dequeue that failed brought nothing.
- A dequeue may be answered many times, and what is pushed to a consumer answers no request. Such a
  response is an operation of its own that begins and ends at one moment, with ``:delivered true``,
  by process 1,000,000 + client.
- ``put`` and ``getAll`` of its key-value model are what a set calls ``add`` and ``read``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from shalott.checkers.reading.edn import EdnMap, encode
from shalott.core.errors import UnreadableHistory

NULL: Final = "null"
DELIVERIES: Final = 1_000_000  # the process of client 0's deliveries
_INTEGER: Final = re.compile(r"0|-?[1-9]\d{0,17}")
_REQUEST_FIELDS, _RESPONSE_FIELDS, _FAULT_FIELDS = 7, 10, 4
_MS: Final = 1_000_000
_F: Final = {"put": "add", "getAll": "read"}
_OPERATION: Final = {f: name for name, f in _F.items()}
_TYPE: Final = {"SUCCESS": "ok", "FAILURE": "info", "UNKNOWN": "info"}
_FINDS: Final = ("dequeue", "getAll")  # what failed of these brought nothing, and that is all


def edn_of_openchaos(name: str, lines: Iterable[str]) -> Iterator[bytes]:
    """The entries as EDN, one a line. Raises UnreadableHistory."""
    reading = _Reading(name)
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield reading.entries(number, line).encode()


class _Reading:
    def __init__(self, name: str) -> None:
        self._name = name
        self._open: dict[int, str] = {}  # what each client has asked for

    def entries(self, number: int, line: str) -> str:
        fields = line.removesuffix("\n").removesuffix("\r").split("\t")
        kind = "fault" if fields[0] == "fault" else fields[2] if len(fields) > 2 else ""
        wanted = {"fault": _FAULT_FIELDS, "REQUEST": _REQUEST_FIELDS, "RESPONSE": _RESPONSE_FIELDS}
        if len(fields) != wanted.get(kind):
            raise self._wrong(number, "this is no request, no response and no fault")
        try:
            if kind == "fault":
                return _fault(*fields)
            return self._request(fields) if kind == "REQUEST" else self._response(fields)
        except (KeyError, ValueError) as error:
            raise self._wrong(number, "a number or a result is missing") from error

    def _wrong(self, number: int, what: str) -> UnreadableHistory:
        return UnreadableHistory(f"{self._name}, line {number}: {what}")

    def _request(self, fields: list[str]) -> str:
        client, operation, _, value, key, at_ms, more = fields
        process = int(client)
        if process in self._open:
            raise ValueError
        self._open[process] = operation
        return _entry(
            process, "invoke", operation, value, at_ms, _shown(sharding_key=key, info=more)
        )

    def _response(self, fields: list[str]) -> str:
        client, operation, _, result, value, key, at_ms, latency, more, end_to_end = fields
        process = int(client)
        shown = _shown(sharding_key=key, info=more)
        shown += f", :latency-ms {int(latency)}, :end-to-end-ms {int(end_to_end)}"
        kind = _TYPE[result]
        if kind != "ok":
            shown += f", :error {':failure' if result == 'FAILURE' else ':unknown'}"
        if result == "FAILURE" and operation in _FINDS:
            kind = "fail"
        if self._open.get(process) == operation:
            del self._open[process]
            return _entry(process, kind, operation, value, at_ms, shown)
        asked = value if operation not in _FINDS else NULL
        shown += ", :delivered true"
        process += DELIVERIES
        begin = _entry(
            process, "invoke", operation, asked, at_ms, _shown(sharding_key=key) + shown[-17:]
        )
        return begin + _entry(process, kind, operation, value, at_ms, shown)


def _entry(process: int, kind: str, operation: str, value: str, at_ms: str, more: str) -> str:
    f = _F.get(operation, operation)
    shown = _list(value) if operation == "getAll" and value != NULL else _value(value)
    return (
        f"{{:process {process}, :type :{kind}, :f :{f}, :value {shown},"
        f" :time {int(at_ms) * _MS}{more}}}\n"
    )


def _fault(_: str, name: str, operation: str, at_ms: str) -> str:
    f = {"start": "start", "end": "stop"}.get(operation, operation)
    return (
        f"{{:process :nemesis, :type :info, :f :{f}-{name}, :value nil, :time {int(at_ms) * _MS},"
        f" :fault {encode(name)}, :operation {encode(operation)}}}\n"
    )


def _shown(**fields: str) -> str:
    return "".join(
        f", :{name.replace('_', '-')} {_value(each)}"
        for name, each in fields.items()
        if each != NULL
    )


def _value(text: str) -> str:
    if text == NULL:
        return "nil"
    return text if _INTEGER.fullmatch(text) else encode(text)


def _list(text: str) -> str:
    inside = text[1:-1].split(", ") if len(text) > 2 else []
    return f"[{' '.join(map(_value, inside))}]"


# --- writing --------------------------------------------------------------------------------------


def openchaos_lines(entries: Iterable[EdnMap]) -> Iterator[str]:
    """Entries, each as its whole map, as OpenChaos would have written them. What its files have no
    place for (an index, other errors) is left out."""
    begun: dict[object, int] = {}
    for entry in entries:
        at_ms = _milliseconds(entry.get("time", 0))
        if entry.get("process") == "nemesis":
            name, operation = entry.get("fault", entry.get("f")), entry.get("operation", "start")
            yield f"fault\t{name}\t{operation}\t{at_ms}\n"
            continue
        process, f = entry.get("process"), str(entry.get("f"))
        is_delivered = entry.get("delivered") is True
        client = process - DELIVERIES if isinstance(process, int) and is_delivered else process
        operation = _OPERATION.get(f, f)
        value = _text(entry.get("value"))
        key = _text(entry.get("sharding-key", entry.get("key")))
        more = _text(entry.get("info"))
        if entry.get("type") == "invoke":
            begun[process] = at_ms
            if not is_delivered:
                yield f"{client}\t{operation}\tREQUEST\t{value}\t{key}\t{at_ms}\t{more}\n"
            continue
        latency = entry.get("latency-ms", at_ms - begun.pop(process, at_ms))
        yield (
            f"{client}\t{operation}\tRESPONSE\t{_result(entry)}\t{value}\t{key}\t{at_ms}"
            f"\t{latency}\t{more}\t{entry.get('end-to-end-ms', 0)}\n"
        )


def _result(entry: EdnMap) -> str:
    if entry.get("type") == "ok":
        return "SUCCESS"
    is_failure = entry.get("type") == "fail" or entry.get("error") == "failure"
    return "FAILURE" if is_failure else "UNKNOWN"


def _milliseconds(time: object) -> int:
    return time // _MS if isinstance(time, int) else 0


def _text(value: object) -> str:
    if value is None:
        return NULL
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    text = value if isinstance(value, str) else encode(value)
    return text.replace("\t", " ").replace("\n", " ")
