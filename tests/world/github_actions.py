"""GitHub's runner as far as a nightly workflow needs it: its rules, written down and executed.

Jobs      One for each value of ``strategy.matrix``, begun when what it ``needs`` has ended. A job
          without ``if`` begins only if all that it needs succeeded.
Steps     In order, each unless its ``if`` says no. An ``if`` that names none of success(),
          failure(), always() and cancelled() stands for ``success() && (...)``; success() is true
          while no step of the job has failed, failure() from then on.
          A step that fails fails its job unless ``continue-on-error`` is set: then its outcome is
          failure and its conclusion success. steps.ID.outcome, .conclusion and .outputs tell.
Commands  ``bash -e`` in the checkout, or in ``working-directory``, with the ``env`` of workflow,
          job and step, and what earlier steps wrote to GITHUB_ENV. GITHUB_OUTPUT gives outputs.
Caches    An entry is its key and its path, and never changes: saving under a key that there is
          fails with a warning alone. A restore takes the entry of that very key (``cache-hit`` is
          true then), else for each of ``restore-keys`` in turn the newest that begins with it.
          ``actions/cache`` restores where it stands, and saves after the last step, in reverse
          order of such steps, only if the job has succeeded till then and the key was not hit
          (``post-if: success()`` of its action.yml). ``cache/save`` saves where it stands.
Artifacts One a name in a run, unless ``overwrite`` is set; hidden files are left out, and links
          become what they lead to. A download without a name puts each into a directory that is
          called after it.
A rerun has the same run_id, and a run_attempt that is one higher; a new night another run_id.

After docs.github.com (workflow syntax, contexts, expressions) and the README files of
actions/cache and actions/upload-artifact, version 4. What is not written here is refused.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

STATUS = re.compile(r"\b(success|failure|always|cancelled)\s*\(\s*\)")
TOKEN = re.compile(r"\s*(&&|\|\||==|!=|!|\(|\)|'(?:[^']|'')*'|[\w.-]+)")
_KNOWN_KEYS = (
    *("name", "uses", "run", "with", "if", "env", "id"),
    *("continue-on-error", "working-directory"),
)


@dataclass
class Caches:
    """The entries of a repository, the oldest first: (key, path) and a copy of the files."""

    root: Path
    entries: list[tuple[str, str, Path]] = field(default_factory=list)

    def save(self, key: str, path: str, workspace: Path) -> str:
        """What the log says; it fails no step."""
        if any((key, path) == each[:2] for each in self.entries):
            return f"Unable to reserve cache with key {key}"
        if not (workspace / path).exists():
            return "Path(s) specified in the action for caching do(es) not exist"
        place = self.root / str(len(self.entries))
        shutil.copytree(workspace / path, place, symlinks=True)
        self.entries.append((key, path, place))
        return "saved"

    def restore(self, key: str, prefixes: list[str], path: str, workspace: Path) -> str:
        """The key of what was restored; "" if there is none."""
        own = [each for each in reversed(self.entries) if each[1] == path]
        exact = [each for each in own if each[0] == key]
        begun = [each for prefix in prefixes for each in own if each[0].startswith(prefix)]
        for found, _, place in (*exact, *begun):
            shutil.copytree(place, workspace / path, symlinks=True, dirs_exist_ok=True)
            return found
        return ""


@dataclass
class Step:
    told: Mapping[str, Any]
    outcome: str = "skipped"
    conclusion: str = "skipped"
    outputs: dict[str, str] = field(default_factory=dict)


@dataclass
class Job:
    """One job as it was run. ``log``: what its steps wrote."""

    name: str
    matrix: Mapping[str, Any]
    workspace: Path
    steps: list[Step] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    log: str = ""
    failed: bool = False
    posts: list[Mapping[str, str]] = field(default_factory=list)

    @property
    def result(self) -> str:
        return "failure" if self.failed else "success"


class Runner:
    """Runs workflows of one repository, night after night. ``path``: goes before PATH."""

    def __init__(self, checkout: Path, scratch: Path, env: Mapping[str, str]) -> None:
        self.checkout, self.scratch, self.env = checkout, scratch, dict(env)
        self.caches = Caches(scratch / "caches")
        self.artifacts: dict[tuple[int, str], Path] = {}
        self._numbers = itertools.count(1)

    def run(
        self, workflow: Path, run_id: int, attempt: int = 1, only: str = ""
    ) -> dict[str, list[Job]]:
        """All jobs, by the names of the file; of job ``only`` the first, and no others."""
        told = yaml.safe_load(workflow.read_text())
        github = {"run_id": run_id, "run_attempt": attempt, "workflow": told.get("name", "")}
        done: dict[str, list[Job]] = {}
        waiting = {only: told["jobs"][only]} if only else dict(told["jobs"])
        while waiting:
            name = next(n for n, job in waiting.items() if all(x in done for x in _needs(job)))
            job = waiting.pop(name)
            failed = any(one.failed for need in _needs(job) for one in done[need])
            done[name] = []
            if not _holds(job.get("if", ""), {"github": github}, failed):
                continue
            for values in list(_matrix(job))[: 1 if only else None]:
                done[name].append(self._job(name, job, values, github, told.get("env") or {}))
        return done

    def _job(
        self,
        name: str,
        told: Mapping[str, Any],
        matrix: Mapping[str, Any],
        github: Mapping[str, Any],
        env: Mapping[str, Any],
    ) -> Job:
        workspace = self.scratch / f"job-{next(self._numbers)}" / "work"
        workspace.mkdir(parents=True)
        job = Job(name, matrix, workspace)
        job.env = {k: str(v) for k, v in {**env, **(told.get("env") or {})}.items()}
        contexts = {"github": github, "matrix": matrix, "env": job.env}
        for each in told["steps"]:
            unknown = [key for key in each if key not in _KNOWN_KEYS]
            assert not unknown, f"the runner does not know {unknown}"
            step = Step(each)
            job.steps.append(step)
            steps = {x.told["id"]: vars(x) for x in job.steps if "id" in x.told}
            now = {**contexts, "steps": steps}
            if _holds(str(each.get("if", "")), now, job.failed):
                ended = self._step(job, step, now)
                step.outcome = step.conclusion = "success" if ended else "failure"
                if not ended and each.get("continue-on-error"):
                    step.conclusion = "success"
                job.failed |= step.conclusion == "failure"
        for post in reversed(job.posts):
            if not job.failed:
                job.log += self.caches.save(post["key"], post["path"], workspace) + "\n"
        return job

    def _step(self, job: Job, step: Step, contexts: Mapping[str, Any]) -> bool:
        """Whether it succeeded."""
        if "run" in step.told:
            return self._command(job, step, contexts)
        given = {k: _filled(str(v), contexts) for k, v in (step.told.get("with") or {}).items()}
        action = step.told["uses"].partition("@")[0]
        if action == "actions/checkout":
            shutil.copytree(self.checkout, job.workspace, dirs_exist_ok=True)
        elif action in ("actions/cache", "actions/cache/restore"):
            found = self.caches.restore(
                given["key"], given.get("restore-keys", "").split(), given["path"], job.workspace
            )
            step.outputs = {
                "cache-hit": str(found == given["key"]).lower() if found else "",
                "cache-primary-key": given["key"],
                "cache-matched-key": found,
            }
            if action == "actions/cache" and found != given["key"]:
                job.posts.append(given)
        elif action == "actions/cache/save":
            job.log += self.caches.save(given["key"], given["path"], job.workspace) + "\n"
        elif action in ("actions/upload-artifact", "actions/download-artifact"):
            return self._artifact(job, action, given, contexts["github"]["run_id"])
        else:
            assert action == "actions/setup-python", f"the runner does not know {action}"
        return True

    def _artifact(self, job: Job, action: str, given: Mapping[str, str], run_id: int) -> bool:
        if action == "actions/download-artifact":
            for (run, name), place in self.artifacts.items():
                if run == run_id:
                    shutil.copytree(place, job.workspace / name, symlinks=True)
            return True
        source = job.workspace / given["path"]
        if not source.exists():
            return True  # a warning: if-no-files-found
        if (run_id, given["name"]) in self.artifacts and given.get("overwrite") != "True":
            return False
        place = self.scratch / "artifacts" / str(run_id) / given["name"]
        shutil.rmtree(place, ignore_errors=True)
        hidden = shutil.ignore_patterns(".*")  # include-hidden-files is false
        shutil.copytree(source, place, ignore=hidden, ignore_dangling_symlinks=True)
        self.artifacts[run_id, given["name"]] = place
        return True

    def _command(self, job: Job, step: Step, contexts: Mapping[str, Any]) -> bool:
        files = {
            name: job.workspace.parent / name
            for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")
        }
        for path in files.values():
            path.write_text("")
        own = {k: _filled(str(v), contexts) for k, v in (step.told.get("env") or {}).items()}
        own |= {name: str(path) for name, path in files.items()}
        done = subprocess.run(
            ["bash", "-e", "-c", _filled(step.told["run"], contexts)],
            cwd=job.workspace / _filled(step.told.get("working-directory", "."), contexts),
            env={**os.environ, **self.env, **job.env, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        job.log += f"$ {step.told['run']}\n{done.stdout}"
        step.outputs = _pairs(files["GITHUB_OUTPUT"])
        job.env |= _pairs(files["GITHUB_ENV"])
        job.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        return done.returncode == 0


def _pairs(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)


def _needs(job: Mapping[str, Any]) -> list[str]:
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else needs


def _matrix(job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    axes: Mapping[str, list[Any]] = job.get("strategy", {}).get("matrix", {})
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _holds(condition: str, contexts: Mapping[str, Any], failed: bool) -> bool:
    plain = condition.strip().removeprefix("${{").removesuffix("}}").strip()
    if not STATUS.search(plain):
        plain = f"success() && ({plain})" if plain else "success()"
    return bool(_Expression(plain, contexts, failed).value())


def _filled(text: str, contexts: Mapping[str, Any]) -> str:
    def value(found: re.Match[str]) -> str:
        made = _Expression(found.group(1), contexts, failed=False).value()
        return "" if made is None else str(made)

    return re.sub(r"\$\{\{(.*?)\}\}", value, text)


class _Expression:
    """``a || b``, ``a && b``, ``==``, ``!=``, ``!``, brackets, texts, contexts, and functions of
    the status."""

    def __init__(self, text: str, contexts: Mapping[str, Any], failed: bool) -> None:
        self._tokens = TOKEN.findall(text)
        assert "".join(self._tokens) == re.sub(r"\s+(?=(?:[^']*'[^']*')*[^']*$)", "", text), text
        self._contexts = contexts
        self._status = {"success": not failed, "failure": failed, "always": True}
        self._status["cancelled"] = False

    def value(self) -> Any:
        left = self._all()
        while self._taken("||"):
            right = self._all()
            left = left or right
        return left

    def _all(self) -> Any:
        left = self._equal()
        while self._taken("&&"):
            right = self._equal()
            left = left and right
        return left

    def _equal(self) -> Any:
        left = self._one()
        if self._taken("=="):
            return str(left) == str(self._one())
        return str(left) != str(self._one()) if self._taken("!=") else left

    def _one(self) -> Any:
        if self._taken("!"):
            return not self._one()
        if self._taken("("):
            inner = self.value()
            assert self._taken(")")
            return inner
        token = self._tokens.pop(0)
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        if self._taken("("):
            assert self._taken(")")
            return self._status[token]
        if token in ("true", "false"):
            return token == "true"
        found: Any = self._contexts
        for part in token.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    def _taken(self, token: str) -> bool:
        if self._tokens[:1] == [token]:
            del self._tokens[0]
            return True
        return False
