"""What texts refer to is there: documents, sections, files, modules; and no docstring is cut off.

Read are Markdown files, shell scripts, and of code the docstrings and comments. A rule is a
function from a text's path and lines to sentences. Originals' files (Java, Erlang, Clojure, Go) are
sources, not files of ours.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tests.tidy.sources import PACKAGES, Source

Line = tuple[int, str]

# A number of a section of some other document: "the reference, 2.2.9".
OTHER_DOCUMENT = re.compile(r"\b[Rr]eferences? \(?\d")
PROTOCOLS = "docs/protocols.md"
SECTIONS = re.compile(re.escape(PROTOCOLS) + r"((?:,? \d+(?:\.\d+)*)+)")
HEADING = re.compile(r"^#+ (\d+(?:\.\d+)*) ", re.MULTILINE)
COMMENT = re.compile(r"(?:(?<=  )|^)# .*")
FOLDERS = (
    *(f"shalott/{package}" for package in PACKAGES),
    "benchmarks",
    "docs",
    "examples",
    "scripts",
    "tests",
    ".ci",
)
# A path of ours begins at the checkout, or below the package: broker/raft/core.py.
PATH = re.compile(
    r"(?<![\w./{}<>-])((?:"
    + "|".join(map(re.escape, (*FOLDERS, *PACKAGES)))
    + r")(?:/[\w.-]+)+)(?![\w{*…])"
)
FILE = re.compile(r"(?<![\w/.*}<{-])([a-z]\w*\.(?:py|c|h|sh|md|j2|js|css|html|toml))\b(?![*/(])")
MODULE = re.compile(r"(?<![\w./-])(?:shalott\.)?((?:" + "|".join(PACKAGES) + r")(?:\.[a-z_]\w*)+)")

HOUSE_WORDS: Mapping[str, str] = {
    "fate": "outcome",
    "reign": "tenure",
    "habit": "client guarantee",
    "crew": "workers",
    "undoing": "heal",
}
HOUSE_WORD = re.compile(
    r"(?<![\w`./\"'{-])("
    + "|".join(f"{word}s?" for word in HOUSE_WORDS)
    + r")\b(?![\w`\"'./(-]*[`_\"]|\.\w|/)"
)
# Texts about other times or trees, and why.
NOT_READ: Mapping[str, str] = {
    "CHANGELOG.md": "says what was where at the time",
}
# Names that look like a file or module of ours and are something else.
MEANT: Mapping[str, str] = {
    "report.html": "written by a run",
    "report.md": "written by Spark's report",
    "_engine.c": "written by the build",
    "ticket.py": "what the reader of a tutorial writes, as are the next ones",
    "slowness.py": "the same",
    "night.toml": "the same",
    "node.toml": "written for each node",
    "broker.role": "a setting, as are the other names of that form",
}
# Words after "broker." that are names of settings and files, not modules.
SETTINGS = re.compile(r"broker\.(?:role|xml|\w+_(?:ms|interval|addr|id|name|enable))$")


@dataclass(frozen=True, slots=True)
class Tree:
    """What may be referred to: files and folders, bare names, and the sections of the protocols."""

    places: frozenset[str]
    names: frozenset[str]
    sections: frozenset[str]


def tree_of(files: Sequence[str], protocols: str) -> Tree:
    inside = [name.removeprefix("shalott/") for name in files]
    places = [*files, *inside]
    folders = {str(parent) for name in places for parent in PurePosixPath(name).parents}
    return Tree(
        places=frozenset(places) | folders,
        names=frozenset(PurePosixPath(name).name for name in files),
        sections=frozenset(HEADING.findall(protocols)),
    )


def docstrings(node: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Each docstring's statement and text, of functions within statements such as ``if`` too."""
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text is not None:
            yield body[0], text
    for inner in (*body, *getattr(node, "orelse", ())):
        yield from docstrings(inner)


def prose(source: Source) -> list[Line]:
    """The lines of a Python file's docstrings and comments."""
    found: list[Line] = []
    lines = source.text.splitlines()
    for string, _ in docstrings(source.tree):
        found += list(enumerate(lines[string.lineno - 1 : string.end_lineno], string.lineno))
    for number, line in enumerate(lines, 1):
        if (match := COMMENT.search(line)) is not None:
            found.append((number, match.group()))
    return sorted(found)


