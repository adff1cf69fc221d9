"""What a Ray job runs: ``pate run``, and then its results into the job's log where the submitter asked for that.

``python -m pate.commands.in_job [--log-results] -- RECIPE OPTIONS…``. The exit code is that of ``pate run``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pate.experiments.submitting import FINISHED, packed


def main(words: list[str]) -> int:
    options = words[words.index("--") + 1 :]
    # A process of its own, so that whatever happens to it, its exit code is what is reported.
    done = subprocess.run([sys.executable, "-m", "pate.cli", "run", *options, "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return done.returncode
    folder = Path(json.loads(done.stdout)["run"])
    print(f"{FINISHED}{folder.absolute()}", flush=True)
    if "--log-results" in words[: words.index("--")]:
        for line in packed(folder):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
