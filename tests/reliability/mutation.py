"""Does a test fail when the code is changed? A sample of small changes below the estimators.

The tests run once before, to tell which of them run which line (by ``coverage`` and
``pytest-cov``). Every change is tried by those of the mirrored folder, until one fails; what
survives is tried by the others that run the line, quick tests first::

    python -m tests.reliability.mutation --n-mutants 150 --seed 0 --work-dir /tmp/mutation

A run that was broken off goes on where it ended. Changes that no result depends on, or only by a
margin that nobody chose to the digit, are left out by ``RULES`` before the sample is drawn; the
last lines printed tell how many each rule leaves out.
"""

import argparse
import ast
import contextlib
import importlib
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[2]
PACKAGES = ("skcircuits/circuits", "skcircuits/kernels")
TESTS = (
    "tests/circuits",
    "tests/kernels",
    "tests/inspection",
    "tests/reliability/test_exactness.py",
)
# What is left out, and why no test could tell it
RULES = {
    "words": "messages and documentation",
    "types": "annotations, names of types, TYPE_CHECKING",
    "checks": "strict=True",
    "lengths": "-1 to -2 in reshape, which NumPy reads alike",
    "numbers": "1e300 to 1e300 + 1, the same float",
    "costs": "constants of the cost policy, comparisons with them, and sizes of blocks",
    "memory": "bytes that blocks are reckoned from",
    "ties": "< to <= beside a real threshold, which numbers equal by chance alone",
    "margins": "limits and tolerances that have a name, moved by a tenth at most",
    "steps": "one step more of a search (for _ in range(n)), one node more of leggauss",
}
# Constants that trade time or memory for time stand in a file of their own.
POLICIES = ("skcircuits/circuits/_policy.py",)
LOWER_POLICY = {"BLOCK_BYTES"}  # of numerics
BLOCK_SIZES = ("max", "min", "row_slices", "memory_bound_chunks")
SECONDS = 90  # of the processor
# Tests of one change: of the mirrored folder, and others
MAX_TESTS = (120, 300)

OPERATORS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"), ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip


class Mutant(NamedTuple):
    """Characters ``start:end`` of a file replaced by a text; the rule that leaves it out or ''."""

    path: str
    line: int
    start: int
    end: int
    text: str
    rule: str


class Constants(NamedTuple):
    """Names of constants: of the cost policy with its fields, of real numbers in any module."""

    policy: set
    reals: set


def constants():
    """Names of the constants of all modules."""
    trees = [ast.parse((ROOT / path).read_text()) for path in POLICIES]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    fields = {n.target.id for node in classes for n in node.body if isinstance(n, ast.AnnAssign)}
    policy, reals = LOWER_POLICY | fields, set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.Assign):
                    own = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                    own = {name for name in own if name.isupper()}
                    policy |= own if str(path.relative_to(ROOT)) in POLICIES else set()
                    values = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
                    reals |= own if any(type(value) is float for value in values) else set()
    return Constants(policy, reals)


def is_policy(node, names):
    """Whether a node compares with a constant of the cost policy, or reckons a block's size."""
    if isinstance(node, ast.Call):
        may = isinstance(node.func, ast.Name) and node.func.id in BLOCK_SIZES
    else:
        is_division = isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)
        may = is_division or isinstance(node, ast.Compare)
    inside = [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)]
    return may and any(
        getattr(n, "id", getattr(n, "attr", "")).lstrip("_") in names for n in inside
    )


def is_memory(node):
    """Whether bytes are reckoned: a function or variable of that name."""
    if isinstance(node, ast.Assign):
        names = [getattr(target, "id", getattr(target, "attr", "")) for target in node.targets]
    else:
        names = [node.name] if isinstance(node, ast.FunctionDef) else []
    return any(name.startswith(("bytes_per", "n_bytes")) for name in names)


