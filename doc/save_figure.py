"""Run an example and save its last figure: `python doc/save_figure.py <example> <picture>`."""

import runpy
import sys
from pathlib import Path

import gallery_setup
import matplotlib
import matplotlib.pyplot as plt


def main(example, picture):
    """Draw in the style of the gallery."""
    matplotlib.use("Agg")
    gallery_setup.apply_style({}, example)
    plt.show = lambda: None
    runpy.run_path(example, run_name="__main__")
    Path(picture).parent.mkdir(parents=True, exist_ok=True)
    plt.savefig(picture)
    print(f"{picture} written")


if __name__ == "__main__":
    main(*sys.argv[1:])
