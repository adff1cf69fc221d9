"""One thread for each process: two threads in one process never helped on a small CPU, and sums in another order differ."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pate.extras import require


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS, OpenMP and torch on one thread inside the block; as before after it.

    Only libraries that are loaded at the start of the block are held; code that imports one inside enters it again.
    """
    torch = sys.modules.get("torch")
    with require("threadpoolctl", "train").threadpool_limits(limits=1):
        if torch is None:
            yield
            return
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
