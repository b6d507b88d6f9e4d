"""Strudel: deterministic, structured-decomposable circuits grown from a Chow-Liu tree.

Dang, Vergari and Van den Broeck, "Strudel: Learning Structured-Decomposable Probabilistic
Circuits", PGM 2020. Each step splits one edge: its product is replaced by one copy per state
of a variable. The edge is the one that carries most rows (eFLOW), the variable the one with
most mutual information to the others of the scope on these rows (vMI). Weights are counts,
so the likelihood of training and validation rows follows each split without a pass.

Mixtures share the structure of a circuit. As it is deterministic, every row uses the same edges
whatever the weights, so the flows are computed once: with F the (rows x edges) indicator matrix,
the log likelihoods of all components are F log θ and their expected counts Fᵀ R.

The circuit is a Chow-Liu tree whose parts are copied and conditioned. Every node belongs to one
variable of the tree, and its scope is that variable and all below it, so that copies decompose
alike and the circuit remains structured-decomposable. A sum chooses among products, a product fixes
the state of its variable and has one sum per child in the tree. A row takes exactly one edge of
each sum it reaches: each edge keeps the rows it carries, and those of a sum's edges are together
the rows of all edges that lead to the sum.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
from scipy import sparse
from scipy.special import xlogy

from skcircuits.circuits import Categorical, Circuit, Indicator, Product, Sum
from skcircuits.circuits.structure.units import Unit, depth_first
from skcircuits.exceptions import require
from skcircuits.numerics._arrays import logsumexp
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees._chow_liu import chow_liu_tree, learn_tree_mixture
from skcircuits.trees._trees import StateLayout, children_of, root_at_center, top_down_order

_MAX_MIXTURE_STEPS = 100
_MIXTURE_PATIENCE = 5


@dataclass(frozen=True)
class StrudelStep:
    """The circuit after a number of splits, which remains available when growth continues."""

    learner: StrudelLearner
    n_splits: int
    log_density: float  # mean over the training rows
    validation_log_density: float  # mean over the validation rows
    n_parameters: int  # free weights of the sums that carry training rows

    @cached_property
    def circuit(self) -> Circuit:
        """Deterministic and structured-decomposable, over the states of all variables."""
        builder = UnitBuilder(self.learner.shape, self.learner.root, self.n_splits)
        return Circuit(builder.build(self.weights_of)[self.learner.root])

    def weights_of(self, node: SumNode) -> FloatArray:
        """Weights of the edges of a sum, from the rows they carried after these splits."""
        return self.learner.fractions(node.at(self.n_splits)[1])


class StrudelLearner:
    """Learner that grows a circuit by splitting edges, from complete training rows."""

    # `pseudo_count` is distributed over the edges of each sum, and over the cells of pairwise
    # tables

    def __init__(
        self,
        codes: IntArray,
        layout: StateLayout,
        validation: IntArray,
        *,
        weight: FloatArray | None = None,
        validation_weight: FloatArray | None = None,
        pseudo_count: float = 1.0,
    ) -> None:
        require("one_hot", "the layout of the states of discrete variables", layout=layout)
        weight = np.ones(len(codes)) if weight is None else weight
        held_out = np.ones(len(validation)) if validation_weight is None else validation_weight
        self.layout = layout
        self.pseudo_count = pseudo_count
        self._n_training = len(codes)
        self.codes = np.concatenate([codes, validation])
        # Column 0: weight as a training row, column 1: as a validation row.
        self.weights = np.zeros((len(self.codes), 2))
        self.weights[: len(codes), 0] = weight
        self.weights[len(codes) :, 1] = held_out
        self._indicators = layout.one_hot(codes).astype(np.float32)
        self._all_weights = np.concatenate([weight, held_out])
        self._is_weighted = bool((self._all_weights != 1).any())
        tree = chow_liu_tree(codes, layout, sample_weight=weight, pseudo_count=pseudo_count)
        self.shape = Shape(root_at_center(tree.parents), layout.cardinalities)
        compiled = compile_tree(self.shape, self.codes)
        self.root = compiled[-1]
        self.n_splits = 0
        # Contribution of each sum to both log likelihoods and to the number of parameters.
        self._scores: dict[SumNode, FloatArray] = {}
        self._totals = np.zeros(3)
        # Edges have no order: of equal flows the one that came first is split first
        self._ties = count()
        self._heap: list[tuple[float, int, Edge]] = []
        for node in compiled:
            self._rescore(node)
            self._offer(node.edges)

    def steps(self) -> Iterator[StrudelStep]:
        """Yield the Chow-Liu tree, then the circuit after each split, until no edge is left."""
        yield self._step()
        while True:
            choice = self._choose()
            if choice is None:
                return
            self.n_splits += 1
            self._split(*choice)
            yield self._step()

    def _step(self) -> StrudelStep:
        with np.errstate(invalid="ignore"):
            training, validation = self._totals[:2] / self.weights.sum(axis=0)
        n_parameters = round(self._totals[2])
        return StrudelStep(self, self.n_splits, float(training), float(validation), n_parameters)

    def _choose(self) -> tuple[Edge, int] | None:
        """Edge with the largest flow that can be split, and the variable to split on."""
        while self._heap:
            negative_flow, _, edge = heapq.heappop(self._heap)
            flow = self._flow(edge)
            if edge not in edge.owner.edges or flow <= 0:
                continue
            if flow < -negative_flow:
                # Rows have moved to copies since the edge was put here.
                self._offer([edge])
                continue
            variable = self._most_informative(edge)
            if variable is not None:
                return edge, variable
        return None

    def _flow(self, edge: Edge) -> float:
        """Weight of the training rows of an edge."""
        return float(self._counts(edge)[0])

    def _counts(self, edge: Edge) -> FloatArray:
        """Weight of the training and of the validation rows of an edge, shape (2,)."""
        if edge.counts is None:
            # Rows are in order, training rows first
            n_training = np.searchsorted(edge.rows, self._n_training)
            both = n_training, len(edge.rows) - n_training
            if self._is_weighted:
                own = self._all_weights.take(edge.rows)
                both = own[:n_training].sum(), own[n_training:].sum()
            edge.counts = np.array(both, dtype=float)
        return edge.counts

    def _offer(self, edges: list[Edge]) -> None:
        """Put edges that may be split one day into the heap."""
        for edge in edges:
            flow = self._flow(edge) if edge.child.factors else 0.0
            if flow > 0:
                heapq.heappush(self._heap, (-flow, next(self._ties), edge))

    def _most_informative(self, edge: Edge) -> int | None:
        """Variable with most mutual information to the scope, on the rows of the edge."""
        scope = self.shape.scopes[edge.child.variable]
        training = edge.rows[: np.searchsorted(edge.rows, self._n_training)]
        sizes = self.layout.cardinalities[scope]
        states = np.concatenate(
            [
                np.arange(start, start + size)
                for start, size in zip(self.layout.offsets[scope], sizes)
            ]
        )
        weights = self.weights[training, 0]
        indicators = self._indicators[np.ix_(training, states)]
        weighted = (
            indicators * weights[:, None].astype(np.float32) if self._is_weighted else indicators
        )
        pairs = (weighted.T @ indicators).astype(np.float64)
        starts = np.cumsum(sizes) - sizes
        # A variable with one state in all rows of the edge has no information. Both sums are of the
        # same products: in double precision, the weights have another sum
        masses = np.diag(pairs)
        whole = np.add.reduceat(masses, starts)
        undecided = np.maximum.reduceat(masses, starts) < 0.999999 * whole
        if not undecided.any():
            return None
        gain = np.where(undecided, _information_sums(pairs, starts, self.pseudo_count, sizes), -1.0)
        return int(scope[gain.argmax()])

    def _split(self, edge: Edge, variable: int) -> None:
        """Replace an edge by one per state of the variable."""
        owner, position = edge.owner, edge.owner.edges.index(edge)
        states = self.codes[edge.rows, variable]
        touched: list[SumNode] = [owner]
        new_edges: list[Edge] = []
        replacements: list[Edge] = []
        moving = np.zeros(len(self.codes), dtype=bool)
        for state in range(self.layout.cardinalities[variable]):
            rows = edge.rows[states == state]
            moving[rows] = True
            conditioning = Conditioning(self.shape, variable, state, moving)
            child = conditioning.product(edge.child)
            moving[rows] = False
            if child is not None:
                replacements.append(Edge(owner, child, rows))
                touched += conditioning.touched
                new_edges += conditioning.new_edges
        owner.edges[position : position + 1] = replacements
        for node in dict.fromkeys(touched):
            self._rescore(node)
        self._offer(replacements + new_edges)

    def _rescore(self, node: SumNode) -> None:
        """Update the weights of a sum and its contributions to size and log likelihoods."""
        counts = np.array([self._counts(edge) for edge in node.edges])
        log_likelihood = counts.T @ np.log(self.fractions(counts[:, 0]))
        # Nothing may lead to a sum any more that has lost all its rows to copies.
        n_free = len(counts) - 1 if counts[:, 0].any() else 0
        score = np.append(log_likelihood, n_free)
        # Only sums that a split touched change: no pass over the circuit is needed
        self._totals += score - self._scores.get(node, 0.0)
        self._scores[node] = score
        node.record(self.n_splits, counts[:, 0])

    def fractions(self, counts: FloatArray) -> FloatArray:
        """Weights of the edges of a sum from the weights of their rows, both (n_edges,)."""
        smoothed = counts + self.pseudo_count / len(counts)
        return smoothed / smoothed.sum()


def _information_sums(
    pairs: FloatArray, starts: IntArray, pseudo_count: float, sizes: IntArray
) -> FloatArray:
    """Sum over all other variables of the mutual information with each, from pair counts."""
    uniform = 1.0 / np.repeat(sizes, sizes)
    total = pairs[: sizes[0], : sizes[0]].sum() + pseudo_count
    joint = (pairs + pseudo_count * np.outer(uniform, uniform)) / total
    nodes = (np.diag(pairs) + pseudo_count * uniform) / total
    negentropy = np.add.reduceat(xlogy(nodes, nodes), starts)
    joint_negentropy = np.add.reduceat(np.add.reduceat(xlogy(joint, joint), starts, 0), starts, 1)
    # So that a variable has no information about itself
    np.fill_diagonal(joint_negentropy, 2 * negentropy)
    information = joint_negentropy - negentropy[:, None] - negentropy
    return information.sum(axis=1)


class SharedStructure:
    """A deterministic circuit as a matrix of flows, at the sums with a choice that rows reach."""

    def __init__(self, step: StrudelStep) -> None:
        learner = step.learner
        self.step = step
        self.sums: list[SumNode] = []
        self.rest = np.zeros(len(learner.codes))  # log probability of the choices at other sums
        rows: list[IntArray] = []
        fractions: list[FloatArray] = []
        for node, taken in route(learner.root, step.n_splits, learner.codes):
            counts = node.at(step.n_splits)[1]
            if len(counts) == 1:
                continue
            weights = step.weights_of(node)
            if counts.any():
                self.sums.append(node)
                fractions.append(weights)
                rows += taken
            else:
                for part, weight in zip(taken, weights):
                    self.rest[part] += np.log(weight)
        lengths = np.array([len(part) for part in fractions], dtype=np.int64)
        self.starts = np.cumsum(lengths) - lengths  # (n_sums,), first edge of each
        self.sum_of_edge = np.repeat(np.arange(len(lengths)), lengths)  # (n_edges,)
        self.single = np.concatenate([np.ones(0), *fractions])  # weights of the single circuit
        # (n_rows, n_edges), 1 where a row uses an edge; training rows, then validation rows
        self.flows = _indicator_matrix(rows, len(learner.codes))


def _indicator_matrix(rows: list[IntArray], n_rows: int) -> sparse.csr_array:
    """Matrix (n_rows, n_columns) with ones at the given rows of each column."""
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
    ones = np.ones(len(indices))
    return sparse.csc_array((ones, indices, indptr), shape=(n_rows, len(rows))).tocsr()


@dataclass(frozen=True)
class SharedMixture:
    """A mixture after a step."""

    structure: SharedStructure  # shared by all components
    fractions: FloatArray  # (n_components,), mixture weights
    weights: FloatArray  # (n_edges, n_components), of the edges in each component
    log_density: float  # mean over the training rows
    validation_log_density: float  # mean over the validation rows

    @cached_property
    def circuit(self) -> Circuit:
        """One sum over the components; input units are their own."""
        structure = self.structure
        step = structure.step
        learner = step.learner
        builder = UnitBuilder(learner.shape, learner.root, step.n_splits)
        position = {node: i for i, node in enumerate(structure.sums)}
        # Sums that no training row reaches have the single circuit's weights in all components.
        reached = nodes_above(learner.root, step.n_splits, position)
        single = builder.build(step.weights_of)
        shared = {node: unit for node, unit in single.items() if node not in reached}
        components = []
        for weights in self.weights.T:
            pieces = np.split(weights, structure.starts[1:])

            def weights_of(node: SumNode, pieces: list[FloatArray] = pieces) -> FloatArray:
                own = position.get(node)
                return step.weights_of(node) if own is None else pieces[own]

            components.append(builder.build(weights_of, shared)[learner.root])
        return Circuit(Sum(components, weights=self.fractions))


def learn_shared_mixture(
    structure: SharedStructure, responsibilities: FloatArray, shrinkage: float
) -> Iterator[SharedMixture]:
    """Learn the weights of all components by EM, from responsibilities (n_rows, n_components)."""
    training, validation = structure.step.learner.weights.T
    n_components = responsibilities.shape[1]
    while True:
        weighted = responsibilities * training[:, None]
        # One row in all, spread evenly, keeps every component alive
        fractions = (weighted.sum(axis=0) + 1 / n_components) / (training.sum() + 1)
        weights = _shrunken(structure, structure.flows.T @ weighted, shrinkage)
        log_joint = structure.flows @ np.log(weights) + structure.rest[:, None] + np.log(fractions)
        log_density = logsumexp(log_joint, axis=1)
        yield SharedMixture(
            structure,
            fractions,
            weights,
            _mean(log_density, training),
            _mean(log_density, validation),
        )
        responsibilities = np.exp(log_joint - log_density[:, None])


def _shrunken(structure: SharedStructure, counts: FloatArray, shrinkage: float) -> FloatArray:
    """Weights from counts, shrunk towards those of the single circuit."""
    counts = counts + shrinkage * structure.single[:, None]
    totals = np.add.reduceat(counts, structure.starts, axis=0)
    return counts / totals[structure.sum_of_edge]


def _mean(values: FloatArray, weight: FloatArray) -> float:
    """Weighted mean; NaN where there is no row."""
    total = weight.sum()
    return float(values @ weight / total) if total > 0 else float("nan")


@dataclass(frozen=True)
class GrowthLimits:
    """Limits of the growth."""

    n_splits: int
    patience: int  # splits without improvement of the validation score
    n_parameters: int  # free ones; the last circuit may exceed it


def grow(learner: StrudelLearner, limits: GrowthLimits) -> Iterator[StrudelStep]:
    """Split until a limit is reached; yield the circuit before the first and after each split."""
    best, best_splits = -np.inf, learner.n_splits
    for step in learner.steps():
        yield step
        if step.validation_log_density > best:
            best, best_splits = step.validation_log_density, step.n_splits
        if (
            step.n_splits >= limits.n_splits
            or step.n_splits - best_splits >= limits.patience
            or step.n_parameters > limits.n_parameters
        ):
            return


def learn_mixture(
    step: StrudelStep, n_components: int, rng: np.random.Generator, *, shrinkage: float
) -> Iterator[SharedMixture]:
    """Learn a mixture with a circuit's structure until the validation score stops improving."""
    # The components start as those of a mixture of Chow-Liu trees; `shrinkage` is the weight of the
    # single circuit as a prior of their sums
    learner = step.learner
    # Rows that are held out must not shape the components they judge
    training = learner.weights[:, 0] > 0
    codes = learner.codes[training]
    trees = next(
        learn_tree_mixture(
            codes, learner.layout, n_components, rng, sample_weight=learner.weights[training, 0]
        )
    )
    responsibilities = np.zeros((len(learner.codes), n_components))
    responsibilities[training] = trees.responsibilities(codes)
    best, n_stalled = -np.inf, 0
    steps = learn_shared_mixture(SharedStructure(step), responsibilities, shrinkage)
    for _, mixture in zip(range(_MAX_MIXTURE_STEPS), steps):
        yield mixture
        improved = mixture.validation_log_density > best
        best = max(best, mixture.validation_log_density)
        n_stalled = 0 if improved else n_stalled + 1
        if n_stalled >= _MIXTURE_PATIENCE:
            return