def is_type(node):
    """Whether a node is about types alone."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if not isinstance(node, ast.Assign) or isinstance(node.value, ast.Name):
        return isinstance(node, ast.arg | ast.Import | ast.ImportFrom)
    parts = ast.Name | ast.Subscript | ast.BinOp | ast.BitOr | ast.Tuple | ast.List | ast.Load
    inside = [n for n in ast.walk(node.value) if not isinstance(n, ast.Constant)]
    name = getattr(node.targets[0], "id", "").lstrip("_")
    return name[:1].isupper() and not name.isupper() and all(isinstance(n, parts) for n in inside)


def is_threshold(node, names):
    """Whether a node is a real number that is named or no integer, perhaps times or plus others."""
    if isinstance(node, ast.BinOp):
        is_sum = isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
        return is_sum and (is_threshold(node.left, names) or is_threshold(node.right, names))
    if isinstance(node, ast.UnaryOp):
        return is_threshold(node.operand, names)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, float) and not node.value.is_integer()
    return isinstance(node, ast.Name) and node.id in names


def with_margin(node):
    """Numbers of an assignment to names of constants that one more changes by a tenth at most."""
    if not all(n.id.isupper() for n in ast.walk(node.targets[0]) if isinstance(n, ast.Name)):
        return set()
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    values = [value.operand if isinstance(value, ast.UnaryOp) else value for value in values]
    found = [n for n in values if isinstance(n, ast.Constant) and type(n.value) in (int, float)]
    return {n for n in found if n.value >= 10}


def further_steps(node):
    """Numbers that count the steps of a search, or what is added to the nodes of a rule."""
    if isinstance(node, ast.For):
        is_search = isinstance(node.target, ast.Name) and node.target.id == "_"
        call = node.iter if is_search else None
    else:
        call = node
    name = getattr(getattr(call, "func", None), "id", "")
    if name not in ("leggauss", "range") or len(call.args) != 1:
        return set()
    (count,) = call.args
    is_sum = isinstance(count, ast.BinOp) and isinstance(count.op, ast.Add)
    return {count.right if is_sum and name == "leggauss" else count}


def is_reshape(node):
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and node.func.attr == "reshape"


def is_choice_of_words(node):
    if not isinstance(node, ast.IfExp):
        return False
    ends = (node.body, node.orelse)
    return all(isinstance(end, ast.Constant) and isinstance(end.value, str) for end in ends)


def mutants_of(path, names):
    """All small changes of one module, with the rule that leaves them out, if any."""
    source = (ROOT / path).read_text()
    starts = np.cumsum([0] + [len(line) for line in source.splitlines(keepends=True)])

    def place(node, which=""):
        line = getattr(node, f"{which}lineno") - 1
        column = getattr(node, f"{which}col_offset")
        prefix = source[starts[line] :].encode()[:column].decode()
        return int(starts[line]) + len(prefix)

    def between(left, right, operator, rule):
        old, new = OPERATORS[type(operator)]
        start, end = place(left, "end_"), place(right)
        at = source.find(old, start, end)
        if at >= 0:
            yield Mutant(path, left.end_lineno, at, at + len(old), new, rule)

    def rule_of(node):
        if isinstance(node, ast.Raise | ast.JoinedStr) or is_choice_of_words(node):
            return "words"
        if isinstance(node, ast.keyword) and node.arg == "strict":
            return "checks"
        rules = {"types": is_type, "memory": is_memory}
        found = [name for name, is_such in rules.items() if is_such(node)]
        return found[0] if found else "costs" if is_policy(node, names.policy) else ""

    def walk(node, rule, harmless):
        rule = rule or rule_of(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            ends = node.left, node.comparators[0]
            is_order = isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
            is_tie = is_order and any(is_threshold(end, names.reals) for end in ends)
            yield from between(*ends, node.ops[0], rule or ("ties" if is_tie else ""))
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            yield from between(node.left, node.right, node.op, rule)
        elif isinstance(node, ast.BoolOp):
            yield from between(node.values[0], node.values[1], node.op, rule)
        elif isinstance(node, ast.UnaryOp):
            words = {ast.USub: "", ast.Not: "", ast.Invert: ""}
            if type(node.op) in words:
                yield Mutant(path, node.lineno, place(node), place(node.operand), "", rule)
        elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
            yield from between(node.target, node.value, node.op, rule)
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            new = not node.value if isinstance(node.value, bool) else node.value + 1
            own = "numbers" if new == node.value else harmless.get(node, "")
            yield Mutant(
                path, node.lineno, place(node), place(node, "end_"), repr(new), rule or own
            )
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name | ast.Call):
            start, end = place(node.test), place(node.test, "end_")
            yield Mutant(path, node.lineno, start, end, f"not ({source[start:end]})", rule)
        if isinstance(node, ast.For | ast.Call):
            harmless = harmless | dict.fromkeys(further_steps(node), "steps")
        elif isinstance(node, ast.Assign) and node.col_offset == 0:
            harmless = harmless | dict.fromkeys(with_margin(node), "margins")
        if is_reshape(node):
            # -2 is -1: any negative length is the one that NumPy works out
            lengths = [n.operand for n in node.args if isinstance(n, ast.UnaryOp)]
            harmless = harmless | dict.fromkeys(lengths, "lengths")
        for name, child in ast.iter_fields(node):
            if name in ("decorator_list", "type_params"):
                continue
            below = "types" if name in ("annotation", "returns") else ""
            for part in child if isinstance(child, list) else [child]:
                if isinstance(part, ast.AST):
                    yield from walk(part, rule or below, harmless)

    return [one for one in walk(ast.parse(source), "", {}) if one.end > one.start]


def tests_of_lines(data_file):
    """Names of the tests that run each line: dict from path to dict from line to a set."""
    from coverage import CoverageData

    data = CoverageData(data_file)
    data.read()
    found = {}
    for measured in data.measured_files():
        path = str((ROOT / measured).relative_to(ROOT))
        if not path.startswith(PACKAGES):
            continue
        by_line = data.contexts_by_lineno(measured)
        own = {
            line: {test.rpartition("|")[0] for test in tests if test}
            for line, tests in by_line.items()
        }
        # What is run once, when the module is imported, is used by all tests of its functions
        users = set().union(*own.values())
        inside = lines_of_functions(path)
        found[path] = {line: tests if line in inside else users for line, tests in own.items()}
    return found


def lines_of_functions(path):
    """Lines of the bodies of all functions of a module."""
    functions = ast.FunctionDef | ast.Lambda
    nodes = [n for n in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(n, functions)]
    bodies = [n.body if isinstance(n.body, list) else [n.body] for n in nodes]
    return {n for body in bodies for n in range(body[0].lineno, body[-1].end_lineno + 1)}


def try_mutant(mutant, tests, tree):
    """Run tests on a changed copy of the package in a process of its own: what became of it."""
    target = tree / mutant.path
    source = (ROOT / mutant.path).read_text()
    target.write_text(source[: mutant.start] + mutant.text + source[mutant.end :])
    process = os.fork()
    if process == 0:
        os.chdir(tree)
        sys.path[:] = [str(tree), *(p for p in sys.path if Path(p or ".").resolve() != ROOT)]
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        import pytest

        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]))
    _, status = os.waitpid(process, 0)
    target.write_text(source)
    if os.WIFSIGNALED(status):
        return "too slow" if os.WTERMSIG(status) == signal.SIGKILL else "crash"
    return {0: "SURVIVED", 1: "killed", 2: "killed"}.get(os.WEXITSTATUS(status), "no test")


def verdict(mutant, groups, tree):
    """What the groups of tests find, one after the other, and how many were chosen."""
    n_tests = 0
    for number, tests in enumerate(groups):
        n_tests += len(tests)
        result = try_mutant(mutant, tests, tree)
        if result != "SURVIVED":
            # Tests from elsewhere, or slow ones, might fail without the change as well
            source = (ROOT / mutant.path).read_text()
            same = mutant._replace(text=source[mutant.start : mutant.end])
            is_sure = result == "killed" and number == 0
            if not is_sure and try_mutant(same, tests, tree) != "SURVIVED":
                result = f"no verdict, {result}"
            return result, n_tests
    return "SURVIVED", n_tests


def seconds_of_tests(report):
    """Durations that pytest reports, dict from test to seconds; tests that it hides are quick."""
    found = {}
    for line in report.read_text().splitlines():
        seconds, phase, *test = line.split(maxsplit=2) if " call " in line else ("", "")
        if phase == "call" and seconds.endswith("s"):
            found[test[0]] = float(seconds[:-1])
    return found


def tests_to_try(mutant, runners, seconds, rng):
    """Tests that run the line, those of the mirrored folder apart from others."""
    folder = "tests/" + str(Path(mutant.path).parent.relative_to("skcircuits"))
    if not runners:  # a line that is run when the module is imported
        while not (ROOT / folder).exists():
            folder = str(Path(folder).parent)
        return [[folder]]
    own = f"/test_{Path(mutant.path).stem.lstrip('_')}.py"
    near, far = [], []
    n_alike = Counter()
    for test in rng.permutation(sorted(runners)).tolist():
        # Some cases of every test function, before more of the same
        function = test.partition("[")[0]
        n_alike[function] += 1
        group = near if test.startswith(folder) else far
        group.append((n_alike[function], own not in test, len(group), test))
    chosen = [[test for *_, test in sorted(group)[:n]] for group, n in zip((near, far), MAX_TESTS)]
    return [sorted(tests, key=lambda test: seconds.get(test, 0.0)) for tests in chosen if tests]


def prepare(tree):
    """Import once what others wrote, and compile the copy, before the processes part."""
    words = "import sys, pytest, hypothesis, pandas, polars, skcircuits.estimators"
    command = [sys.executable, "-c", f"{words}\nprint(*sys.modules)"]
    names = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout
    for name in names.split():
        if name.split(".")[0] not in ("skcircuits", "__main__"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "tests"]
    subprocess.run(command, cwd=tree, stdout=subprocess.DEVNULL, check=False)
    sys.dont_write_bytecode = True  # a changed file of the same second would be taken for the old


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n-mutants", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work-dir", type=Path, required=True)
    options = parser.parse_args()
    options.work_dir.mkdir(exist_ok=True, parents=True)
    data_file, report = options.work_dir / "coverage", options.work_dir / "tests.txt"
    if not data_file.exists():
        packages = [f"--cov={package}" for package in PACKAGES]
        command = ["-m", "pytest", "-q", *packages, "--cov-context=test", *TESTS]
        command += ["--durations=0", "--durations-min=0.02"]
        environment = {**os.environ, "COVERAGE_FILE": str(data_file)}
        subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment,
            stdout=report.open("w"),
            check=False,
        )
    runners, seconds = tests_of_lines(data_file), seconds_of_tests(report)
    tree = options.work_dir / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name in ("skcircuits", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, tree)
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    names = [str(path.relative_to(ROOT)) for path in paths]
    named = constants()
    everything = [m for name in names if name not in POLICIES for m in mutants_of(name, named)]
    left_out = Counter(mutant.rule for mutant in everything if mutant.rule)
    everything = [mutant for mutant in everything if not mutant.rule]
    rng = np.random.default_rng(options.seed)
    order = rng.permutation(len(everything))[: options.n_mutants]
    log = options.work_dir / f"mutants-{options.seed}.tsv"
    done = len(log.read_text().splitlines()) if log.exists() else 0
    prepare(tree)
    for number in order[done:].tolist():
        mutant = everything[number]
        found = runners.get(mutant.path, {}).get(mutant.line, set())
        result, n_tests = verdict(mutant, tests_to_try(mutant, found, seconds, rng), tree)
        line = (ROOT / mutant.path).read_text().splitlines()[mutant.line - 1].strip()
        place = f"{mutant.path}:{mutant.line}"
        with log.open("a") as file:
            print(result, place, line, f"-> {mutant.text!r}", n_tests, sep="\t", file=file)
    results = [line.split("\t")[0] for line in log.read_text().splitlines()]
    killed = sum(result in ("killed", "crash", "too slow") for result in results)
    print(f"{killed} of {len(results)} changes were found ({killed / len(results):.0%}), of {log}")
    print(f"of {len(everything)}; left out of all changes, by rule:")
    for rule, n in left_out.most_common():
        print(f"{n:6d} {rule}: {RULES[rule]}")


if __name__ == "__main__":
    main()
