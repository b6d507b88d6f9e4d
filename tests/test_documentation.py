"""Every block of Python in the README and on the pages of the guide runs as pasted, in order.

What a page says about results is checked too: a comment ``# -> text`` beside an expression or
below it is what Python shows for it. Numbers agree to the digits that the page writes, and
``...`` stands for anything.
"""

import ast
import builtins
import contextlib
import io
import re
import subprocess
import sys
import tokenize
import warnings
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")
ROOT = Path(__file__).parents[1]
LANDING = ROOT / "doc" / "index.md"  # shows what the README shows
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "doc").rglob("*.md"))]
    if "```python" in page.read_text(encoding="utf-8") and page != LANDING
]
# Blocks that need an optional extra say so on the line before: <!-- needs: jax -->
BLOCK = re.compile(r"(?:<!-- needs: ([\w, ]+) -->\n)?```python\n(.*?)```", re.S)
SHOWN = re.compile(r"#\s*-> ?(.*)")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")


def blocks(page):
    """Code of the page, and the optional packages that each block needs."""
    for needs, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        yield [name.strip() for name in needs.split(",") if name.strip()], code


def statements(code):
    """Statements of a block, and what the page says that each of them shows (None: nothing)."""
    comments = {
        token.start[0]: found[1]
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type == tokenize.COMMENT and (found := SHOWN.match(token.string))
    }
    body = ast.parse(code).body
    ends = [node.lineno for node in body[1:]] + [len(code.splitlines()) + 1]
    for node, end in zip(body, ends):
        said = [comments[line] for line in range(node.end_lineno, end) if line in comments]
        yield node, "\n".join(said) if said else None


def run(node, namespace):
    """Run a statement as a notebook does, and give what it shows."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(ast.Interactive([node]), "<page>", "single"), namespace)
    return shown.getvalue()


def agrees(said, shown):
    """Whether texts agree but for white space and the digits that the page leaves out."""
    said, shown = map(_one_spacing, (said, shown))
    pattern = NUMBER.sub("\0", said)
    pattern = re.escape(pattern).replace(re.escape("..."), ".*")
    pattern = pattern.replace(re.escape("\0"), f"({NUMBER.pattern})")
    found = re.fullmatch(pattern, shown, re.S)
    if not found:
        return False
    return all(map(_same_number, NUMBER.findall(said), found.groups()))


def _one_spacing(text):
    """Words of a text with one space between them, none inside brackets and before commas."""
    return re.sub(r"(?<=[\[(]) | (?=[\]),])", "", " ".join(text.split()))


def _same_number(said, shown):
    """Equal up to one unit of the last digit said; integers are equal."""
    mantissa, _, exponent = said.partition("e")
    digits = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - digits) if digits else 0.0
    return abs(float(said) - float(shown)) <= 1.001 * unit


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run_as_pasted(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    wrong = []
    for needs, code in blocks(page):
        for name in needs:
            pytest.importorskip(name)
        for node, said in statements(code):
            with warnings.catch_warnings():
                # What a reader pastes neither warns nor divides by zero
                warnings.simplefilter("error", UserWarning)
                warnings.simplefilter("error", RuntimeWarning)
                shown = run(node, namespace)
            if said is not None and not agrees(said, shown):
                wrong.append(f"{ast.unparse(node)}\nsays\n{said}\nbut shows\n{shown}")
    assert not wrong, "\n\n".join(wrong)


def test_the_landing_page_is_the_readme():
    assert list(blocks(LANDING)) == list(blocks(ROOT / "README.md"))


def test_the_installation_includes_what_the_first_example_reads():
    """Tables of scikit-learn need pandas, which is no requirement of the package."""
    for page in (LANDING, ROOT / "README.md"):
        text = page.read_text(encoding="utf-8")
        assert "as_frame=True" in text
        assert "pip install . pandas" in text


def test_commands_name_benchmarks_and_their_options():
    """A number is reproduced by a command that exists, with options that the script declares."""
    wrong = []
    for page in [ROOT / "README.md", *(ROOT / "doc").rglob("*.md")]:
        found = re.findall(r"`(python\s[^`]*)`|^(python .*)$", page.read_text("utf-8"), re.M)
        for command in (" ".join(quoted.split()) or line for quoted, line in found):
            script = re.match(r"python (?:-m )?benchmarks[./](\w+)", command)
            if not script:
                continue
            path = ROOT / "benchmarks" / f"{script[1]}.py"
            source = path.read_text("utf-8") if path.exists() else ""
            options = re.findall(r"(?<=\s)--[\w-]+", command)
            wrong += [command] * (not all(f'"{name}"' in source for name in options) or not source)
    assert not wrong, "\n".join(wrong)


def code_lines(code):
    """Lines of a block that are neither blank nor a comment."""
    lines = map(str.strip, code.splitlines())
    return sum(bool(line) and not line.startswith("#") for line in lines)


def stands_alone(code):
    """Whether a block names nothing but what it imports or assigns itself."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    known = {node.id for node in names if isinstance(node.ctx, ast.Store)} | set(dir(builtins))
    known |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    known |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return {node.id for node in names if isinstance(node.ctx, ast.Load)} <= known


