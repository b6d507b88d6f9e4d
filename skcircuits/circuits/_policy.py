"""Cost policy of circuits and of kernel matrices: sizes of blocks, when faster code paths pay off.

Every constant that affects only time or memory is in this file, with the line of the benchmark that
determined it; constants that guard exactness are defined where they are used.
``benchmarks/evaluate.py`` (a) is a latent tree with 32 states over 69 binary columns; "compiled in"
and "rows/core-s" are lines of its output.
"""

from __future__ import annotations

from typing import NamedTuple

# Rows of one call from which a plan is optimised for it: lowered plans, tables for traces and
# circuits of fewer variables are compiled in about the time that this many rows take without
# them (evaluate.py (a), "compiled in" beside "plain pass in log space").
MANY_ROWS = 512
# Lookup tables save work at edges and are compiled unit by unit: they pay from so many rows on,
# times edges per unit. That is 400 rows in (a), 4,000 in circuits that Strudel grows, (b).
MIN_TABLE_EDGES = 2**13

# Rows of a pass over all units: enough to amortise Python.
BATCH_ROWS = 512
# Values of a batch that stay in cache, and the rows that a step of Python over a lowered plan is
# worth (evaluate.py (a), "log_prob"; density_choice.py skewed, "transform").
MAX_BATCH_VALUES = 2**17
MIN_ROWS_PER_STEP = 3
# Pairs of a row and a draw per batch of a trace: enough to amortise the Python over all layers,
# as many as keep the values of all units in some megabytes (evaluate.py (a), "conditional
# sample"); draws per batch where all are of one row (evaluate.py (a), "sample").
MIN_PAIRS, MAX_PAIRS = 512, 2048
MAX_TRACE_VALUES = 2**22
BATCH_DRAWS = 4096
# Draws of whole rows are worth up to so many places of rows and blocks for each that is needed.
PLACES_PER_DRAW = 2
# Values per unit below which numpy's calls cost more than their computations: one row of
# evaluate.py (a), "one row".
MANY_VALUES = 64
# Edges of a block of sums over shared children that are worth a matrix product.
MIN_BLOCK = 16
# Terms of such sums that are added edge by edge at once, where products may have underflowed.
EDGE_TERMS = 2**20
# Circuits of the bounded variables of boxes that are kept.
MAX_KEPT = 64
# Numbers in the tables of a batch of scored draws.
MAX_SCORED_VALUES = 2**21

# From so many rows on one lookup per variable is faster than one for all units.
MIN_RUN_ROWS = 64
# Bounds of so many boxes repeat, so that a table of cumulative masses of up to so many bytes pays
# (hybrid.py queries).
MANY_POINTS, MAX_MASS_TABLE = 512, 2**26
# The best integer of a unit of one variable is found in a table of so many; of more, it is beside
# the best real number, since densities hardly change from one to the next.
MAX_INTEGERS = 1024
# A factor that the rows of a pattern share takes a Cholesky and an inverse: so many Choleskys.
CHOLESKYS_PER_FACTOR = 3
# Boxes of joint Gaussians that are integrated at once.
BOX_CASES = 256


class TableBudget(NamedTuple):
    """Limits of the tables of units over a few discrete variables."""

    max_codes: tuple[int, ...]  # joint states, unknown included: the first that keeps other bounds
    max_entries: int  # of all tables together
    max_rows: int  # that are evaluated to fill the tables
    min_units: int = 0  # smaller plans stay as they are
    max_remaining: float = 1.0  # fraction of the units of the plan that may be left


# One lookup per table and row (evaluate.py (a), "with tables" beside "without").
LOOKUP_TABLES = TableBudget((8192, 2048, 512, 128), 2**22, 4096)
# Each table also divides flows and completes rows, which takes a loop over its variables and
# pairs of codes and completions (evaluate.py (a), "expectation", "mpe", "conditional sample").
TRACE_TABLES = TableBudget((256,), 2**20, 2048, min_units=512, max_remaining=0.5)

