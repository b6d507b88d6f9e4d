"""Distributions over spanning trees and mixtures of tree distributions."""

from skcircuits.trees._chow_liu import (
    Completions,
    TreeMixture,
    chow_liu_tree,
    complete_rows,
    learn_tree_mixture,
    mixture_circuit,
    mutual_information,
    observed_information,
    observed_tree,
    pair_statistics,
)
from skcircuits.trees._trees import (
    StateLayout,
    children_of,
    conditional_tables,
    edges_of,
    maximum_spanning_tree,
    top_down_order,
    tree_unit,
)
from skcircuits.trees.mixture_of_all_trees._conditionals import (
    MAX_COMPLETIONS,
    MAX_EXACT_COMPLETIONS,
    conditional_marginals,
    draw_enumerated,
    enumerate_evidence,
    most_probable_completions,
    n_completions,
)
from skcircuits.trees.mixture_of_all_trees._evidence_completions import estimate_evidence
from skcircuits.trees.mixture_of_all_trees._evidence_trees import sample_completions
from skcircuits.trees.mixture_of_all_trees._learning import (
    Schedule,
    learn_all_trees,
    start_training,
)
from skcircuits.trees.mixture_of_all_trees._model import sample_rows, sample_trees, sampled_circuit

__all__ = [
    "MAX_COMPLETIONS",
    "MAX_EXACT_COMPLETIONS",
    "Completions",
    "Schedule",
    "StateLayout",
    "TreeMixture",
    "children_of",
    "chow_liu_tree",
    "complete_rows",
    "conditional_marginals",
    "conditional_tables",
    "draw_enumerated",
    "edges_of",
    "enumerate_evidence",
    "estimate_evidence",
    "learn_all_trees",
    "learn_tree_mixture",
    "maximum_spanning_tree",
    "mixture_circuit",
    "most_probable_completions",
    "mutual_information",
    "n_completions",
    "observed_information",
    "observed_tree",
    "pair_statistics",
    "sample_completions",
    "sample_rows",
    "sample_trees",
    "sampled_circuit",
    "start_training",
    "top_down_order",
    "tree_unit",
]
