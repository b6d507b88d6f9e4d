"""Bayesian networks: construction, BIF, pgmpy objects."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.graphical import BayesianNetwork, FactorGraph
from skcircuits.graphical.bayesian_network import _check_acyclic

SPRINKLER = """
network unknown { }
// rain and sprinkler wet the grass
variable Rain { type discrete [ 2 ] { no, yes }; }
variable Sprinkler { type discrete [ 2 ] { off, on }; }
variable Grass { type discrete [ 3 ] { dry, damp, wet }; }
probability ( Rain ) { table 0.8, 0.2; }
probability ( Sprinkler | Rain ) {
  (no) 0.6, 0.4;
  (yes) 0.99, 0.01;
}
probability ( Grass | Sprinkler, Rain ) {
  default 0.0, 0.1, 0.9;
  (off, no) 1.0, 0.0, 0.0;
  (on, no) 0.1, 0.2, 0.7;
}
"""


@pytest.fixture
def sprinkler(tmp_path):
    path = tmp_path / "sprinkler.bif"
    path.write_text(SPRINKLER)
    return BayesianNetwork.from_bif(path)


def test_bif_tables_and_names(sprinkler):
    assert sprinkler.variable_names == ("Rain", "Sprinkler", "Grass")
    assert sprinkler.state_names[2] == ("dry", "damp", "wet")
    assert sprinkler.parents == ((), (0,), (1, 0))
    rain, sprinkler_on = 0.2, 0.8 * 0.4 + 0.2 * 0.01
    assert_allclose(sprinkler.marginals()[0][1], rain)
    assert_allclose(sprinkler.marginals()[1][1], sprinkler_on)
    dry = 0.8 * 0.6 * 1.0 + 0.8 * 0.4 * 0.1
    assert_allclose(sprinkler.marginals()[2][0], dry)
    assert_allclose(sprinkler.log_partition(), 0.0, atol=1e-12)


def test_bif_evidence_by_name(sprinkler):
    wet = 0.8 * 0.4 * 0.7, 0.2 * 0.9
    expected = wet[1] / sum(wet)
    assert_allclose(sprinkler.marginals({"Grass": "wet"})[0][1], expected)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("probability ( Rain ) { table 0.8, 0.2; }", "", "give every variable a probability"),
        ("type discrete [ 2 ] { off, on }", "type continuous", "be discrete"),
        ("[ 3 ]", "[ 4 ]", "name 4 states"),
        ("  default 0.0, 0.1, 0.9;\n", "", "row for every state of its parents"),
        (SPRINKLER, "network empty { }", "declare variables"),
        ("{ no, yes }", "{ no, no }", r"name 2 states; got states=\['no', 'no'\]"),
        ("( Sprinkler | Rain )", "( Sprinkler | Snow )", r"declared as variables.*'Snow'"),
        ("(yes) 0.99", "(maybe) 0.99", r"a state of each of its parents.*row=\['maybe'\]"),
        ("(off, no) 1.0", "(off) 1.0", r"a state of each of its parents.*row=\['off'\]"),
        ("(off, no) 1.0", "(off, no, no) 1.0", "a state of each of its parents"),
        ("0.6, 0.4;", "1.0;", "table of Sprinkler must be 2 numbers; got entry='1.0'"),
        ("0.6, 0.4;", "0.6, 0.3, 0.1;", "table of Sprinkler must be 2 numbers"),
        ("table 0.8, 0.2;", "table 0.8, 0.1, 0.1;", "table of Rain must be 2 numbers"),
        ("0.6, 0.4;", "most, 0.4;", "table of Sprinkler must hold numbers.*'most'"),
        ("0.6, 0.4;", "1.4, -0.4;", "be non-negative"),
        ("0.6, 0.4;", "1.0, 4e-400;", "hold numbers.*zero or at least 5e-324.*'4e-400'"),
        ("variable Grass", "variable Rain { type discrete [ 1 ] { x }; }\nvariable Grass", "once"),
        (
            "probability ( Sprinkler",
            "probability ( Rain ) { table 0.5, 0.5; }\nprobability ( Sprinkler",
            r"give every variable one probability; got variables=\['Rain'\]",
        ),
        ("{ dry, damp", "{ very dry, damp", "name 3 states.*Quote names that hold spaces"),
        ("variable Rain", "variable Heavy Rain", "one name; got name='Heavy Rain'. Quote"),
        ("( Sprinkler | Rain )", "( Sprinkler | Rain | Rain )", r"be of \( child \| parents \)"),
        ("(no) 0.6", "no 0.6", "begin with table, default or .*entry='no 0.6 0.4'"),
        ("{ table 0.8, 0.2; }", "{ table 0.8, 0.2;", "have matching braces"),
        ("table 0.8, 0.2; }", "table 0.8, 0.2; } }", "have matching braces"),
    ],
)
def test_broken_bif(tmp_path, old, new, message):
    path = tmp_path / "broken.bif"
    path.write_text(SPRINKLER.replace(old, new))
    with pytest.raises(ValueError, match=message) as caught:
        BayesianNetwork.from_bif(path)
    assert str(path) in str(caught.value)


def test_quoted_names(tmp_path):
    path = tmp_path / "quoted.bif"
    path.write_text(
        'variable "A" { type discrete [ 2 ] { "a", "b" }; }\n'
        'probability ( "A" ) { table 0.25, 0.75; }\n'
    )
    network = BayesianNetwork.from_bif(path)
    assert network.variable_names == ("A",)
    assert_allclose(network.log_partition({"A": "b"}), np.log(0.75))


AWKWARD = """// a "comment
network "of variable x { type discrete [ 2 ] { p, q }; }" { property "drawn; by hand"; }
variable "http://x" {
  type discrete[2] { "very yes", http://no }  /* with
  "two lines */
  property default table (0.1, 0.9) ;
}
variable Other { property position = (3, 4); type discrete [ 2 ] { "a|{b}", "(c)" }; }
probability("http://x") { property "table 0.5, 0.5"; table 0.25, 0.75; }
probability (Other|"http://x") {
  property (very, yes) is the default;
  ("very yes") 0.4/* as measured */, 0.6; // (http://no) 0.5, 0.5;
  (http://no) 0.1, 0.9;
}
"""


def test_names_may_hold_anything_and_properties_say_nothing(tmp_path):
    path = tmp_path / "awkward.bif"
    path.write_text(AWKWARD, encoding="utf-8-sig")
    network = BayesianNetwork.from_bif(path)
    assert network.variable_names == ("http://x", "Other")
    assert network.state_names == (("very yes", "http://no"), ("a|{b}", "(c)"))
    assert_allclose(np.exp(network.factors[0].log_table), [0.25, 0.75])
    assert_allclose(np.exp(network.factors[1].log_table), [[0.4, 0.6], [0.1, 0.9]])


def test_files_in_other_encodings_are_named(tmp_path):
    path = tmp_path / "latin.bif"
    path.write_bytes(SPRINKLER.replace("damp", "d\xe4mp").encode("latin-1"))
    with pytest.raises(ValueError, match=r"be UTF-8 text; got path='.*latin\.bif'\. Save it as"):
        BayesianNetwork.from_bif(path)
    path.write_text(SPRINKLER.replace("damp", "d\xe4mp"), encoding="utf-8")
    assert BayesianNetwork.from_bif(path).state_names[2][1] == "d\xe4mp"


def test_table_keyword_with_parents_runs_child_slowest(tmp_path):
    path = tmp_path / "two.bif"
    path.write_text(
        "variable A { type discrete [ 2 ] { a, b }; }\n"
        "variable B { type discrete [ 2 ] { c, d }; }\n"
        "probability ( A ) { table 0.5, 0.5; }\n"
        "probability ( B | A ) { table 0.9, 0.2, 0.1, 0.8; }\n"
    )
    network = BayesianNetwork.from_bif(path)
    assert_allclose(network.marginals({"A": "b"})[1], [0.2, 0.8])


def test_files_without_bars(tmp_path):
    """JavaBayes writes the child and its parents without a bar, and names in quotes."""
    path = tmp_path / "dog.bif"
    path.write_text(
        'network "Dog" { //2 variables\n}\n'
        'variable "light-on" { type discrete[2] { "true" "false" }; }\n'
        'variable "family-out" { type discrete[2] { "true" "false" }; }\n'
        'probability ( "light-on" "family-out" ) { table 0.6 0.05 0.4 0.95 ; }\n'
        'probability ( "family-out" ) { table 0.15 0.85 ; }\n'
    )
    network = BayesianNetwork.from_bif(path)
    assert network.parents == ((1,), ())
    assert_allclose(network.marginals({"family-out": "false"})[0], [0.05, 0.95])


def test_from_pgmpy_like_object(sprinkler):
    def table(name, given, values):
        names = dict(zip(sprinkler.variable_names, map(list, sprinkler.state_names)))
        return SimpleNamespace(
            variables=[name, *given],
            values=np.asarray(values),
            state_names={v: names[v] for v in [name, *given]},
        )

    tables = [np.exp(factor.log_table) for factor in sprinkler.factors]
    model = SimpleNamespace(
        get_cpds=lambda: [
            table("Grass", ["Sprinkler", "Rain"], np.moveaxis(tables[2], -1, 0)),
            table("Rain", [], tables[0]),
            table("Sprinkler", ["Rain"], tables[1].T),
        ]
    )
    network = BayesianNetwork.from_pgmpy(model)
    assert network.variable_names == ("Grass", "Rain", "Sprinkler")
    evidence = {"Grass": "damp"}
    assert_allclose(network.marginals(evidence)[1], sprinkler.marginals(evidence)[0])


def test_numbers_of_variables_of_pgmpy_are_kept():
    """Evidence on variable 0 was taken for evidence on the child of the first table."""
    states = {0: [0, 1], 1: [0, 1], 2: [0, 1, 2]}
    below = np.array([[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], [[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]]])
    tables = {(1,): [0.3, 0.7], (2,): [0.3, 0.6, 0.1], (0, 1, 2): below}
    cpds = [
        SimpleNamespace(
            variables=list(v), values=np.asarray(t), state_names={u: states[u] for u in v}
        )
        for v, t in tables.items()
    ]
    network = BayesianNetwork.from_pgmpy(SimpleNamespace(get_cpds=lambda: cpds))
    assert network.variable_names == ("0", "1", "2")
    joint = below * np.outer([0.3, 0.7], [0.3, 0.6, 0.1])
    assert_allclose(network.joint_marginal([0, 1, 2]), joint, rtol=1e-14)
    assert_allclose(network.marginals({0: 1})[1], joint[1].sum(axis=1) / joint[1].sum(), rtol=1e-14)


def test_models_of_pgmpy_that_are_no_bayesian_networks():
    table = SimpleNamespace(
        variables=["B", "A"], values=np.eye(2), state_names={"A": ["0", "1"], "B": ["0", "1"]}
    )
    with pytest.raises(TypeError, match=r"FactorGraph\.from_pgmpy takes Markov networks"):
        BayesianNetwork.from_pgmpy(SimpleNamespace(get_factors=list))
    with pytest.raises(ValueError, match=r"table for every variable; got variables=\['A'\]"):
        BayesianNetwork.from_pgmpy(SimpleNamespace(get_cpds=lambda: [table]))
    with pytest.raises(ValueError, match=r"variables=\['A', 'C'\]"):
        BayesianNetwork.from_pgmpy(SimpleNamespace(get_cpds=lambda: [table], nodes=["A", "B", "C"]))
    with pytest.raises(TypeError, match="tables over discrete variables"):
        BayesianNetwork.from_pgmpy(SimpleNamespace(get_cpds=lambda: [object()]))
    with pytest.raises(TypeError, match=r"BayesianNetwork\.from_pgmpy takes Bayesian networks"):
        FactorGraph.from_pgmpy(SimpleNamespace(get_cpds=list))


def test_pgmpy_answers_the_same(sprinkler):
    models = pytest.importorskip("pgmpy.models")
    discrete = pytest.importorskip("pgmpy.factors.discrete")
    names = dict(zip(sprinkler.variable_names, map(list, sprinkler.state_names)))
    model = models.DiscreteBayesianNetwork(
        [("Rain", "Sprinkler"), ("Rain", "Grass"), ("Sprinkler", "Grass")]
    )
    for variable, (factor, given) in enumerate(zip(sprinkler.factors, sprinkler.parents)):
        scope = [sprinkler.variable_names[v] for v in (variable, *given)]
        values = np.exp(np.moveaxis(factor.log_table, -1, 0))
        model.add_cpds(
            discrete.TabularCPD(
                scope[0],
                len(values),
                values.reshape(len(values), -1),
                evidence=scope[1:],
                evidence_card=values.shape[1:],
                state_names={name: names[name] for name in scope},
            )
        )
    read = BayesianNetwork.from_pgmpy(model)
    assert set(read.variable_names) == set(sprinkler.variable_names)
    markov = FactorGraph.from_pgmpy(model.to_markov_model())
    for graph in (read, markov):
        evidence = {"Grass": "wet"}
        rain = graph.marginals(evidence)[graph.variable_names.index("Rain")]
        assert_allclose(rain, sprinkler.marginals(evidence)[0], rtol=1e-12)


def test_soften_keeps_rows_normalised(sprinkler):
    soft = sprinkler.soften(0.05)
    assert_allclose(soft.log_partition(), 0.0, atol=1e-12)
    assert isinstance(soft, BayesianNetwork)
    assert_allclose(soft.marginals()[0], 0.95 * np.array([0.8, 0.2]) + 0.025)
    with pytest.raises(ValueError, match="amount"):
        sprinkler.soften(2)


def test_rows_off_by_rounding_make_a_distribution():
    thirds = [[0.3333333, 0.3333333, 0.3333333], [0.1, 0.2, 0.7]]
    below = [[0.9, 0.1], [0.2, 0.8000001], [0.4, 0.6]]
    network = BayesianNetwork([[], [0], [1]], [[0.25, 0.75], thirds, below])
    assert_allclose(network.log_partition(), 0.0, atol=1e-15)
    # What is below a variable has no say in its marginal: leaving it out changes nothing.
    pruned = BayesianNetwork([[], [0]], [[0.25, 0.75], thirds])
    for whole, part in zip(network.marginals(), pruned.marginals()):
        assert_allclose(whole, part, rtol=1e-15)
    compiled = network.compile().marginals(np.full((1, 3), np.nan))
    for variable, expected in enumerate(network.marginals()):
        assert_allclose(compiled[variable][0], expected, rtol=1e-14)


def test_rows_that_sum_to_one_keep_their_digits():
    tables = [[0.9, 0.1], [[0.3, 0.7], [0.2, 0.8]]]
    network = BayesianNetwork([[], [0]], tables)
    for factor, table in zip(network.factors, tables):
        np.testing.assert_array_equal(factor.log_table, np.log(table))


def test_three_printed_digits_are_rounding_and_two_percent_are_not():
    network = BayesianNetwork([[]], [[0.333, 0.333, 0.333]])
    assert_allclose(network.marginals()[0], 1 / 3)
    with pytest.raises(ValueError, match=r"must sum to one; got sum=0.98"):
        BayesianNetwork([[]], [[0.49, 0.49]])


def test_bad_networks():
    with pytest.raises(ValueError, match="one per variable"):
        BayesianNetwork([[]], [])
    with pytest.raises(ValueError, match="be finite"):
        BayesianNetwork([[]], [[np.nan, 0.5]])
    with pytest.raises(ValueError, match=r"sum=0\.0"):
        BayesianNetwork([[]], [[0.0, 0.0]])
    with pytest.raises(ValueError, match="rows of the table of variable 0 must sum to one"):
        BayesianNetwork([[]], [[0.5, 0.6]])
    half = np.full((2, 2), 0.5)
    with pytest.raises(ValueError, match="form no cycle"):
        BayesianNetwork([[1], [0]], [half, half])


def test_long_chains_are_checked_in_linear_time():
    parents = [[variable + 1] for variable in range(20_000)] + [[]]
    start = time.process_time()
    _check_acyclic(parents)
    with pytest.raises(ValueError, match=r"form no cycle; got variables=\[0, 1, 2, 3, 4, 5, 6, 7"):
        _check_acyclic([*parents[:-1], [20_000]])
    # A tenth of a second; hours by rounds over all variables
    assert time.process_time() - start < 10
