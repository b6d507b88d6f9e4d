"""Distributions over spanning trees and mixtures of tree distributions."""

from skcircuits.trees.mixture_of_all_trees._conditionals import (
    blocked_gibbs,
    conditional_marginals,
    single_site_gibbs,
)
from skcircuits.trees.mixture_of_all_trees._enumeration import (
    MAX_COMPLETIONS,
    MAX_EXACT_COMPLETIONS,
    draw_enumerated,
    enumerate_evidence,
    enumerate_marginals,
    most_probable_completions,
    n_completions,
)
from skcircuits.trees.mixture_of_all_trees._evidence_completions import estimate_evidence
from skcircuits.trees.mixture_of_all_trees._evidence_trees import (
    TreeProposal,
    estimate_from_trees,
    estimate_marginals,
    sample_completions,
)
from skcircuits.trees.mixture_of_all_trees._learning import (
    Schedule,
    learn_all_trees,
    start_training,
)
from skcircuits.trees.mixture_of_all_trees._marginal_scaling import (
    marginal_gradient,
    scale_to_marginals,
)
from skcircuits.trees.mixture_of_all_trees._model import (
    AllTreesMixture,
    MixtureOfAllTrees,
    distinct_rows,
)
from skcircuits.trees.mixture_of_all_trees._parameters import (
    Parameterization,
    from_contrasts,
    sum_contrasts,
    to_contrasts,
)
from skcircuits.trees.mixture_of_all_trees._prior_trees import (
    sample_rows,
    sample_trees,
    sampled_circuit,
)
from skcircuits.trees.spanning._laplacian import (
    RowLaplacians,
    invert_in_place,
    log_partition_and_marginals,
    log_partitions,
    log_partitions_and_marginals,
    reduced_laplacian,
)
from skcircuits.trees.spanning._sampling import sample_spanning_trees
from skcircuits.trees.tree._chow_liu import (
    ChowLiuTree,
    TreeMixture,
    chow_liu_tree,
    complete_rows,
    learn_tree_mixture,
)
from skcircuits.trees.tree._circuit import conditional_tables, tree_unit
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
    "MAX_EXACT_COMPLETIONS",
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
    "conditional_tables",
    "distinct_rows",
    "draw_enumerated",
    "edges_of",
    "enumerate_evidence",
    "enumerate_marginals",
    "estimate_evidence",
    "estimate_from_trees",
    "estimate_marginals",
    "from_contrasts",
    "invert_in_place",
    "learn_all_trees",
    "learn_tree_mixture",
    "log_partition_and_marginals",
    "log_partitions",
    "log_partitions_and_marginals",
    "marginal_gradient",
    "maximum_spanning_tree",
    "most_probable_completions",
    "mutual_information",
    "n_completions",
    "pair_statistics",
    "reduced_laplacian",
    "sample_completions",
    "sample_rows",
    "sample_spanning_trees",
    "sample_trees",
    "sampled_circuit",
    "scale_to_marginals",
    "single_site_gibbs",
    "start_training",
    "sum_contrasts",
    "to_contrasts",
    "top_down_order",
    "tree_unit",
    "vertex_depths",
]