class Shape:
    """The tree that all nodes follow; `parents` (n_variables,) are -1 at the root."""

    def __init__(self, parents: IntArray, cardinalities: IntArray) -> None:
        self.parents = parents
        self.cardinalities = cardinalities
        self.order = [int(v) for v in top_down_order(parents[None])[0]]  # parents first
        self.children = children_of(parents)
        self._inside = np.eye(len(parents), dtype=bool)
        for variable in reversed(self.order[1:]):
            self._inside[parents[variable]] |= self._inside[variable]
        self.scopes = [np.flatnonzero(row) for row in self._inside]

    def contains(self, variable: int, other: int) -> bool:
        """Tell whether the scope of a variable contains another one."""
        return bool(self._inside[variable, other])


@dataclass(frozen=True, eq=False)
class ProductNode:
    """Fixes the state of one variable, and of those it was split on; a sum per child."""

    variable: int  # top variable of the scope
    literals: tuple[tuple[int, int], ...]  # states of possible rows, the product's own first
    factors: tuple[SumNode, ...]  # in the order of the tree's children

    @property
    def state(self) -> int:
        """State of the product's own variable."""
        return self.literals[0][1]


@dataclass(eq=False)
class Edge:
    """An edge from sum `owner` to product `child`, with the ascending `rows` that it carries."""

    owner: SumNode
    child: ProductNode
    rows: IntArray
    counts: FloatArray | None = None  # weights of these rows, once known


