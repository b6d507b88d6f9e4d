import os
import platform
import subprocess
import sys
import threading
import time

import joblib
import numpy as np
import pytest
import sklearn
from threadpoolctl import threadpool_info, threadpool_limits

from skcircuits.parallel import (
    row_slices,
    shares_memory,
    single_threaded_blas,
    thread_map,
    working_memory_bytes,
)


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 5, -1])
def test_results_keep_their_order(n_jobs):
    def slow_first(number):
        time.sleep(0.01 * (number == 0))
        return number**2

    items = [(number,) for number in range(20)]
    assert thread_map(slow_first, items, n_jobs) == [number**2 for number in range(20)]
    assert thread_map(slow_first, [], n_jobs) == []


def test_threads_share_the_work():
    names = set()
    both = threading.Barrier(2)

    def meet(number):
        both.wait(timeout=60)
        names.add(threading.current_thread().name)

    thread_map(meet, [(number,) for number in range(6)], 2)
    assert len(names) == 2


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_errors_reach_the_caller_and_end_the_work(n_jobs):
    done = []

    def fail(number):
        done.append(number)
        time.sleep(0.001)
        raise IndexError(f"number {number}")

    with pytest.raises(IndexError, match="number"):
        thread_map(fail, [(number,) for number in range(100)], n_jobs)
    assert len(done) <= n_jobs
    assert thread_map(pow, [(2, 2)], n_jobs) == [4]


def test_threads_have_the_settings_of_the_caller():
    both = threading.Barrier(2)

    def settings(number):
        both.wait(timeout=60)
        return working_memory_bytes(), np.geterr()["over"]

    with sklearn.config_context(working_memory=3), np.errstate(over="ignore"):
        assert thread_map(settings, [(n,) for n in range(6)], 2) == [(3 * 2**20, "ignore")] * 6
    assert np.geterr()["over"] != "ignore"


def test_processes_share_no_memory():
    assert shares_memory()
    with joblib.parallel_config("threading"):
        assert shares_memory()
    with joblib.parallel_config("loky", n_jobs=2):
        assert not shares_memory()


def test_calls_may_be_nested():
    def inner(base):
        return sum(thread_map(pow, [(base, k) for k in range(8)], 8))

    expected = [sum(base**k for k in range(8)) for base in range(30)]
    assert thread_map(inner, [(base,) for base in range(30)], 8) == expected


def test_number_of_threads_is_joblibs():
    with pytest.raises(ValueError, match="n_jobs"):
        thread_map(pow, [(2, 3)], 0)
    both = threading.Barrier(2)
    with joblib.parallel_config("threading", n_jobs=2):
        assert thread_map(lambda: both.wait(timeout=60) >= 0, [(), ()]) == [True, True]


def test_overlapping_limits_of_blas_end_with_the_last():
    def n_threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    first, second = single_threaded_blas(), single_threaded_blas()
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, user_api="blas"):
        before = n_threads()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert n_threads() == {1}
        second.__exit__(None, None, None)
        assert n_threads() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    assert thread_map(pow, [(2, k) for k in range(4)], 2) == [1, 2, 4, 8]
    child = os.fork()
    if child == 0:
        answer = thread_map(pow, [(2, k) for k in range(4)], 2)
        os._exit(answer != [1, 2, 4, 8])
    assert os.waitpid(child, 0)[1] == 0


def test_slices_cover_the_rows():
    assert row_slices(5, 2) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert row_slices(0, 2) == []


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="thresholds of glibc")
def test_memory_of_freed_arrays_is_used_again():
    # In a fresh process: arrays that were freed before change the thresholds, too
    program = """
import resource
import numpy as np
import skcircuits.parallel
np.ones(2**20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(2**20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    # One fault per page otherwise
    assert int(run.stdout) < 100, run.stderr
