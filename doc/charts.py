"""Draw the charts "which estimator to use": `python doc/charts.py`."""

from html import escape
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
WHICH = {
    "Predict from incomplete rows": [
        (
            "any classifier or regressor",
            "ExpectedPredictionClassifier, ExpectedPredictionRegressor",
        ),
        ("support vector regression", "ExpectedPredictionSVR"),
    ],
    "Impute a table": [
        ("one or several completed tables", "CircuitImputer"),
        ("analyse several completions", "pool, pool_models"),
    ],
    "Query a table": [
        ("no preference", "AutomaticDensity"),
        ("numerical or mixed columns", "GaussianMixtureDensity"),
        ("mostly categories", "HiddenChowLiuDensity"),
        ("skewed, point masses, intervals", "WMISPNDensity"),
        ("dependence between columns", "MoATDensity, ChowLiuDensity"),
        ("exact most probable rows", "StrudelDensity"),
    ],
    "Correct biased samples": [("importance weights", "BBISWeighter")],
    "Sample a graphical posterior": [("few particles", "GraphicalSVGDSampler")],
    "Build a known distribution": [
        ("units, sums, products", "skcircuits.circuits"),
        ("factors, a network file", "skcircuits.graphical"),
    ],
}
WHICH_DENSITY = {
    "No preference": [("up to 400,000 cells and 60 columns", "AutomaticDensity")],
    "Numerical or mixed columns": [
        ("imputation, prediction, sampling", "GaussianMixtureDensity"),
        ("few rows, many categories", "GaussianMixtureDensity(location_model=True)"),
        ("intervals over many columns", "WMISPNDensity"),
        ("skewed columns, point masses", "WMISPNDensity, HiddenChowLiuDensity"),
    ],
    "Categories or few distinct integers": [
        ("the highest likelihood, synthetic rows", "HiddenChowLiuDensity"),
        ("hundreds of binary columns", "ContinuousMixtureDensity"),
        ("dependence between columns", "MoATDensity"),
        ("exact most probable rows", "StrudelDensity"),
        ("an interpretable single tree", "ChowLiuDensity"),
    ],
}
# Pixels
LEFT, ROW, HEIGHT, GAP, LETTER, PADDING = 8, 34, 26, 12, 6.9, 10
COLORS = ("#fff3d6", "#dbe9f6", "#e6f2e1")
LINE = "#5f6b7a"


def box(x, y, width, text, color, weight="normal"):
    """A rounded box with a line of text."""
    yield (
        f'<rect x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="5" fill="{color}" '
        f'stroke="{LINE}"/>'
    )
    yield f'<text x="{x + PADDING}" y="{y + 17.5}" font-weight="{weight}">{escape(text)}</text>'


def chart(tree):
    """SVG of three columns: the situation, the aim, the estimators."""
    texts = [
        list(tree),
        [case for cases in tree.values() for case, _ in cases],
        [name for cases in tree.values() for _, name in cases],
    ]
    widths = [round(LETTER * max(map(len, column))) + 2 * PADDING for column in texts]
    widths[0] += 12  # bold letters are wider
    starts = [LEFT, LEFT + widths[0] + 2 * GAP]
    starts.append(starts[1] + widths[1] + 2 * GAP)
    parts, y = [], 14
    for situation, cases in tree.items():
        parts += box(starts[0], y, widths[0], situation, COLORS[0], "bold")
        top, bend, right = y + HEIGHT / 2, starts[1] - GAP, starts[0] + widths[0]
        for case, name in cases:
            middle = y + HEIGHT / 2
            line = f'fill="none" stroke="{LINE}"/>'
            parts.append(f'<path d="M{right} {top} H{bend} V{middle} H{starts[1]}" {line}')
            parts.append(f'<path d="M{starts[1] + widths[1]} {middle} H{starts[2]}" {line}')
            parts += box(starts[1], y, widths[1], case, COLORS[1])
            width = round(LETTER * len(name)) + 2 * PADDING
            parts += box(starts[2], y, width, name, COLORS[2])
            y += ROW
    size = starts[2] + widths[2] + LEFT, y + 6
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" '
        'font-family="sans-serif" font-size="12" fill="#111">'
    )
    background = f'<rect width="{size[0]}" height="{size[1]}" fill="white"/>'
    return "\n".join([head + background, *parts, "</svg>\n"])


if __name__ == "__main__":
    for name, tree in (("which", WHICH), ("which_density", WHICH_DENSITY)):
        (IMAGES / f"{name}.svg").write_text(chart(tree), encoding="utf-8")
