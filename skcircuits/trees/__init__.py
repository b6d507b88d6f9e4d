"""Distributions over spanning trees and mixtures of tree distributions."""

from skcircuits.trees.mixture_of_all_trees._all_trees import MixtureOfAllTrees, distinct_rows
from skcircuits.trees.mixture_of_all_trees._all_trees_mixture import AllTreesMixture
from skcircuits.trees.mixture_of_all_trees._circuit import sampled_circuit, tree_unit
from skcircuits.trees.mixture_of_all_trees._conditionals import conditional_marginals
from skcircuits.trees.mixture_of_all_trees._contrasts import (
    from_contrasts,
    sum_contrasts,
    to_contrasts,
)
from skcircuits.trees.mixture_of_all_trees._enumeration import (
    MAX_COMPLETIONS,
    draw_enumerated,
    enumerate_evidence,
    enumerate_marginals,
    n_completions,
)
from skcircuits.trees.mixture_of_all_trees._evidence_trees import (
    estimate_evidence,
    estimate_marginals,
    sample_completions,
)
from skcircuits.trees.mixture_of_all_trees._gibbs import blocked_gibbs, single_site_gibbs
from skcircuits.trees.mixture_of_all_trees._learning import (
    Schedule,
    learn_all_trees,
    start_training,
)
from skcircuits.trees.mixture_of_all_trees._margins import margin_gradient, scale_to_margins
from skcircuits.trees.mixture_of_all_trees._parameters import Parameterization
from skcircuits.trees.mixture_of_all_trees._prior_trees import sample_rows, sample_trees
from skcircuits.trees.mixture_of_all_trees._tree_proposals import TreeProposal
from skcircuits.trees.spanning._block_inverse import invert_in_place
from skcircuits.trees.spanning._laplacian import (
    RowLaplacians,
    ground,
    log_tree_sum,
    log_tree_sums,
    spanning_tree_laws,
)
from skcircuits.trees.spanning._sampling import sample_spanning_trees
from skcircuits.trees.tree._chow_liu import (
    ChowLiuTree,
    TreeMixture,
    chow_liu_tree,
    learn_tree_mixture,
)
from skcircuits.trees.tree._completion import complete_rows
from skcircuits.trees.tree._inference import TreeInference
from skcircuits.trees.tree._layout import StateLayout
from skcircuits.trees.tree._rooted import (
    children_of,
    edges_of,
    maximum_spanning_tree,
    top_down_order,
    vertex_depths,
)
from skcircuits.trees.tree._statistics import PairStatistics, mutual_information, pair_statistics

__all__ = [
    "MAX_COMPLETIONS",
    "AllTreesMixture",
    "ChowLiuTree",
    "MixtureOfAllTrees",
    "PairStatistics",
    "Parameterization",
    "RowLaplacians",
    "Schedule",
    "StateLayout",
    "TreeInference",
    "TreeMixture",
    "TreeProposal",
    "blocked_gibbs",
    "children_of",
    "chow_liu_tree",
    "complete_rows",
    "conditional_marginals",
    "distinct_rows",
    "draw_enumerated",
    "edges_of",
    "enumerate_evidence",
    "enumerate_marginals",
    "estimate_evidence",
    "estimate_marginals",
    "from_contrasts",
    "ground",
    "invert_in_place",
    "learn_all_trees",
    "learn_tree_mixture",
    "log_tree_sum",
    "log_tree_sums",
    "margin_gradient",
    "maximum_spanning_tree",
    "mutual_information",
    "n_completions",
    "pair_statistics",
    "sample_completions",
    "sample_rows",
    "sample_spanning_trees",
    "sample_trees",
    "sampled_circuit",
    "scale_to_margins",
    "single_site_gibbs",
    "spanning_tree_laws",
    "start_training",
    "sum_contrasts",
    "to_contrasts",
    "top_down_order",
    "tree_unit",
    "vertex_depths",
]
