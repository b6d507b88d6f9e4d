"""The fit loop: best state, early stop, Ctrl-C, verbose lines, callbacks."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin, ProgressBar, ScoringMonitor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from skcircuits import CircuitImputer, GaussianMixtureDensity, StackingDensity
from skcircuits.estimators._base import MEMORY_ADVICE, TableMixin, fit_context
from skcircuits.estimators.shared import _fitting
from skcircuits.estimators.shared._fitting import TrainingRows, drive


@dataclass(frozen=True)
class State:
    value: float
    converged: bool = False


class Learner(CallbackSupportMixin, TableMixin, BaseEstimator):
    """Fits the values it is given, one per step."""

    _parameter_constraints = {}  # noqa: RUF012

    def __init__(self, values=(1.0, 3.0, 2.0), max_iter=10, verbose=0):
        self.values = values
        self.max_iter = max_iter
        self.verbose = verbose

    @fit_context
    def fit(self, X, y=None, **options):
        X = self._learn_table(X)
        steps = (State(value) if isinstance(value, float) else value() for value in self.values)
        self.result_ = drive(
            self,
            steps,
            max_iter=self.max_iter,
            score=lambda state: state.value,
            attributes=lambda state: {"best_": state.value},
            X=X,
            **options,
        )
        self.best_ = self.result_.state.value
        return self

    def score(self, X, y=None):
        return self.best_


X = np.eye(3)


def interrupt():
    raise KeyboardInterrupt


def test_best_state_wins_and_a_learner_may_end_by_itself():
    result = Learner().fit(X).result_
    assert (result.state.value, result.n_iter, result.converged) == (3.0, 3, True)
    assert result.scores == [1.0, 3.0, 2.0]


def test_without_a_score_the_last_state_wins():
    result = drive(object(), iter([State(1.0), State(0.0)]), max_iter=5)
    assert result.state.value == 0.0
    assert result.scores == []


def test_a_converged_state_ends_the_loop():
    values = [1.0, lambda: State(2.0, converged=True), 3.0]
    result = Learner(values).fit(X).result_
    assert (result.n_iter, result.converged) == (2, True)


def test_too_few_iterations_warn():
    with pytest.warns(ConvergenceWarning, match="Learner did not converge in max_iter=2"):
        result = Learner(max_iter=2).fit(X).result_
    assert (result.n_iter, result.converged, result.state.value) == (2, False, 3.0)


@pytest.mark.parametrize(
    ("tol", "n_iter"), [(0.0, 7), (0.5, 4)], ids=["any improvement", "small ones do not count"]
)
def test_early_stop_waits_for_improvement(tol, n_iter):
    values = [1.0, 2.0, 2.1, 2.2, 2.3, 2.3, 2.3, 2.3, 9.0]
    result = Learner(values).fit(X, tol=tol, n_iter_no_change=2).result_
    assert (result.n_iter, result.converged) == (n_iter, True)


def test_slow_progress_adds_up_to_an_improvement():
    values = list(np.arange(0, 3, 0.3))
    result = Learner(values, max_iter=20).fit(X, tol=0.5, n_iter_no_change=3).result_
    assert result.n_iter == len(values)


def test_interrupt_keeps_the_best_state():
    with pytest.warns(ConvergenceWarning, match="interrupted after 2 iterations"):
        result = Learner([1.0, 0.5, interrupt, 7.0]).fit(X).result_
    assert (result.state.value, result.n_iter, result.converged) == (1.0, 2, False)


def test_interrupt_before_the_first_step_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt):
        Learner([interrupt]).fit(X)


@pytest.mark.parametrize(
    "make",
    [lambda own: CircuitImputer(density=own), lambda own: StackingDensity([("own", own)])],
    ids=["imputer", "stack"],
)
def test_an_interrupt_ends_the_fit_that_was_called_not_only_one_within(make, monkeypatch):
    n_steps, take = [], _fitting._Keeper.take

    def interrupted(keeper, state):
        take(keeper, state)
        n_steps.append(1)
        if len(n_steps) == 2:
            raise KeyboardInterrupt

    table = np.random.default_rng(0).normal(size=(50, 2))
    table[::5, 0] = np.nan
    density = GaussianMixtureDensity(n_components=2, random_state=0)
    monkeypatch.setattr(_fitting._Keeper, "take", interrupted)
    outer = make(density)
    with pytest.raises(KeyboardInterrupt):
        outer.fit(table)
    assert not hasattr(outer, "n_features_in_")
    n_steps.clear()
    with pytest.warns(ConvergenceWarning, match="was interrupted"):
        density.fit(table)  # on its own it keeps the best


def test_where_memory_ends_the_error_says_what_needs_less():
    def exhaust():
        raise MemoryError("Unable to allocate")

    with pytest.raises(MemoryError, match="Unable to allocate") as caught:
        Learner([1.0, exhaust]).fit([[0.0]])
    assert caught.value.__notes__ == [MEMORY_ADVICE]


def test_the_rest_of_the_work_is_done_on_the_best_state():
    result = Learner().fit(X, finish=lambda state: -state.value).result_
    assert (result.finished, result.converged) == (-3.0, True)


def test_interrupting_the_rest_of_the_work_keeps_the_best_state():
    with pytest.warns(ConvergenceWarning, match="interrupted after 3 iterations"):
        result = Learner().fit(X, finish=lambda state: interrupt()).result_
    assert (result.state.value, result.finished, result.converged) == (3.0, None, False)


@pytest.mark.parametrize(("verbose", "n_lines"), [(0, 0), (1, 20), (2, 40)])
def test_verbose_lines(verbose, n_lines, capsys):
    with pytest.warns(ConvergenceWarning):
        Learner([float(i) for i in range(50)], max_iter=40, verbose=verbose).fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == n_lines
    assert not lines or lines[-1] == "[Learner] iteration 40: score 39"


def test_verbose_lines_without_a_known_end(capsys):
    Learner([float(i) for i in range(25)], max_iter=None, verbose=1).fit(X)
    iterations = [int(line.split()[2][:-1]) for line in capsys.readouterr().out.splitlines()]
    assert iterations == [*range(1, 11), 20]


class Recorder:
    """A callback that writes down tasks and may stop the fit."""

    def __init__(self, stop_at=None):
        self.stop_at = stop_at
        self.events = []
        self.tables = []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X=None, fitted_estimator=None):
        self.tables.append(X)
        score = "" if fitted_estimator is None else f" {fitted_estimator.score(X)}"
        self.events.append(f"end {context.task_name}{score}")
        return context.task_name == "iteration" and context.task_id == self.stop_at


def test_callbacks_see_every_step_and_a_usable_estimator():
    recorder = Recorder()
    Learner([1.0, 3.0]).set_callbacks(recorder).fit(X)
    assert recorder.events == [
        "setup",
        "begin fit",
        *["begin iteration", "end iteration 1.0"],
        *["begin iteration", "end iteration 3.0"],
        *["begin iteration", "end iteration"],  # the learner had ended
        "end fit",
        "teardown",
    ]
    np.testing.assert_array_equal(recorder.tables[0], X)


def test_callbacks_see_tables_of_the_kind_passed():
    pd = pytest.importorskip("pandas")
    recorder = Recorder()
    table = pd.DataFrame({"job": ["cook", None, "nurse"], "age": [1, 2, 3]})
    Learner().set_callbacks(recorder).fit(table)
    pd.testing.assert_frame_equal(recorder.tables[0], table)


def test_a_callback_stops_the_fit_without_a_warning():
    result = Learner([1.0, 2.0, 3.0]).set_callbacks(Recorder(stop_at=1)).fit(X).result_
    assert (result.n_iter, result.converged) == (2, False)


def test_callbacks_are_torn_down_after_an_interrupt():
    recorder = Recorder()
    with pytest.warns(ConvergenceWarning):
        Learner([1.0, interrupt]).set_callbacks(recorder).fit(X)
    assert recorder.events[-1] == "teardown"


def test_several_loops_in_one_fit_are_tasks_of_it():
    class Search(Learner):
        @fit_context
        def fit(self, X, y=None):
            self._learn_table(X)
            root = self._init_callback_context(max_subtasks=2)
            for k in range(2):
                candidate = root.subcontext(task_name=f"candidate {k}", max_subtasks=self.max_iter)
                drive(self, iter([State(1.0)]), max_iter=self.max_iter, context=candidate)
            return self

    recorder = Recorder()
    Search().set_callbacks(recorder).fit(X)
    assert (
        recorder.events.count("begin candidate 0") == recorder.events.count("end candidate 1") == 1
    )
    assert recorder.events.count("setup") == 1


def test_scikit_learn_callbacks_work(capsys):
    pytest.importorskip("rich")
    monitor = ScoringMonitor(scoring={"value": lambda estimator, X, y: estimator.score(X)})
    Learner([1.0, 3.0, 2.0]).set_callbacks(ProgressBar(), monitor).fit(X)
    assert [row["value"] for row in monitor.get_logs().data][:3] == [1.0, 3.0, 2.0]
    search = GridSearchCV(Learner(), {"max_iter": [4, 5]}, cv=2)
    search.set_callbacks(ProgressBar(max_propagation_depth=None)).fit(np.eye(6))
    assert "100%" in capsys.readouterr().out


def observations(X, weight):
    rows = TrainingRows.of(X, weight).as_observations(np.ones(X.shape[1], dtype=bool))
    return rows.X, rows.weight


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_decimals", [1, 15])
def test_copies_of_rows_that_chance_hardly_explains_are_one_row(n_decimals):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 5)).round(n_decimals)
    X[::7, 0] = np.nan
    X[1:4, 1] = [1e100, 0.0, 5e-324]  # of any magnitude
    weight = rng.integers(1, 2000, size=100).astype(float)
    for own, of_rows in [(X, weight), (np.repeat(X, weight.astype(int), axis=0), None)]:
        found, found_weight = observations(own, of_rows)
        np.testing.assert_array_equal(found, X)
        np.testing.assert_array_equal(found_weight, weight)


def test_rows_that_may_be_equal_by_chance_are_repeated_up_to_a_size():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(2, size=(60, 3)), np.arange(60) % 20]).astype(float)
    weight = rng.integers(1, 5, size=60).astype(float)
    repeated = np.repeat(X, weight.astype(int), axis=0)
    for own, of_rows in [(X, weight), (repeated, None)]:
        found, found_weight = observations(own, of_rows)
        np.testing.assert_array_equal(found, repeated)
        assert (found_weight == 1.0).all()
    for weights in (weight + 0.5, 1e5 * weight):  # no rows, too many rows
        found, found_weight = observations(X, weights)
        np.testing.assert_array_equal(found, X)
        np.testing.assert_array_equal(found_weight, weights)


def test_a_value_of_many_rows_stays_many_rows():
    X = np.random.default_rng(0).exponential(size=(100, 1))
    X[::2] = 0.0
    found, weight = observations(X, np.ones(100))
    np.testing.assert_array_equal(found, X)
    # Copies of the others are one row each
    found, weight = observations(X, np.full(100, 3.0))
    np.testing.assert_array_equal(weight, np.where(found[:, 0] > 0.0, 3.0, 1.0))
    assert (found == 0.0).sum() == 150


@pytest.mark.parametrize("weight", [0.1, 0.9999, 1e-200])
def test_equal_weights_are_rows(weight):
    assert (_fitting.weights_in_rows(np.full(119, weight)) == 1.0).all()
    # Fractions stay fractions, and rows keep a weight
    fractions = np.array([1e-30, 0.5, 1.5, 2.0])
    np.testing.assert_allclose(_fitting.weights_in_rows(fractions), fractions, rtol=1e-12)
