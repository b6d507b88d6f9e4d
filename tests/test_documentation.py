"""Every block of Python in the README and on the pages of the guide runs as pasted, in order."""

import contextlib
import io
import re
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")
ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "doc").rglob("*.md"))]
    if "```python" in page.read_text(encoding="utf-8")
]
# Blocks that need an optional extra say so on the line before: <!-- needs: jax -->
BLOCK = re.compile(r"(?:<!-- needs: ([\w, ]+) -->\n)?```python\n(.*?)```", re.S)


def blocks(page):
    """Code of the page, and the optional packages that each block needs."""
    for needs, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        yield [name.strip() for name in needs.split(",") if name.strip()], code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run_as_pasted(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for needs, code in blocks(page):
        for name in needs:
            pytest.importorskip(name)
        # Prompts are allowed: `>>> ` and `... ` are cut off, results shown below them too
        if code.lstrip().startswith(">>>"):
            lines = [line[4:] for line in code.splitlines() if line[:4] in (">>> ", "... ")]
            code = "\n".join(lines)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore", UserWarning)
            exec(compile(code, str(page), "exec"), namespace)


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
