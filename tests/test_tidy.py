"""The house rules as tests, one test a rule. A rule that is not here is advice.

Each rule reads one file and yields its complaints. It runs over every file it applies to, and over a sample
that breaks it, which shows that the rule can fail.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "windlass"
PYTHON = sorted(SOURCE.rglob("*.py"))
SQL = sorted(SOURCE.rglob("*.sql"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_MODULES = 24  # a folder
MAX_SEAM_VERBS = 23  # 20, since decision 0005 `transaction` and `once`, since 0050 `ended`
SEAM_ROLES = ("EnqueueStore", "WorkStore", "KeepStore", "AskStore", "AdminStore")

# Stems, so that "jobs", "acked" and "reaper" are found as well.
BANNED_WORDS = {
    "job": "task",
    "ack": "settle",
    "nack": "settle",
    "dequeu": "claim",
    "broker": "store",
    "backend": "store",
    "actor": "handler",
    "eta": "run_at",
    "countdown": "delay",
    "dlq": "dead letter",
    "morgue": "dead letter",
    "janitor": "keeper",
    "reap": "rescue",
    "requeu": "postpone",
    "purg": "discard (a person) or prune (retention)",
}
BANNED_STEM = re.compile(rf"({'|'.join(BANNED_WORDS)})(e|es|s|ed|er|ers|ing)?")
BANNED_FILES = {"base", "common", "helpers", "manager", "misc", "util", "utils"}
TRIES_MORE = re.compile(r"\bmark\.(more|full|chaos)\b|\bgiven\(")  # in the rest, or in no gate
SHELLS = {"os.system", "os.popen", "asyncio.create_subprocess_shell", "create_subprocess_shell"}
UNSAFE_MODULES = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class File:
    """A file to judge: where it is, seen from its root, and what it says."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


Rule = Callable[[File], Iterator[str]]


def words(identifier: str) -> list[str]:
    """`JobState` and `job_state` alike are job, state."""
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)


def advice(identifier: str) -> Iterator[str]:
    for word in words(identifier):
        if found := BANNED_STEM.fullmatch(word.lower()):
            yield f"{identifier!r}: say {BANNED_WORDS[found[1]]!r}, not {word.lower()!r}"


