"""A driver in a process of its own, for a test that kills it: run directory and log directory as arguments."""

import sys
from pathlib import Path

from ray_cases import train
from small_teachers import MeanTeachers

from pate.execution import OnRay

if __name__ == "__main__":
    run, log = sys.argv[1:]
    with OnRay(workers=2) as executor:
        train(Path(run), MeanTeachers(pause=0.4, trained_log=log, chunk=2), executor=executor)
