"""Sum-product networks learned by splitting rows and columns."""
