"""Configuration of the documentation: ``make doc`` writes it to ``doc/_build/html``."""

import re
import sys
from pathlib import Path

import matplotlib
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - the gallery names it

import skcircuits

matplotlib.use("Agg")
HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
sys.path.insert(0, str(HERE))  # gallery_setup

project = "skcircuits"
author = "the skcircuits developers"
project_copyright = "the skcircuits developers"
version = release = skcircuits.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
    # Formulas without a network: the package carries MathJax and copies it into the site
    "sphinx-mathjax-offline",
]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = [str(HERE / "_templates")]  # the sources lie elsewhere
exclude_patterns = ["auto_examples/**.ipynb", "**/sg_execution_times.rst", "sg_execution_times.rst"]
nitpicky = False

# Prose
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# Formulas are written as plain text: `|x|` in them is no substitution
default_role = "code"

# Reference pages: one per public name, made from the lists in api.md
autosummary_generate = True
autosummary_imported_members = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# The heading of a page says where a name is imported from; its signature need not repeat it
add_module_names = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = False


# The gallery: examples run while the documentation is built
sphinx_gallery_conf = {
    "examples_dirs": str(EXAMPLES),
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "remove_config_comments": True,
    "subsection_order": "gallery_setup.section_order",
    "within_subsection_order": "ExampleTitleSortKey",
    "nested_sections": False,
    "doc_module": ("skcircuits",),
    "backreferences_dir": None,
    "reset_modules": ("matplotlib", "gallery_setup.apply_style"),
}

# Appearance. Nothing is fetched from the network, neither while building nor while reading.
html_theme = "pydata_sphinx_theme"
html_title = "skcircuits"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_favicon = "_static/logo.svg"
html_logo = "_static/logo.svg"
html_context = {"default_mode": "auto"}
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "skcircuits"},
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
html_sidebars = {
    "index": [],
    "glossary": [],
    "architecture": [],
    "benchmarks": [],
    "measurements": [],
    "reproductions": [],
    "changelog": [],
}


# What readers search for, and the page that is about it where its own words are others
SEARCH_WORDS = {
    "skcircuits.GaussianMixtureDensity": ["EM", "expectation maximization"],
    "skcircuits.HiddenChowLiuDensity": ["HCLT", "latent tree"],
    "skcircuits.CircuitImputer": ["imputer", "missing values", "imputation"],
    "skcircuits.ExpectedPredictionClassifier": ["missing values"],
    "skcircuits.ExpectedPredictionRegressor": ["missing values"],
}


def leave_out(app, what, name, member, skip, options):
    """Leave out the methods that scikit-learn gives to estimators and documents itself."""
    module = getattr(member, "__module__", None) or ""
    return True if module.startswith("sklearn") else None


def add_search_words(app, what, name, obj, options, lines):
    """Put the page of a class first where readers search for what it is known by."""
    if name in SEARCH_WORDS:
        lines += ["", *(f".. index:: ! {word}" for word in SEARCH_WORDS[name]), ""]


def escape_underscores(app, what, name, obj, options, lines):
    """Escape names like ``n_features_in_`` in shapes: reStructuredText sees links in them."""
    for i, line in enumerate(lines):
        if "of shape (" in line:
            lines[i] = re.sub(r"(\w)_(?=[,)])", r"\1\\_", line)


def forget_removed_examples(app):
    """Delete what an earlier build generated from examples that are gone."""
    for page in Path(app.srcdir, "auto_examples").glob("*/plot_*.rst"):
        if not (EXAMPLES / page.parent.name / f"{page.stem}.py").exists():
            page.unlink()


def setup(app):
    """Connect the events of Sphinx."""
    # Before the gallery looks
    app.connect("builder-inited", forget_removed_examples, priority=100)
    app.connect("autodoc-skip-member", leave_out)
    # Before numpydoc reads the docstring
    app.connect("autodoc-process-docstring", escape_underscores, priority=400)
    app.connect("autodoc-process-docstring", add_search_words, priority=900)
