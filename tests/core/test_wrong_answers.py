"""What a client returns that is no Completion: an info, in a sentence that names the client."""

from __future__ import annotations

import asyncio

import pytest

from shalott.checkers.runs.stats import Stats
from shalott.core.memory_recording import MemoryRecorder
from shalott.core.op import Completion, Invocation
from shalott.core.worker import Worker
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit


class JobsClient:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def invoke(self, invocation: Invocation) -> Completion:
        return self.answer  # type: ignore[return-value]


def perform(answer: object) -> tuple[Completion, int]:
    """What the worker makes of it, and which process it serves next."""

    async def once() -> tuple[Completion, int]:
        recorder = MemoryRecorder(lambda: 0, lambda: 0)
        worker = Worker(
            0, "n1", 4, lambda node: JobsClient(answer), recorder, op_timeout_ms=1000, seed=1
        )
        return await worker.perform(Invocation(f="put")), worker.process

    return asyncio.run(once())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"type": "ok"}, "returned a dict, not a Completion"),
        (None, "returned None, not a Completion"),
        ("ok", "returned a str, not a Completion"),
        (Completion(type="maybe"), "returned the type 'maybe', not a Completion of ok, fail, info"),  # type: ignore[arg-type]
        (Completion(type="ok", value="7"), "returned a str as value, not a Completion of an int64"),  # type: ignore[arg-type]
        (Completion(type="ok", value=2**70), "an int beyond 64 bits as value"),
        (Completion(type="fail", error=OSError()), "returned a OSError as error"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_answer_is_an_info_that_names_the_client(answer: object, said: str) -> None:
    done, process = perform(answer)
    assert done.type == "info" and process == 4
    assert done.error is not None and "JobsClient.invoke returned" in done.error
    assert said in str(done.error)


def test_a_client_may_answer_info_by_itself() -> None:
    done, process = perform(Completion(type="info", error="no answer"))
    assert (done.type, done.error, process) == ("info", "no answer", 4)


def test_a_run_whose_client_answers_so_is_unknown_and_says_why() -> None:
    story = Story().phases()
    for number in range(60):
        story.enqueue(number, number * 0.1)
    story.enqueue(60, 7, kind="info", error="JobsClient.invoke returned a dict, not a Completion")
    result = Stats(min_acked=1).check(story.history())
    assert result.valid == "unknown"
    assert (
        "JobsClient.invoke returned a dict, not a Completion: 1 operations have no outcome"
        in (result.notes[0])
    )


class PatientClient(JobsClient):
    lingers = True
    is_open = True

    async def close(self) -> None:
        self.is_open = False


def test_a_client_that_lingers_is_closed_when_it_is_let_go() -> None:
    made = [PatientClient(None), PatientClient(None)]

    async def main() -> None:
        recorder, left = MemoryRecorder(lambda: 0, lambda: 0), iter(made)
        worker = Worker(0, "n1", 4, lambda node: next(left), recorder, op_timeout_ms=1000, seed=1)
        for _ in made:
            await worker.perform(Invocation(f="put"))
        await worker.close()
        assert all(client.is_open for client in made)
        await worker.let_go()
        assert not any(client.is_open for client in made)

    asyncio.run(main())
