"""Graphical models in the formats BIF, XMLBIF and UAI (read and written), and of pgmpy (read).

Models of pgmpy are read through their public attributes; pgmpy is not imported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite, prod
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np

from skcircuits.exceptions import invalid, must
from skcircuits.graphical.factor import Factor, check_table_size
from skcircuits.protocols import FloatArray, IntArray

# A comment may stand between any two words, but a word may hold slashes ("http://x"). Commas
# are mere space. A comment that nobody closes takes the rest, once: every word is read once.
_TOKEN = re.compile(
    r"""//[^\n]* | /\*(?:.*?\*/|(?P<open>.*)) | "(?P<quoted>[^"\n]*)"
    | (?P<plain> [{}();] | (?: (?!/\*) [^\s{}();,"] )+ )""",
    re.DOTALL | re.VERBOSE,
)
_UAI_COMMENT = re.compile(r"(#|//)[^\n]*")
_DISCRETE = re.compile(r"type\s+discrete\s*\[\s*(\d+)\s*\]\s*\{")
_QUOTE = "Quote names that hold spaces or marks."
_XML_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
# Variable names, state names per variable, and (scope, table) of every factor.
NamedTables = tuple[list[Any], list[list[str]], list[tuple[list[int], FloatArray]]]


class _Token(NamedTuple):
    """A word or a mark; ``plain`` is empty if quotes make it a name."""

    text: str
    plain: str


_Statement = list[_Token]
# What a file has of a table.
_Body = TypeVar("_Body")


@dataclass(frozen=True)
class NetworkDescription:
    """A Bayesian network as described by a file."""

    variable_names: list[str]
    state_names: list[list[str]]
    parents: list[list[int]]
    tables: list[FloatArray]


@contextmanager
def named_file(kind: str, path: str | PathLike[str]) -> Iterator[bytes]:
    """Read a file, and name it in errors about it."""
    try:
        yield Path(path).read_bytes()
    except UnicodeDecodeError as error:
        way_out = f"Save it as UTF-8; {error}."
        raise invalid(f"{kind} file", "be UTF-8 text", way_out, path=str(path)) from None
    except ValueError as error:
        raise invalid(f"{kind} file", "follow the format", str(error), path=str(path)) from error


def _decoded(data: bytes) -> str:
    # Some editors begin a file with a byte order mark, and end lines in their own ways.
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def parse_bif(data: bytes) -> NetworkDescription:
    """Read a Bayesian network in BIF."""
    blocks_of_file = list(_blocks(_tokens(_decoded(data))))
    declared = [
        (_variable(head), body) for head, body in blocks_of_file if head[0].plain == "variable"
    ]
    given = [
        (*_family(head), body) for head, body in blocks_of_file if head[0].plain == "probability"
    ]
    states = [(name, _state_names(name, body)) for name, body in declared]
    return _described("BIF", states, given, _table)


def parse_xmlbif(data: bytes) -> NetworkDescription:
    """Read a Bayesian network in XMLBIF 0.3."""
    network = _xml_root(data)
    variables = network.findall("VARIABLE")
    odd = [one.get("TYPE") for one in variables if one.get("TYPE", "nature") != "nature"]
    if odd:
        way_out = "Decisions and utilities have no probabilities."
        raise invalid("variables", "have TYPE nature", way_out, types=odd)
    states = [(_xml_text(one, "NAME"), _xml_texts(one, "OUTCOME")) for one in variables]
    for name, labels in states:
        if not labels or len(set(labels)) < len(labels):
            raise invalid(f"OUTCOMEs of {name}", "be different names", outcomes=labels)
    given = [
        (_xml_text(one, "FOR"), _xml_texts(one, "GIVEN"), _xml_text(one, "TABLE"))
        for one in network.findall("DEFINITION")
    ]
    return _described("XMLBIF", states, given, _xml_table)


def write_xmlbif(path: str | PathLike[str], network: NetworkDescription) -> None:
    """Write a Bayesian network in XMLBIF 0.3; every digit is kept."""
    root = ElementTree.Element("BIF", VERSION="0.3")
    inner = ElementTree.SubElement(root, "NETWORK")
    _xml_add(inner, "NAME", "unknown")
    for name, labels in zip(network.variable_names, network.state_names):
        variable = ElementTree.SubElement(inner, "VARIABLE", TYPE="nature")
        for tag, text in [("NAME", name), *(("OUTCOME", label) for label in labels)]:
            _xml_add(variable, tag, text)
    for name, parents, table in zip(network.variable_names, network.parents, network.tables):
        definition = ElementTree.SubElement(inner, "DEFINITION")
        _xml_add(definition, "FOR", name)
        for parent in parents:
            _xml_add(definition, "GIVEN", network.variable_names[parent])
        _xml_add(definition, "TABLE", " ".join(map(_digits, table.ravel().tolist())))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    Path(path).write_text(f"{_XML_HEAD}{text}\n", encoding="utf-8")


def _xml_add(element: ElementTree.Element, tag: str, text: str) -> None:
    """Add an element that holds a text, which readers will find unchanged."""
    # White space around names is no part of them, and XML has no control characters
    if text != " ".join(text.split()) or not text.isprintable() or not text:
        condition = "be words of printable characters with single spaces between them"
        way_out = "Choose other variable_names and state_names, or write a UAI file by to_uai."
        raise invalid("names in an XMLBIF file", condition, way_out, name=text)
    ElementTree.SubElement(element, tag).text = text


def _xml_root(data: bytes) -> ElementTree.Element:
    """Parse the only network of a file, without entities of its own."""
    try:
        # Files begin with a list of elements, which is harmless; entities could grow without bound
        checker = expat.ParserCreate()
        checker.EntityDeclHandler = _refuse_entity
        checker.Parse(data, True)
        root = ElementTree.fromstring(data)
    except (expat.ExpatError, ElementTree.ParseError, LookupError) as error:
        raise invalid("XMLBIF file", "be well-formed XML", f"{error}.") from None
    for element in root.iter():
        # In any namespace
        element.tag = element.tag.rpartition("}")[2]
    networks = root.findall("NETWORK")
    if len(networks) != 1 or networks[0].find("VARIABLE") is None:
        condition = "hold one NETWORK of VARIABLE elements, as in XMLBIF 0.3"
        way_out = "Export in this version, or as BIF or UAI."
        found = sorted({element.tag for element in root})
        raise invalid("XMLBIF file", condition, way_out, root=root.tag, found=found)
    return networks[0]


def _refuse_entity(name: str, *_: Any) -> None:
    raise invalid("XMLBIF file", "declare no entities", "Replace them.", entity=name)


def _xml_texts(element: ElementTree.Element, tag: str) -> list[str]:
    return [" ".join((one.text or "").split()) for one in element.findall(tag)]


def _xml_text(element: ElementTree.Element, tag: str) -> str:
    texts = _xml_texts(element, tag)
    if len(texts) != 1:
        raise invalid(element.tag, f"have one {tag}", found=texts)
    return texts[0]


def _xml_table(name: str, given: list[str], body: str, states: dict[str, list[str]]) -> FloatArray:
    """Read a table, in which the child runs fastest, and its first parent slowest."""
    shape = [len(states[parent]) for parent in (*given, name)]
    check_table_size(f"table of {name}", shape)
    words = [_Token(word, word) for word in body.split()]
    return _numbers(name, words, prod(shape)).reshape(shape)


def _described(
    kind: str,
    declared: list[tuple[str, list[str]]],
    given: list[tuple[str, list[str], _Body]],
    table: Callable[[str, list[str], _Body, dict[str, list[str]]], FloatArray],
) -> NetworkDescription:
    """Put the variables of a file and their families, (child, parents, table), together."""
    if not declared:
        raise invalid(f"{kind} file", "declare variables")
    # Blocks may come in any order; variables keep that of their declarations.
    states = dict(declared)
    children = [child for child, _, _ in given]
    _check_once(kind, [name for name, _ in declared], "declare every variable once")
    _check_once(kind, children, "give every variable one probability")
    odd = sorted(set(children) ^ set(states))
    if odd:
        raise invalid(f"{kind} file", "give every variable a probability", variables=odd)
    blocks = {child: (parents, body) for child, parents, body in given}
    unknown = sorted({parent for _, parents, _ in given for parent in parents} - set(states))
    if unknown:
        raise invalid("parents", "be declared as variables", parents=unknown)
    names = list(states)
    number = {name: index for index, name in enumerate(names)}
    return NetworkDescription(
        variable_names=names,
        state_names=[states[name] for name in names],
        parents=[[number[parent] for parent in blocks[name][0]] for name in names],
        tables=[table(name, *blocks[name], states) for name in names],
    )


def write_bif(path: str | PathLike[str], network: NetworkDescription) -> None:
    """Write a Bayesian network; every digit is kept."""
    names = [_quoted(name) for name in network.variable_names]
    states = [[_quoted(state) for state in given] for given in network.state_names]
    lines = ["network unknown {", "}"]
    for name, given in zip(names, states):
        lines += [
            f"variable {name} {{",
            f"  type discrete [ {len(given)} ] {{ {', '.join(given)} }};",
            "}",
        ]
    for name, parents, table in zip(names, network.parents, network.tables):
        above = f" | {', '.join(names[parent] for parent in parents)}" if parents else ""
        lines.append(f"probability ( {name}{above} ) {{")
        # One row per context, which every reader of the format understands
        for context in np.ndindex(table.shape[:-1]):
            row = ", ".join(map(_digits, table[context].tolist()))
            of_parents = ", ".join(states[p][state] for p, state in zip(parents, context))
            lines.append(f"  ({of_parents}) {row};" if parents else f"  table {row};")
        lines.append("}")
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _digits(value: float) -> str:
    """Write the shortest digits that are read back as the same float."""
    # Some readers, pgmpy's of UAI among them, know no exponents
    if 1e-30 < value < 1e30:
        return np.format_float_positional(value, trim="0")
    return repr(value)


def _quoted(name: str) -> str:
    """Put a name between quotes unless it is one plain word."""
    if re.fullmatch(r"[\w.+-]+", name):
        return name
    if not name or '"' in name or "\n" in name:
        way_out = "Choose other variable_names and state_names, or write a UAI file by to_uai."
        condition = "hold no quotes or line breaks, nor be empty"
        raise invalid("names in a BIF file", condition, way_out, name=name)
    return f'"{name}"'


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        quoted, plain = match.group("quoted", "plain")
        if match.group("open") is not None:
            raise invalid("comments of a BIF file", "be closed", "Add */.")
        if quoted is not None:
            yield _Token(quoted, "")
        elif plain is not None:
            yield _Token(plain, plain)


def _blocks(tokens: Iterator[_Token]) -> Iterator[tuple[_Statement, list[_Statement]]]:
    """Give the text before each pair of braces, and the statements within."""
    head: _Statement = []
    body: list[_Statement] = [[]]
    depth = 0
    for token in tokens:
        # Braces between quotes are part of a name
        depth += (token.plain == "{") - (token.plain == "}")
        if depth < 0:
            break
        if token.plain == "}" and depth == 0:
            if head:
                yield head, [statement for statement in body if statement]
            head, body = [], [[]]
        elif depth == 0:
            if token.plain == ";":
                head = []
            else:
                head.append(token)
        elif depth == 1 and token.plain == ";":
            body.append([])
        elif depth > 1 or token.plain != "{":
            body[-1].append(token)
    if depth:
        raise invalid("BIF file", "have matching braces")


def _variable(head: _Statement) -> str:
    if len(head) != 2:
        raise invalid("variable", "have one name", _QUOTE, name=_texts(head[1:]))
    return head[1].text


def _family(head: _Statement) -> tuple[str, list[str]]:
    """Read ``probability ( child | parents )``; the bar may be missing, as JavaBayes writes it."""
    names: _Statement = []
    for token in head[2:-1]:
        # A bar within quotes is part of a name: only plain tokens are divided at it
        parts = re.findall(r"\||[^|]+", token.plain)
        names += [_Token(part, part) for part in parts] if parts else [token]
    bars = [position for position, token in enumerate(names) if token.plain == "|"]
    closed = len(head) > 3 and head[1].plain == "(" and head[-1].plain == ")"
    if not closed or not names or bars not in ([], [1]):
        raise invalid("probability", "be of ( child | parents )", _QUOTE, head=_texts(head[1:]))
    return names[0].text, [token.text for token in names[1 + len(bars) :]]


def _texts(tokens: _Statement) -> str:
    return " ".join(token.text for token in tokens)


def _state_names(variable: str, body: list[_Statement]) -> list[str]:
    types = [statement for statement in body if statement[0].plain == "type"]
    # Quoted names do not determine the type of the statement.
    declared = _DISCRETE.match(" ".join(token.plain for token in types[0])) if types else None
    if declared is None:
        raise invalid(f"variable {variable}", "be discrete")
    marks = [token.plain for token in types[0]]
    names = [token.text for token in types[0][marks.index("{") + 1 : marks.index("}")]]
    if len(set(names)) != int(declared.group(1)) or len(names) != len(set(names)):
        raise invalid(
            f"variable {variable}", f"name {declared.group(1)} states", _QUOTE, states=names
        )
    return names


def _check_once(kind: str, names: list[str], condition: str) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise invalid(f"{kind} file", condition, variables=repeated)


def _table(
    name: str, given: list[str], body: list[_Statement], states: dict[str, list[str]]
) -> FloatArray:
    """Fill a conditional table from its entries; ``default`` rows come first."""
    shape = [len(states[parent]) for parent in (*given, name)]
    check_table_size(f"table of {name}", shape)
    table = np.full(shape, np.nan)
    # Cells that stay NaN were never given.
    entries = [statement for statement in body if statement[0].plain != "property"]
    _check_rows_once(name, entries)
    for entry in sorted(entries, key=lambda entry: entry[0].plain != "default"):
        marks = [token.plain for token in entry]
        if marks[0] == "table":
            values = _numbers(name, entry[1:], table.size)
            # The child runs slowest, its last parent fastest.
            table[...] = np.moveaxis(values.reshape(shape[-1], *shape[:-1]), 0, -1)
        elif marks[0] == "default":
            table[...] = _numbers(name, entry[1:], shape[-1])
        elif marks[0] == "(" and ")" in marks:
            end = marks.index(")")
            context = [token.text for token in entry[1:end]]
            row = _row(name, given, context, states)
            table[row] = _numbers(name, entry[end + 1 :], shape[-1])
        else:
            condition = "begin with table, default or (states of the parents)"
            raise invalid(f"entries of the table of {name}", condition, entry=_texts(entry))
    if np.isnan(table).any():
        raise invalid(f"table of {name}", "have a row for every state of its parents")
    return table


def _check_rows_once(name: str, entries: list[_Statement]) -> None:
    """Refuse entries of a table that give the same rows; only defaults may be replaced."""
    seen: set[tuple[str, ...]] = set()
    for entry in entries:
        marks = [token.plain for token in entry]
        end = marks.index(")") if ")" in marks else 1
        rows = tuple(token.text for token in entry[:end])
        # A table gives all rows
        is_repeated = rows in seen or (marks[0] == "(" and ("table",) in seen)
        if is_repeated or (marks[0] == "table" and any(other[0] == "(" for other in seen)):
            raise invalid(f"table of {name}", "give every row once", entry=_texts(entry))
        seen.add(rows)


def _numbers(name: str, words: _Statement, count: int) -> FloatArray:
    try:
        values = np.array([_number(word.text) for word in words])
    except ValueError as error:
        raise invalid(f"table of {name}", "hold numbers", str(error)) from None
    if len(values) != count:
        raise invalid(f"entries of the table of {name}", f"be {count} numbers", entry=_texts(words))
    return values


def _number(word: str) -> float:
    """Read a finite number; one that would become zero is refused."""
    value = float(word)
    if not isfinite(value):
        raise invalid("numbers", "be finite", number=word)
    # A possible state would turn into an impossible one
    if value == 0.0 and any(digit in "123456789" for digit in re.split("[eE]", word)[0]):
        raise invalid("numbers", "be zero or at least 5e-324, as floats are", number=word)
    return value


def _row(
    name: str, given: list[str], context: list[str], states: dict[str, list[str]]
) -> tuple[int, ...]:
    """Find the row of a table that belongs to some states of the parents."""
    fits = len(context) == len(given)
    if not fits or any(s not in states[parent] for parent, s in zip(given, context)):
        condition = f"give a state of each of its parents {given}"
        raise invalid(f"rows of the table of {name}", condition, row=context)
    return tuple(states[parent].index(s) for parent, s in zip(given, context))


def read_pgmpy_network(model: Any) -> NamedTables:
    """Read a discrete Bayesian network."""
    if not hasattr(model, "get_cpds"):
        condition = "be a discrete Bayesian network of pgmpy"
        way_out = "FactorGraph.from_pgmpy takes Markov networks and factor graphs."
        raise TypeError(must("model", condition, way_out, model=type(model).__name__))
    network = _named_tables(model.get_cpds())
    children = {scope[0] for scope, _ in network[2]}
    # Variables without dependents appear only in the graph of the model.
    orphans = [name for index, name in enumerate(network[0]) if index not in children]
    orphans += [name for name in getattr(model, "nodes", ()) if name not in network[0]]
    if orphans or not network[0]:
        way_out = "model.check_model() says what is missing."
        raise invalid("model", "have a table for every variable", way_out, variables=orphans)
    return network


def read_pgmpy_factors(model: Any) -> NamedTables:
    """Read a discrete Markov network or a factor graph."""
    if not hasattr(model, "get_factors"):
        condition = "be a discrete Markov network or factor graph of pgmpy"
        way_out = "BayesianNetwork.from_pgmpy takes Bayesian networks."
        raise TypeError(must("model", condition, way_out, model=type(model).__name__))
    network = _named_tables(model.get_factors())
    known = set(network[0])
    # Factor graphs list their factors among the nodes; the nodes of junction trees are groups
    nodes = () if hasattr(model, "get_variable_nodes") else getattr(model, "nodes", ())
    orphans = [
        node
        for node in nodes
        if node not in known and not (isinstance(node, tuple) and known.issuperset(node))
    ]
    if orphans or not network[0]:
        way_out = "Add a table of ones where there is none: it has the number of states."
        raise invalid("model", "have a factor for every variable", way_out, variables=orphans)
    return network


def _named_tables(factors: list[Any]) -> NamedTables:
    if not all(hasattr(factor, "state_names") for factor in factors):
        raise TypeError(must("factors of the model", "be tables over discrete variables"))
    # First variables first: in a Bayesian network table i then belongs to variable i.
    first = [factor.variables[0] for factor in factors]
    others = [name for factor in factors for name in factor.variables]
    names = list(dict.fromkeys([*first, *others]))
    if set(names) == set(range(len(names))):
        # Evidence by number would mean another variable if these were numbered anew
        names.sort()
        factors = sorted(factors, key=lambda factor: factor.variables[0])
    states = {}
    tables = []
    for factor in factors:
        scope = [names.index(name) for name in factor.variables]
        tables.append((scope, np.asarray(factor.values, dtype=np.float64)))
        # State names may be numbers or booleans there.
        for name in factor.variables:
            states[name] = [str(state) for state in factor.state_names[name]]
    return names, [states[name] for name in names], tables


def parse_uai(data: bytes) -> tuple[list[Factor], list[int]]:
    """Factors and numbers of states of a UAI file, MARKOV or BAYES, the last variable fastest."""
    try:
        # Line breaks only end comments in this format: read it as a stream of words.
        return _parse(iter(_UAI_COMMENT.sub(" ", _decoded(data)).split()))
    except StopIteration:
        raise invalid("UAI file", "be complete", "It ends early.") from None


def write_uai(
    path: str | PathLike[str], factors: Sequence[Factor], cardinalities: IntArray, kind: str
) -> None:
    """Write factors as a file of a kind, MARKOV or BAYES; every digit is kept."""
    lines = [kind, str(len(cardinalities)), " ".join(map(str, cardinalities.tolist()))]
    lines.append(str(len(factors)))
    lines += [" ".join(map(str, (len(factor.scope), *factor.scope))) for factor in factors]
    for factor in factors:
        values = plain_values(factor).ravel().tolist()
        lines += ["", str(len(values)), " ".join(map(_digits, values))]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def plain_values(factor: Factor) -> FloatArray:
    """Give the values of a factor, if floats can hold them."""
    with np.errstate(over="ignore", under="ignore"):
        values = np.exp(factor.log_table)
    # An energy that underflows would turn a possible state into an impossible one
    if np.isposinf(values).any() or np.any((values == 0) & ~np.isneginf(factor.log_table)):
        raise invalid(
            f"table of the factor over {factor.scope}",
            "have values that a file of plain numbers can hold",
            "Energies beyond 700 need pickle or joblib.",
            max=float(factor.log_table.max()),
            min=float(factor.log_table.min()),
        )
    return np.asarray(values)


def _parse(tokens: Iterator[str]) -> tuple[list[Factor], list[int]]:
    kind = next(tokens).upper()
    if kind not in ("MARKOV", "BAYES"):
        raise invalid("first word", "be MARKOV or BAYES", word=kind)
    cardinalities = _integers(tokens, int(next(tokens)))
    if min(cardinalities, default=1) < 1:
        raise invalid("variables", "have a state each", cardinalities=cardinalities)
    # All scopes come first, then all tables in the same order.
    scopes = [_integers(tokens, int(next(tokens))) for _ in range(int(next(tokens)))]
    beyond = {v for scope in scopes for v in scope if not 0 <= v < len(cardinalities)}
    if beyond:
        raise invalid(
            "scopes", f"name variables below {len(cardinalities)}", variables=sorted(beyond)
        )
    factors = []
    for scope in scopes:
        shape = [cardinalities[v] for v in scope]
        n_values = int(next(tokens))
        if n_values != prod(shape):
            raise invalid(f"table over {scope}", f"have {prod(shape)} values", n=n_values)
        values = np.array([_number(next(tokens)) for _ in range(n_values)])
        check_table_size(f"table over {scope}", shape)
        factors.append(Factor.from_table(scope, values.reshape(shape)))
    extra = next(tokens, None)
    if extra is not None:
        raise invalid("last table", "end the file", "Are all tables counted?", word=extra)
    return factors, cardinalities


def _integers(tokens: Iterator[str], count: int) -> list[int]:
    return [int(next(tokens)) for _ in range(count)]
