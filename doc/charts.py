"""Draw the charts "from what you have to what to take": `python doc/charts.py`."""

from html import escape
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
WHICH = {
    "Rows to predict have gaps": [
        (
            "any classifier or regressor",
            "ExpectedPredictionClassifier, ExpectedPredictionRegressor",
        ),
        ("support vector regression", "ExpectedPredictionSVR"),
    ],
    "A table has gaps": [
        ("complete it, once or many times", "CircuitImputer"),
        ("analyse several completions", "pool, pool_models"),
    ],
    "A table is to be asked": [
        ("numbers, mixed columns", "GaussianMixtureDensity"),
        ("mostly categories", "HiddenChowLiuDensity"),
        ("skewed, point masses, intervals", "WMISPNDensity"),
        ("which columns depend?", "MoATDensity, ChowLiuDensity"),
        ("exact most probable rows", "StrudelDensity"),
    ],
    "Samples are biased": [("they get weights", "BBISWeighter")],
    "A posterior has a graph": [("few particles that follow it", "GraphicalSVGDSampler")],
    "A distribution is known": [
        ("units, sums, products", "skcircuits.circuits"),
        ("factors, a network file", "skcircuits.graphical"),
    ],
}
WHICH_DENSITY = {
    "No wish to choose": [("a table, up to ten thousand rows", "AutomaticDensity")],
    "Numbers, or numbers and categories": [
        ("to impute, to predict, to draw", "GaussianMixtureDensity"),
        ("few rows, many categories", "GaussianMixtureDensity(location_model=True)"),
        ("intervals over many columns", "WMISPNDensity"),
        ("skewed numbers, point masses", "WMISPNDensity, HiddenChowLiuDensity"),
    ],
    "Categories, or integers of few values": [
        ("the highest likelihood, synthetic rows", "HiddenChowLiuDensity"),
        ("hundreds of binary columns", "ContinuousMixtureDensity"),
        ("which columns depend on each other", "MoATDensity"),
        ("exact most probable rows", "StrudelDensity"),
        ("a first look, one tree to read", "ChowLiuDensity"),
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
    """SVG of three columns: what you have, what you want, what to take."""
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