class SumNode:
    """A choice among products for the top `variable` of its scope."""

    def __init__(self, variable: int) -> None:
        self.variable = variable
        self.edges: list[Edge] = []  # present ones
        # Number of splits done, products and row counts after each change, to build any circuit
        self.versions: list[tuple[int, tuple[ProductNode, ...], FloatArray]] = []

    def record(self, version: int, counts: FloatArray) -> None:
        """Note the present edges and their weights under a number of splits."""
        # A split changes some sums only: the others keep their last version
        entry = (version, tuple(edge.child for edge in self.edges), counts)
        if self.versions and self.versions[-1][0] == version:
            self.versions[-1] = entry
        else:
            self.versions.append(entry)

    def at(self, version: int) -> tuple[tuple[ProductNode, ...], FloatArray]:
        """Products and counts after a number of splits."""
        for number, products, counts in reversed(self.versions):
            if number <= version:
                return products, counts
        raise AssertionError("a node is only reached in versions that know it")


def compile_tree(shape: Shape, codes: IntArray) -> list[SumNode]:
    """Compile the tree for codes (n, n_variables): a sum per state of the parent."""
    sums: list[SumNode] = []
    below: dict[int, list[SumNode]] = {}
    # Leaves first: sums of children stand before the products that name them
    for variable in reversed(shape.order):
        factors = [below.pop(child) for child in shape.children[variable]]
        products = [
            ProductNode(variable, ((variable, state),), tuple(states[state] for states in factors))
            for state in range(shape.cardinalities[variable])
        ]
        parent = shape.parents[variable]
        n_above = 1 if parent < 0 else shape.cardinalities[parent]
        above = np.zeros(len(codes), dtype=np.int64) if parent < 0 else codes[:, parent]
        below[variable] = [SumNode(variable) for _ in range(n_above)]
        for state, node in enumerate(below[variable]):
            reached = np.flatnonzero(above == state)
            own = codes[reached, variable]
            node.edges = [Edge(node, p, reached[own == p.state]) for p in products]
        sums += below[variable]
    return sums


