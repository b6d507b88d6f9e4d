"""Cost policy of kernel matrices: sizes of blocks, and when faster code paths pay off.

Every constant that affects only time or memory is in this file; no result depends on one. Constants
that guard exactness are defined where they are used.
"""

# Values of all units stay near the cache: for a block of rows and all points, and for one row and
# a block of points. Tables are read and written one by one, so larger blocks stay fast.
ROW_BYTES, POINT_BYTES, TABLE_BYTES = 2**23, 2**24, 2**26
# Tables of distinct points pay when they leave at most this fraction of the values.
MAX_FRACTION = 0.5

# Up to this many outputs, multiplying the values of every component of a mixture takes less time
# than adding them up first.
MAX_OUTPUTS = 8

# No block takes more rows than this, so that there is work for several processes.
PAIR_ROWS, POINT_ROWS, COMPLETE_ROWS = 256, 1024, 2048
# Joint units factorise each pattern of a row with all of a column block: wide blocks share that.
JOINT_COLUMNS = 1024

# Numbers in the largest array of a block of pairs: they stay in the cache.
CACHE_NUMBERS = 3 * 2**15
# The same for joint units: conditioning them on the rows of a block costs more than memory.
JOINT_NUMBERS = 2**22
# Numbers in the values of a region that are computed before all blocks, and gathered by them.
SHARED_NUMBERS = 2**19
# Pairs of circuits per pair of distinct ones that make the detour pay.
SMALLEST_GAIN = 4
# Up to this many states a table is smaller than the values of most pairs of units.
TABLE_STATES = 16

# Temporaries per block of means of a joint Gaussian, and of pairs of two.
GAUSSIAN_BYTES, GAUSSIAN_PAIR_BYTES = 1 << 20, 1 << 22
# A matrix product of fewer rows spends its time on laying out the points, so that blocks of these
# rows pay even where their values, up to so many bytes, leave the cache: `svr_missing.py speed`.
PRODUCT_ROWS, PRODUCT_BYTES = 128, 1 << 25
# Gathered points of a block of patterns stay in the cache; forms of many patterns at once, which
# products need.
PATTERN_BYTES, FORM_BYTES = 1 << 22, 1 << 22
# A triangular product per pattern takes, for each missing column (or observed one, if these are
# fewer), the time of so many products of coordinates in one matrix product over all patterns: 25 to
# 90 by the number of columns and the load (measured with 16 to 100 columns).
PRODUCTS_PER_COLUMN = 45
# Adding a quadratic form to a row takes the time of so many columns of a matrix product:
# `svr_missing.py speed`, 10 columns.
COLUMNS_PER_FORM = 60
# Products over gathered columns take so many times those over all columns.
GATHERED_COST = 2.0
# Triangular products skip the upper triangle in bands of so many rows.
BAND_ROWS = 8
# Values of piecewise polynomials held at once.
PIECE_VALUES = 2**20
