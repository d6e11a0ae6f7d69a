"""Tables, CSV and JSON, letter by letter as rabbitmqctl 3.10.8 of Debian printed them."""

from __future__ import annotations

import pytest

from shalott.broker.rabbit.ctl.listing import as_csv, as_json, as_table

pytestmark = pytest.mark.unit

ROWS = [
    {
        "name": "hello.1",
        "messages": 0,
        "arguments": {"x-max-length": 5},
        "policy": "hello-ha",
        "slave_pids": ["<n2.1.5>", "<n3.1.6>"],
        "durable": True,
    }
]


def test_a_table() -> None:
    columns = ("name", "arguments", "policy", "slave_pids", "durable")
    assert as_table(ROWS, columns, headers=True) == [
        "name\targuments\tpolicy\tslave_pids\tdurable",
        'hello.1\t[{"x-max-length",5}]\thello-ha\t[<n2.1.5>, <n3.1.6>]\ttrue',
    ]
    assert as_table(ROWS, ("name",), headers=False) == ["hello.1"]
    assert as_table([], columns, headers=True) == []
    assert as_table([{"arguments": {}}], ("arguments",), headers=False) == ["[]"]
    named = [{"arguments": {"x-dead-letter-exchange": "dlx"}}]
    assert as_table(named, ("arguments",), headers=False) == ['[{"x-dead-letter-exchange","dlx"}]']


def test_csv_has_each_cell_in_quotes() -> None:
    told = as_csv(ROWS, ("name", "messages"), headers=True)
    assert told == ['"name","messages"', '"hello.1","0"']
    assert as_csv([{"name": 'a "b"'}], ("name",), headers=False) == ['"a ""b"""']


def test_json_has_a_row_a_line() -> None:
    assert as_json(ROWS, ("name", "messages")) == ["[", '{"name":"hello.1","messages":0}', "]"]
