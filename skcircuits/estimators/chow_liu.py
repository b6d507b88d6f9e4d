"""Density estimation by Chow-Liu trees and their mixtures."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skcircuits.estimators._base import TABLE_CONSTRAINTS, Interval, inherit_documentation
from skcircuits.estimators.shared._density import DiscreteDensity
from skcircuits.estimators.shared._fitting import drive, stages
from skcircuits.trees._chow_liu import (
    TreeMixture,
    complete_rows,
    learn_tree_mixture,
    mixture_circuit,
    observed_tree,
)


@inherit_documentation
class ChowLiuDensity(DiscreteDensity):
    """Chow-Liu tree (the tree distribution of largest likelihood), or a mixture of such trees.

    Parameters
    ----------
    n_components : int, default=1
        Number of trees. Several trees are learned by expectation maximisation, each with its own
        structure.
    pseudo_count : float, default=1.0
        Weight of the uniform rows added to the tables of each tree.
    max_iter : int, default=100
        Maximum number of iterations of expectation maximisation.
    tol : float, default=1e-3
        Iterations stop when the mean log probability improves by less than this value.
    random_state : int, RandomState or None, default=None
        Controls the randomness of mixtures. A single tree does not depend on it.

    Attributes
    ----------
    circuit_ : Circuit
        The density in original units; deterministic and structured-decomposable for one tree.
    parents_ : ndarray of shape (n_components, n_features_in_)
        Parent of each column in each tree, -1 at the root.
    weights_ : ndarray of shape (n_components,)
        Mixture weights.
    log_likelihood_ : float
        Mean log likelihood of the training rows (of 1000 of them, if there are more).
    n_iter_ : int
        Number of iterations.

    See Also
    --------
    HiddenChowLiuDensity : Tree over latent variables, one for each column.
    MoATDensity : The mixture of all trees.

    Notes
    -----
    In columns of integers with few distinct values, every value is a state. Other numerical columns
    are divided into quantile bins with a uniform density, the outermost further where the density
    falls, so that scores are densities in the original units. On each side of the observed range
    lies an exponential tail whose probability is about 1 / (n_rows + 1), so that no number is
    impossible. A value that many rows have, such as zero in a column of debts, is a further state:
    a point mass, which enters scores with its probability instead of a density. Integers that did
    not occur in `fit` are treated as new categories.

    If cells are missing, the tree is learned from the pairs of cells that are observed together,
    and its tables by expectation maximisation, which starts from them. The trees of a mixture are
    learned from the probable completions of each row by a Chow-Liu tree, each with its probability,
    and all tables from the incomplete rows themselves.

    References
    ----------
    .. [1] Chow and Liu, "Approximating Discrete Probability Distributions with Dependence
       Trees", IEEE Transactions on Information Theory, 1968.
    .. [2] Meila and Jordan, "Learning with Mixtures of Trees", JMLR 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import ChowLiuDensity
    >>> X = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 1], [1, 1, 0]])
    >>> density = ChowLiuDensity(pseudo_count=1e-9).fit(X)
    >>> np.exp(density.score_samples(X)).round(4)
    array([0.25, 0.25, 0.25, 0.25])
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "pseudo_count": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        **TABLE_CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        n_components=1,
        pseudo_count=1.0,
        max_iter=100,
        tol=1e-3,
        categorical_features="from_dtype",
        handle_unknown="missing",
        random_state=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.pseudo_count = pseudo_count
        self.max_iter = max_iter
        self.tol = tol
        self.categorical_features = categorical_features
        self.handle_unknown = handle_unknown
        self.random_state = random_state
        self.verbose = verbose

    def _fit_rows(self, rows, generator):
        with stages(self, "structure", "parameters") as (structure, parameters):
            mixture, self.n_iter_ = self._learn_trees(rows, generator, structure)
            # The structure is learned from pairs or completions, the parameters from observed cells
            circuit = self._refine_states(mixture_circuit(mixture), rows, parameters)
        self.parents_ = np.stack([tree.parents for tree in mixture.trees])
        self.weights_ = np.exp(mixture.log_weights)
        self.circuit_ = self._states.in_original_units(circuit)
        self.log_likelihood_ = self._mean_log_likelihood(rows)

    def _learn_trees(self, rows, generator, context):
        """The mixture and the number of steps it took."""
        layout = self._states.layout
        settings = {"sample_weight": rows.weight, "pseudo_count": self.pseudo_count}
        if self.n_components == 1:
            return TreeMixture(np.zeros(1), [observed_tree(rows.codes, layout, **settings)]), 1
        (completions,) = complete_rows([rows.codes], layout, **settings)
        complete, weight = completions.codes, completions.totals(rows.weight)
        settings["sample_weight"] = weight
        result = drive(
            self,
            learn_tree_mixture(complete, layout, self.n_components, generator, **settings),
            max_iter=self.max_iter,
            score=lambda mixture: np.average(mixture.log_prob(complete), weights=weight),
            tol=self.tol,
            n_iter_no_change=1,
            attributes=lambda mixture: {
                "circuit_": self._states.in_original_units(mixture_circuit(mixture))
            },
            X=rows.X,
            context=context,
        )
        return result.state, result.n_iter