def names_given(node: ast.AST) -> Iterator[str]:
    """The names that a node brings into being; what other libraries call their things is theirs."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case (
            ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name)
        ):
            yield name
        case ast.arg(arg=name) | ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name


def one_word_per_concept(file: File) -> Iterator[str]:
    if file.path.parts[0] == "integrations":  # There, the words are the other ecosystem's.
        return
    for part in file.path.with_suffix("").parts:
        yield from advice(part)
    for node in ast.walk(file.tree):
        for name in names_given(node):
            yield from advice(name)


def one_word_per_concept_in_sql(file: File) -> Iterator[str]:
    for identifier in re.findall(r"[A-Za-z_]\w*", without_comments(file.text)):
        yield from advice(identifier)


def files_named_for_what_they_hold(file: File) -> Iterator[str]:
    if file.path.stem.strip("_") in BANNED_FILES:
        yield f"{file.path.stem!r} says nothing: name the noun or the verb that the file is about"


def short_files(file: File) -> Iterator[str]:
    if (lines := len(file.text.splitlines())) > MAX_FILE_LINES:
        yield f"{lines} lines, at most {MAX_FILE_LINES}: which second noun or verb lives here?"


def names_given_once(file: File) -> Iterator[str]:
    """A second constant of a name silently replaces the first, which type checkers let pass."""
    given: set[str] = set()
    for node in file.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for name in [one.id for one in targets if isinstance(one, ast.Name)]:
            if name in given:
                yield f"line {node.lineno}: {name} has a value already"
            given.add(name)


def no_gerunds_for_files(file: File) -> Iterator[str]:
    if file.path.stem.endswith("ing") and file.path.stem.strip("_") not in {"testing", "tracing"}:
        yield f"{file.path.stem!r}: name the noun or the verb, without -ing"


def short_functions(file: File) -> Iterator[str]:
    for node in ast.walk(file.tree):
        if isinstance(node, FUNCTIONS) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}"


def a_small_seam(file: File) -> Iterator[str]:
    if file.path != Path("_store/protocol.py"):
        return
    verbs = [
        verb.name
        for protocol in ast.walk(file.tree)
        if isinstance(protocol, ast.ClassDef) and protocol.name in SEAM_ROLES
        for verb in protocol.body
        if isinstance(verb, FUNCTIONS)
    ]
    if not verbs:
        yield "no verbs found in its roles: is the seam still here?"
    if len(verbs) > MAX_SEAM_VERBS:
        yield f"{len(verbs)} verbs, at most {MAX_SEAM_VERBS}; let an old one take a new value: {verbs}"


def opens_with_its_purpose(file: File) -> Iterator[str]:
    if not ast.get_docstring(file.tree):
        yield "no docstring: open with one sentence saying what this file is for"


def no_loose_ends(file: File) -> Iterator[str]:
    for number, line in enumerate(file.text.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME|XXX)\b(?!.*#\d)", line):
            yield f"line {number}: a loose end without a number; do it, or open an issue and name it (#12)"


def nothing_unsafe(file: File) -> Iterator[str]:
    for node in ast.walk(file.tree):
        for module, name in imports(node):
            if module.split(".")[0] in UNSAFE_MODULES:
                yield f"line {node.lineno}: {module} runs what it reads; tasks travel as JSON"
            if (module, name) == ("yaml", "load"):
                yield f"line {node.lineno}: yaml.load runs what it reads; use yaml.safe_load"
        if not isinstance(node, ast.Call):
            continue
        if ast.unparse(node.func) in {"eval", "exec", "yaml.load", *SHELLS}:
            yield f"line {node.lineno}: {ast.unparse(node.func)}() runs what it reads"
        if any(one.arg == "shell" and ast.unparse(one.value) != "False" for one in node.keywords):
            yield f"line {node.lineno}: a shell runs what it reads; pass a list of arguments"


def environment_read_in_one_place(file: File) -> Iterator[str]:
    if file.path == Path("config.py"):
        return
    for node in ast.walk(file.tree):
        named = isinstance(node, ast.Attribute) and ast.unparse(node) in {
            "os.environ",
            "os.environb",
            "os.getenv",
        }
        if named or {("os", "environ"), ("os", "environb"), ("os", "getenv")} & set(imports(node)):
            yield f"line {node.lineno}: only config.py reads the environment; take a setting as an argument"


def no_sleeping(file: File) -> Iterator[str]:
    for node in ast.walk(file.tree):
        if {("time", "sleep"), ("asyncio", "sleep")} & set(imports(node)):
            yield f"line {node.lineno}: import the module and not its sleep, so that it can be seen"
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in {"time.sleep", "asyncio.sleep"}:
            continue
        if [ast.unparse(argument) for argument in node.args] != ["0"]:
            yield f"line {node.lineno}: tests wait for an event or turn the clock, they do not sleep"


def what_tries_more_is_marked(file: File) -> Iterator[str]:
    names = names_by_size(file)
    if any(TRIES_MORE.search(ast.unparse(node)) for node in file.tree.body if "pytestmark" in given_by(node)):
        return
    for suite in (file.tree, *(node for node in file.tree.body if isinstance(node, ast.ClassDef))):
        outer = [] if isinstance(suite, ast.Module) else suite.decorator_list
        for node in suite.body:
            if not isinstance(node, FUNCTIONS) or not node.name.startswith("test_"):
                continue
            marked = any(TRIES_MORE.search(ast.unparse(one)) for one in (*outer, *node.decorator_list))
            if not marked and (found := names & names_used(node)):
                yield f"{node.name} tries more in a full run ({', '.join(sorted(found))}): mark it `more`"


@cache
def names_by_size(file: File) -> frozenset[str]:
    """The names at the top of a test file that depend on how much the tests try: see tests/examples.py."""
    if file.path == Path("tests/examples.py"):
        return frozenset({"FULL", "REST"})
    names = set[str]()
    for node in file.tree.body:
        if isinstance(node, ast.ImportFrom) and (path := imported_test_file(file, node)):
            theirs = names_by_size(_read(path, ROOT))
            names |= {alias.asname or alias.name for alias in node.names if alias.name in theirs}
    shared = [(given_by(node), names_used(node)) for node in file.tree.body]
    while more := {name for given, used in shared if used & names for name in given} - names:
        names |= more
    return frozenset(names)


def imported_test_file(file: File, node: ast.ImportFrom) -> Path | None:
    """The file below tests/ that a statement imports from, if any."""
    folders = file.path.parts[: -node.level] if node.level else ()
    path = ROOT.joinpath(*folders, *(node.module or "").split(".")).with_suffix(".py")
    return path if path in TESTS else None


def given_by(node: ast.stmt) -> set[str]:
    """The names that a statement gives to its module."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return {node.name}
    return {name for part in ast.walk(node) for name in names_given(part)}


def names_used(node: ast.AST) -> set[str]:
    """The names and fixtures that a statement uses, but for what `sample` marks."""
    match node:
        case ast.Call(func=ast.Name(id="sample")):
            return set()
        case ast.Name(id=name, ctx=ast.Load()) | ast.arg(arg=name):
            return {name}
    return {name for part in ast.iter_child_nodes(node) for name in names_used(part)}