# Kernel matrices. "N times" is the processor time with a sixteenth of a constant, "N times above"
# that with sixteen times as much, on one core with `expected_gram.balanced_circuit` of 16 and 60
# binary columns and with normal mixtures of 10 to 100 columns, 30 % of the cells missing. Constants
# without a number changed it by less than a tenth: they bound the memory.

# Values of all units stay near the cache: for a block of rows and all points, and for one row and
# a block of points. Tables are read and written one by one, so larger blocks stay fast
# (1.3 times).
ROW_BYTES, POINT_BYTES, TABLE_BYTES = 2**23, 2**24, 2**26
# Tables of distinct points pay when they leave at most this fraction of the values (30 times
# without tables).
MAX_FRACTION = 0.5

# Up to this many outputs, multiplying the values of every component of a mixture takes less time
# than adding them up first (1.2 to 1.5 times the time without).
MAX_OUTPUTS = 8
# Up to this many states of a column, their kernels at the points are rows of a matrix, which is
# multiplied with indicators; of more, these are nearly all zero.
MAX_STATES = 64

# No block takes more rows than this, so that there is work for several processes (1.5 to 2.3 times,
# 2.9 to 4.9 times); up to four times as many rows against few points, of which calls feel it
# (`expected_models.py cost`: 1.07 times).
PAIR_ROWS, POINT_ROWS, POINT_VALUES = 256, 1024, 1 << 20
# Joint units factorise each pattern of a row with all of a column block: wide blocks share that
# (1.3 times with square blocks of 10 columns).
JOINT_COLUMNS = 1024

# Numbers in the largest array of a block of pairs: they stay in the cache (1.3 to 1.8 times, 1.4 to
# 3.8 times above).
CACHE_NUMBERS = 3 * 2**15
# The same for joint units: conditioning them on the rows of a block costs more than memory
# (1.6 times).
JOINT_NUMBERS = 2**22
# Up to this many states a table is smaller than the values of most pairs of units (3 to 4 times,
# 2 times above).
TABLE_STATES = 16

# Temporaries per block of means of a joint Gaussian (1.3 times above with 20 columns).
GAUSSIAN_BYTES = 1 << 20
# A matrix product of fewer rows spends its time on laying out the points, so that blocks of these
# rows pay even where their values, up to so many bytes, leave the cache: `svr_missing.py speed`.
PRODUCT_ROWS, PRODUCT_BYTES = 128, 1 << 25
# Gathered points of a block of patterns stay in the cache; forms of many patterns at once (1.2
# times with 100 columns; 1.5 times with 20).
PATTERN_BYTES, FORM_BYTES = 1 << 20, 1 << 22
# Products of pairs of columns pay up to so many missing cells per component, which share them, and
# where so many patterns of missing cells share a product (1.07 times with one pattern).
MISSING_PER_COMPONENT, PATTERNS_PER_PAIR = 3, 4
# From so many covariances on, exponents are one product per row of coefficients and monomials (.6
# of the time with 30; 1.2 with three), if it has few columns: adding a matrix takes the time of
# these (`expected_models.py components`).
MONOMIAL_COVARIANCES, COLUMNS_PER_SUM = 8, 12
# Fraction of pairs of rows and components up to which their choice pays, as it copies their forms.
MAX_CHOSEN = 0.6
# Values of piecewise polynomials held at once.
PIECE_VALUES = 2**20
# Memory of the rows that a closed form takes at once: new memory costs more than patterns that are
# factorised for several blocks (`expected_models.py components`, ridge: 1.5 times above).
CLOSED_FORM_BYTES = 2**27
# Terms of the sums that give the values of measuring a row, above which draws take less than a
# tenth of the time (`expected_models.py measuring`).
MEASURING_TERMS = 3 * 2**21
# Terms of the sums that give the probabilities of a row, for each draw that `tol` asks for, above
# which draws take less than a quarter of the time (`expected_models.py classes`).
TERMS_PER_DRAW = 1024