Node = SumNode | ProductNode


class Conditioning:
    """Copies what lies below one edge, restricted to one state of a variable."""

    # Copied are all nodes whose scope has the variable and, where rows move, the sums directly
    # below the product; the rest is shared. Sums and products are copied once each, however many
    # paths lead to them.

    def __init__(self, shape: Shape, variable: int, state: int, moving: BoolArray) -> None:
        self.shape = shape
        self.variable = variable
        self.state = state
        self.moving = moving  # (n_rows,), rows of the edge with that state: they move to the copies
        self.touched: list[SumNode] = []  # sums whose rows have changed: originals and copies
        self.new_edges: list[Edge] = []  # of the copies
        self._sums: dict[SumNode, SumNode | None] = {}
        self._products: dict[ProductNode, ProductNode | None] = {}

    def product(self, node: ProductNode, *, is_top: bool = True) -> ProductNode | None:
        """Copy a product; None where the state is impossible below it."""
        # Units without the variable are the same in every state of it
        if not self.shape.contains(node.variable, self.variable):
            return node
        if node.variable == self.variable:
            return node if node.state == self.state else None
        if node not in self._products:
            copy_all = is_top and bool(self.moving.any())
            factors = [self._sum(factor, copy_all=copy_all) for factor in node.factors]
            kept = tuple(factor for factor in factors if factor is not None)
            complete = len(kept) == len(factors)
            literals = (*node.literals, (self.variable, self.state))
            copy = ProductNode(node.variable, literals, kept) if complete else None
            self._products[node] = copy
        return self._products[node]

    def _sum(self, node: SumNode, *, copy_all: bool) -> SumNode | None:
        """Copy a sum and move its rows; keep it if nothing changes."""
        if not copy_all and not self.shape.contains(node.variable, self.variable):
            return node
        if node not in self._sums:
            children = [self.product(edge.child, is_top=False) for edge in node.edges]
            self._sums[node] = self._copy(node, children) if any(children) else None
        return self._sums[node]

    def _copy(self, node: SumNode, children: list[ProductNode | None]) -> SumNode:
        copy = SumNode(node.variable)
        for edge, child in zip(node.edges, children):
            if child is None:
                continue
            moves = self.moving[edge.rows]
            copy.edges.append(Edge(copy, child, edge.rows[moves]))
            edge.rows, edge.counts = edge.rows[~moves], None
        self.touched += [node, copy]
        self.new_edges += copy.edges
        return copy