def no_policy_in_sql(file: File) -> Iterator[str]:
    depth = 0
    for word in re.findall(r"[a-z_]+", without_comments(file.text).lower()):
        depth += (word == "case") - (word == "end" and depth > 0)
        if depth and word == "max_attempts":
            yield "max_attempts in a CASE: SQL moves and guards rows; _policy decides and passes a verdict"


def imports(node: ast.AST) -> list[tuple[str, str]]:
    """(module, name) for each thing a statement imports; the name is empty for a whole module."""
    match node:
        case ast.Import(names=names):
            return [(alias.name, "") for alias in names]
        case ast.ImportFrom(module=str(module), names=names):
            return [(module, alias.name) for alias in names]
    return []


def without_comments(sql: str) -> str:
    return re.sub(r"--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL)


PYTHON_RULES: list[Rule] = [
    one_word_per_concept,
    files_named_for_what_they_hold,
    no_gerunds_for_files,
    names_given_once,
    short_files,
    short_functions,
    a_small_seam,
    opens_with_its_purpose,
    no_loose_ends,
    nothing_unsafe,
    environment_read_in_one_place,
]
SQL_RULES: list[Rule] = [one_word_per_concept_in_sql, short_files, no_loose_ends, no_policy_in_sql]
TEST_RULES: list[Rule] = [opens_with_its_purpose, no_sleeping, what_tries_more_is_marked]

IMPORT = "from tests.examples import FULL\n"
BREACHES: list[tuple[Rule, str, str]] = [
    (one_word_per_concept, "a.py", "class JobState: ..."),
    (one_word_per_concept, "a.py", "def f(*, acked): ..."),
    (one_word_per_concept, "a.py", "self.reaper = 1"),
    (one_word_per_concept, "a.py", "import task as job"),
    (one_word_per_concept, "_broker/a.py", ""),
    (one_word_per_concept_in_sql, "a.sql", "SELECT id FROM dlq"),
    (one_word_per_concept_in_sql, "a.sql", "CREATE TABLE purged_jobs (eta INTEGER)"),
    (files_named_for_what_they_hold, "_utils.py", ""),
    (no_gerunds_for_files, "_http/serving.py", ""),
    (names_given_once, "a.py", "LIMIT = 1\nLIMIT: int = 2"),
    (short_files, "a.py", "\n" * (MAX_FILE_LINES + 1)),
    (short_functions, "a.py", "async def f():\n" + "    g()\n" * MAX_FUNCTION_LINES),
    (a_small_seam, "_store/protocol.py", "def enqueue(): ..."),
    (
        a_small_seam,
        "_store/protocol.py",
        "class AskStore(Protocol):\n" + "    def v(self): ...\n" * (MAX_SEAM_VERBS + 1),
    ),
    (opens_with_its_purpose, "a.py", "x = 1"),
    (no_loose_ends, "a.py", "# TODO: later"),
    (nothing_unsafe, "a.py", "import pickle"),
    (nothing_unsafe, "a.py", "from marshal import loads"),
    (nothing_unsafe, "a.py", "eval('1')"),
    (nothing_unsafe, "a.py", "def f(): exec('1')"),
    (nothing_unsafe, "a.py", "yaml.load(text)"),
    (nothing_unsafe, "a.py", "from yaml import load"),
    (nothing_unsafe, "a.py", "os.system(text)"),
    (nothing_unsafe, "a.py", "async def f(): await asyncio.create_subprocess_shell(text)"),
    (nothing_unsafe, "a.py", "subprocess.run(text, shell=True)"),
    (environment_read_in_one_place, "app.py", "import os; os.environ['X']"),
    (environment_read_in_one_place, "_cli/config.py", "import os; os.getenv('X')"),
    (environment_read_in_one_place, "app.py", "from os import environ"),
    (no_sleeping, "a.py", "time.sleep(1)"),
    (no_sleeping, "a.py", "async def f(): await asyncio.sleep(0.1)"),
    (no_sleeping, "a.py", "from time import sleep"),
    (what_tries_more_is_marked, "a.py", f"{IMPORT}def test_a(): f(9 if FULL else 1)"),
    (what_tries_more_is_marked, "a.py", f"{IMPORT}MANY = 9 if FULL else 1\nasync def test_a(): f(MANY)"),
    (what_tries_more_is_marked, "a.py", f"{IMPORT}def few(): f(FULL)\nclass TestA:\n def test_a(_, few): 1"),
    (
        what_tries_more_is_marked,
        "tests/security/a.py",
        "from .probes import chosen as some\n@parametrize('n', some(X))\ndef test_a(n): ...",
    ),
    (no_policy_in_sql, "a.sql", "SELECT CASE WHEN attempt >= max_attempts THEN 'dead' END"),
]
ALLOWED: list[tuple[Rule, str, str]] = [
    (one_word_per_concept, "package.py", "def feedback(beta, package, objective): theirs.ack()"),
    (one_word_per_concept, "integrations/django.py", "class Backend: ..."),
    (one_word_per_concept_in_sql, "a.sql", "-- no job here\nSELECT id FROM task"),
    (
        a_small_seam,
        "_store/protocol.py",
        "class AskStore(Protocol):\n" + "    def v(self): ...\n" * MAX_SEAM_VERBS,
    ),
    (no_loose_ends, "a.py", "# TODO(#12): later"),
    (nothing_unsafe, "a.py", "re.compile('x'); yaml.safe_load(text); connection.exec(1)"),
    (environment_read_in_one_place, "config.py", "import os; os.environ['X']"),
    (no_sleeping, "a.py", "async def f(): await asyncio.sleep(0)"),
    (what_tries_more_is_marked, "a.py", f"{IMPORT}@pytest.mark.more\ndef test_a(): f(FULL)"),
    (what_tries_more_is_marked, "a.py", f"{IMPORT}pytestmark = pytest.mark.full\ndef test_a(): f(FULL)"),
    (what_tries_more_is_marked, "a.py", f"{IMPORT}@given(x)\ndef test_a(): f(FULL)"),
    (what_tries_more_is_marked, "a.py", f"{IMPORT}@parametrize('n', sample([1], [FULL]))\ndef test_a(): 1"),
    (what_tries_more_is_marked, "a.py", "FULL = {}\ndef test_a(): f(FULL)"),
    (no_policy_in_sql, "a.sql", "SELECT CASE WHEN a THEN 1 END, max_attempts FROM task"),
]


def complaints(rule: Rule, paths: list[Path], root: Path) -> list[str]:
    """What the rule finds wrong in these files."""
    return [
        f"{path.relative_to(root)}: {complaint}" for path in paths for complaint in rule(_read(path, root))
    ]


@cache
def _read(path: Path, root: Path) -> File:
    return File(path.relative_to(root), path.read_text())


def test_the_rules_have_something_to_rule() -> None:
    assert PYTHON, f"no Python files below {SOURCE}"
    assert TESTS, "no tests"
    assert SQL or not (SOURCE / "_stores" / "sqlite" / "store.py").exists(), (
        "the SQLite store without its .sql files"
    )
    assert (SOURCE / "_store/protocol.py").exists(), "the seam is gone, or has moved: tell this file where to"


@pytest.mark.parametrize("rule", PYTHON_RULES, ids=lambda rule: rule.__name__)
def test_source_follows_the_rule(rule: Rule) -> None:
    assert complaints(rule, PYTHON, SOURCE) == []


@pytest.mark.parametrize("rule", SQL_RULES, ids=lambda rule: rule.__name__)
def test_sql_follows_the_rule(rule: Rule) -> None:
    assert complaints(rule, SQL, SOURCE) == []


@pytest.mark.parametrize("rule", TEST_RULES, ids=lambda rule: rule.__name__)
def test_tests_follow_the_rule(rule: Rule) -> None:
    assert complaints(rule, TESTS, ROOT) == []


def test_folders_are_small() -> None:
    sizes = Counter(path.parent.relative_to(SOURCE) for path in PYTHON)

    assert {str(folder): size for folder, size in sizes.items() if size > MAX_MODULES} == {}


def test_every_module_has_a_test_of_its_name() -> None:
    """Named after it or a folder it is in, unless it is tiny; test_conformance.py tests the stores."""
    tests = {path.stem.removeprefix("test_") for path in TESTS} | {"stores"}
    large = [path for path in PYTHON if len(path.read_text().splitlines()) > 40]
    modules = [path.relative_to(SOURCE) for path in large if path.stem != "__init__"]
    untested = [
        str(module)
        for module in modules
        if not tests & {part.strip("_") for part in module.with_suffix("").parts}
    ]

    assert untested == []


@pytest.mark.parametrize(("rule", "name", "text"), BREACHES)
def test_a_rule_finds_its_breach(rule: Rule, name: str, text: str) -> None:
    assert list(rule(File(Path(name), text)))


@pytest.mark.parametrize(("rule", "name", "text"), ALLOWED)
def test_a_rule_lets_the_innocent_pass(rule: Rule, name: str, text: str) -> None:
    assert not list(rule(File(Path(name), text)))


def test_every_rule_is_shown_to_fail() -> None:
    assert {*PYTHON_RULES, *SQL_RULES, *TEST_RULES} == {rule for rule, _, _ in BREACHES}