def comments_of_c(text: str) -> list[Line]:
    """The lines of a C file without its #include lines."""
    lines = enumerate(text.splitlines(), 1)
    return [(number, line) for number, line in lines if not line.startswith("#include")]


def other_documents(path: str, lines: Sequence[Line], tree: Tree) -> Iterator[str]:
    for number, line in lines:
        if OTHER_DOCUMENT.search(line):
            yield f"{path}:{number}: no such document is here: cite {PROTOCOLS}, or a paper"


def missing_sections(path: str, lines: Sequence[Line], tree: Tree) -> Iterator[str]:
    text = " ".join(line.strip().lstrip("#*/ ") for _, line in lines)
    for match in SECTIONS.finditer(text):
        for section in re.findall(r"\d+(?:\.\d+)*", match[1]):
            if section not in tree.sections:
                yield f"{path}: {PROTOCOLS} has no section {section}"


def missing_paths(path: str, lines: Sequence[Line], tree: Tree) -> Iterator[str]:
    for number, line in lines:
        for match in PATH.finditer(line):
            named = match[1].rstrip("./-")
            test = re.sub(r"\.test_\w+$", ".py", named)  # tests/x/test_y.test_z is a test of a file
            if PurePosixPath(named).suffix in (".java", ".erl", ".go", ".clj"):
                continue
            if not tree.places & {named, test, f"{named}.py"}:
                yield f"{path}:{number}: {named} is not there"


def missing_files(path: str, lines: Sequence[Line], tree: Tree) -> Iterator[str]:
    """A bare file name is that of some file."""
    for number, line in lines:
        for match in FILE.finditer(line):
            if match[1] not in tree.names and match[1] not in MEANT:
                yield f"{path}:{number}: no file is called {match[1]}"


def missing_modules(path: str, lines: Sequence[Line], tree: Tree) -> Iterator[str]:
    """The first two names of a dotted one are a package or module."""
    for number, line in lines:
        for match in MODULE.finditer(line):
            first = "/".join(match[1].split(".")[:2])
            if tree.places & {first, f"{first}.py"} or SETTINGS.match(match[1]):
                continue
            if PurePosixPath(match[1].replace(".", "/")).name in ("md", "py"):
                continue
            yield f"{path}:{number}: there is no {match[1]}"


def house_words(path: str, lines: Sequence[Line], tree: Tree) -> Iterator[str]:
    """Words of this house where the field has its own. Names in quotes or code are not meant."""
    for number, line in lines:
        for match in HOUSE_WORD.finditer(line):
            yield f"{path}:{number}: {match[1]}: say {HOUSE_WORDS[match[1].rstrip('s')]}"


CITATION_RULES: Mapping[str, Callable[[str, Sequence[Line], Tree], Iterator[str]]] = {
    "other documents": other_documents,
    "sections": missing_sections,
    "paths": missing_paths,
    "files": missing_files,
    "modules": missing_modules,
    "house words": house_words,
}


def cut_docstrings(source: Source) -> Iterator[str]:
    """A docstring's first line is a sentence by itself."""
    for string, text in docstrings(source.tree):
        if text.partition("\n")[0].rstrip().endswith(":"):
            yield f"{source.path}:{string.lineno}: a docstring cut at a colon: make it a sentence"


_ARCHIVES = (
    *("pypi|org", "pythonhosted|org", "deb|debian|org", "ftp|debian|org", "security|debian|org"),
    *("snapshot|debian|org", "archive|ubuntu|com", "ports|ubuntu|com", "npmjs|org", "npmjs|com"),
    *("yarnpkg|com", "repo1|maven|org", "repo|maven|apache|org", "crates|io", "rubygems|org"),
    *("proxy|golang|org", "goproxy|io", "registry|hub|docker|com", "ghcr|io", "quay|io"),
    *("clojars|org", "packagist|org", "conda|anaconda|org"),
)
ARCHIVE = re.compile(
    r"\b(?:[\w-]+\.)*(?:" + "|".join(host.replace("|", r"\.") for host in _ARCHIVES) + r")\b"
)


def archive_hosts(path: str, text: str) -> Iterator[str]:
    """Package managers know their archives; a mirror is a setting of the machine."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in ARCHIVE.finditer(line):
            yield f"{path}:{number}: {match.group()}: leave the archive to the package manager"