class UnitBuilder:
    """Writes the nodes below a root, as they were after `version` splits, as units of a circuit."""

    def __init__(self, shape: Shape, root: SumNode, version: int) -> None:
        self._shape = shape
        self._version = version
        self._nodes = bottom_up(root, version)
        self._indicators = [
            [Indicator(v, state, int(size)) for state in range(size)]
            for v, size in enumerate(shape.cardinalities)
        ]

    def build(
        self, weights_of: Callable[[SumNode], FloatArray], shared: dict[Node, Unit] | None = None
    ) -> dict[Node, Unit]:
        """Write all nodes."""
        built = {} if shared is None else dict(shared)
        for node in self._nodes:
            if node in built:
                continue
            if isinstance(node, ProductNode):
                literal = self._indicators[node.variable][node.state]
                factors = [built[factor] for factor in node.factors]
                built[node] = Product([literal, *factors]) if factors else literal
            else:
                built[node] = self._sum(node, weights_of, built)
        return built

    def _sum(
        self, node: SumNode, weights_of: Callable[[SumNode], FloatArray], built: dict[Node, Unit]
    ) -> Unit:
        products, _ = node.at(self._version)
        # A sum with one child has weight one, and is replaced by the product
        if len(products) == 1:
            return built[products[0]]
        weights = weights_of(node)
        # Without children a sum over states is a categorical unit
        if self._shape.children[node.variable]:
            return Sum([built[product] for product in products], weights=weights)
        masses = np.zeros(self._shape.cardinalities[node.variable])
        masses[[product.state for product in products]] = weights
        return Categorical(node.variable, masses)


