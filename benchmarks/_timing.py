"""Processor times, which depend little on other processes."""

import time


def fastest(function, n_rounds=3, clock=time.process_time):
    """Least seconds of a few calls, and what the last one returns."""
    seconds = []
    for _ in range(n_rounds):
        start = clock()
        result = function()
        seconds.append(clock() - start)
    return min(seconds), result


def warm_seconds(function, n_rounds=3):
    """Least processor seconds of a few calls, after one that is not timed."""
    function()
    return fastest(function, n_rounds)[0]
