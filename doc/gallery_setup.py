"""Order and style of the gallery: functions that ``conf.py`` names, since Sphinx pickles it."""

import warnings
from pathlib import Path

import matplotlib
from sklearn.exceptions import ConvergenceWarning

SECTIONS = ("predictions", "imputation", "densities", "circuits", "kernels", "samplers", "scale")


def section_order(folder):
    """Place of a section: that of its task in the user guide."""
    return SECTIONS.index(Path(folder).name)


def apply_style(gallery_conf, name):
    """Draw all examples in one style: what matplotlib's own reset leaves is replaced."""
    matplotlib.rc_file(Path(__file__).with_name("gallery.mplstyle"), use_default_template=False)
    # Examples stop early to be fast; those that do say so in their text
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