@pytest.mark.parametrize(
    "call",
    [
        "ExpectedPredictionClassifier(RandomForestClassifier(",
        "CircuitImputer(random_state=0).set_output(",
        "pool_models(",
        "density.sample(2, given=",
        'density.probability("',
        "BBISWeighter(target=",
        "SensorNetwork.simulate(",
        "mmd2(setosa, virginica",
        "GridSearchCV(GaussianMixtureDensity",
        'parallel_config(backend="dask")',
    ],
)
def test_a_task_is_less_than_ten_lines_one_click_away(call):
    linked = re.findall(r"\]\((user_guide/\w+\.md)\)", LANDING.read_text(encoding="utf-8"))
    pages = [LANDING, *(LANDING.parent / link for link in linked)]
    found = [code for page in pages for _, code in blocks(page) if call in code]
    assert any(code_lines(code) < 10 and stands_alone(code) for code in found)


def test_blocks_that_need_others_are_told():
    assert stands_alone("from a import b, c\nx = b(c)\nlen(x)")
    assert not stands_alone("from a import b\nb(c)")
    assert code_lines("# a comment\n\nx = 1  # one\ny = 2\n") == 2


def test_results_are_compared():
    said = "mean  0.31, shape (3, 2), [1.0e-03, ...]"
    assert agrees(said, "mean 0.3148, shape (3, 2),\n [1.0004e-03, 7]")
    for shown in ("mean 0.33", "mean 0.31, shape (3, 3), [1.0e-03, 7]"):
        assert not agrees(said, shown)
    ((first, said), (second, nothing)) = statements("1 + 1  # -> 2\n# -> 3\nx = 1  # a comment\n")
    assert said == "2\n3" and nothing is None
    assert run(first, {}) == "2\n" and run(second, {}) == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_show_results(page):
    said = [text for _, code in blocks(page) for _, text in statements(code)]
    assert any(text is not None for text in said)


@pytest.mark.slow
def test_a_users_code_type_checks(tmp_path):
    """The example of the README, with the types that the installed package declares."""
    pytest.importorskip("mypy")
    program = tmp_path / "example.py"
    program.write_text("\n".join(code for _, code in blocks(ROOT / "README.md")), encoding="utf-8")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import skcircuits\n\nskcircuits.CircuitImputer(no_such_parameter=1)\n")
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--config-file="]
    # As with an installed package, only what is wrong in the programs counts
    command += [
        "--follow-imports=silent",
        "--cache-dir",
        str(tmp_path / "cache"),
        str(program),
        str(wrong),
    ]
    run = subprocess.run(command, capture_output=True, cwd=ROOT, text=True)
    found = [line for line in run.stdout.splitlines() if ": error:" in line]
    assert len(found) == 1 and "no_such_parameter" in found[0], run.stdout + run.stderr
