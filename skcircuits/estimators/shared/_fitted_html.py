"""What a notebook shows of a fitted density, below its parameters."""

from html import escape

from skcircuits.circuits import Sum

# More columns and categories than these are counted, not listed.
MAX_COLUMNS, MAX_CATEGORIES = 30, 5


def fitted_html(density):
    """Give the model in words, and a table of its columns with their types."""
    columns = density._schema.columns
    rows = [f"<tr><td>{escape(c.text_name)}</td><td>{escape(_type(c))}</td></tr>" for c in columns]
    if len(rows) > MAX_COLUMNS:
        rows[MAX_COLUMNS:] = [f"<tr><td>...</td><td>{len(columns)} columns</td></tr>"]
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in _facts(density))
    return (
        f"<details open><summary>Fitted to {len(columns)} columns</summary><ul>{facts}</ul>"
        f"<table><thead><tr><th>column</th><th>type</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></details>"
    )


def _type(column):
    """Type of a column, in the words of the guide."""
    if column.dates is not None:
        return "date"
    if column.categories is None:
        return "integer" if column.is_integral else "number"
    kind = "ordered category" if column.is_ordered else "category"
    shown = ", ".join(map(str, column.categories[:MAX_CATEGORIES].tolist()))
    more = "" if len(column.categories) <= MAX_CATEGORIES else ", ..."
    return f"{kind} of {len(column.categories)}: {shown}{more}"


def _facts(density):
    """Sizes of the model, and the log-likelihood that its fit reached."""
    circuit = getattr(density, "circuit_", None)
    if hasattr(density, "weights_"):
        yield _counted(len(density.weights_), "component")
    elif hasattr(density, "n_components") and circuit is not None:
        root = circuit.root
        yield _counted(len(root.children) if isinstance(root, Sum) else 1, "component")
    if circuit is not None:
        yield f"{_counted(circuit.n_units, 'unit')}, {_counted(circuit.n_parameters, 'parameter')}"
    for name in ("lower_bound_", "log_likelihood_"):
        if hasattr(density, name):
            yield f"log-likelihood of the training rows: {getattr(density, name):.4g} nats per row"
    if len(getattr(density, "validation_scores_", ())):
        best = max(density.validation_scores_)
        yield f"log-likelihood of held-out rows: {best:.4g} nats per row"


def _counted(number, word):
    return f"{number} {word}" + "s" * (number != 1)