def route(root: SumNode, version: int, codes: IntArray) -> Iterator[tuple[SumNode, list[IntArray]]]:
    """Send complete rows (n, n_variables) through a version of the circuit."""
    arriving: dict[SumNode, list[IntArray]] = {root: [np.arange(len(codes))]}
    for node in reversed(bottom_up(root, version)):
        if isinstance(node, ProductNode):
            continue
        # A row reaches a sum at most once, so the parts are disjoint.
        rows = np.sort(np.concatenate(arriving.pop(node)))
        products, _ = node.at(version)
        taken = []
        for product in products:
            fits = np.ones(len(rows), dtype=bool)
            for variable, state in product.literals:
                fits &= codes[rows, variable] == state
            taken.append(rows[fits])
            for factor in product.factors:
                arriving.setdefault(factor, []).append(taken[-1])
        yield node, taken


def bottom_up(root: SumNode, version: int) -> list[Node]:
    """List the nodes of a version, those below a node before it."""
    # The last child first: draws are keyed by the order of units
    return depth_first(root, lambda node: _below(node, version)[::-1])


def _below(node: Node, version: int) -> tuple[Node, ...]:
    """Children of a node in a version."""
    return node.at(version)[0] if isinstance(node, SumNode) else node.factors


def nodes_above(root: SumNode, version: int, sums: Container[Node]) -> set[Node]:
    """Find the nodes from which some of the given sums can be reached."""
    above: set[Node] = set()
    for node in bottom_up(root, version):
        if node in sums or not above.isdisjoint(_below(node, version)):
            above.add(node)
    return above
