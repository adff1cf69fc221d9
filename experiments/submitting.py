"""A run as a Ray job: what is sent to the cluster, and how its results come back.

What is sent: the recipe, this package, and the user's own modules that were named. Never data. What comes back travels either
through storage that both sides see, or in the job's own log. Everybody who reaches the dashboard can read that log, so only
what may be published goes into it, unless the data were public to begin with.
"""

from __future__ import annotations

import base64
import hashlib
import io
import shlex
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pate
from pate.errors import ClusterError, ParameterError, RecipeError
from pate.experiments.pipeline.folder import LATER_RELEASE, LEDGER_ROWS, RECIPE, RELEASE, STUDENT
from pate.experiments.recipes.checking import mode_of
from pate.experiments.recipes.model import Recipe
from pate.experiments.recipes.reading import recipe_text
from pate.experiments.reports.page import PUBLIC
from pate.experiments.reports.writing import PUBLIC_PLOTS, PUBLIC_RESULT
from pate.experiments.results import Result

BEGIN, END = "pate-results-begin", "pate-results-end"
FINISHED = "pate: finished, in "
_LINE = 4000  # characters of base64 in a line of the log
_MOST = 64 << 20  # bytes that travel in a log
_MOST_UNPACKED = 1 << 30
_PUBLIC = (PUBLIC_RESULT, PUBLIC, RELEASE, STUDENT, RECIPE, LEDGER_ROWS)
_STAGED = "recipe.toml"


def check_submittable(recipe: Recipe, storage: str | None) -> None:
    """Raise if the run could not keep its promises away from here."""
    if mode_of(recipe) == "simulation":
        return
    if recipe.privacy.ledger is None:
        raise RecipeError(
            "privacy.ledger: a release is charged to one ledger, wherever it runs. Name one that the cluster reaches: a file "
            "on shared storage that survives the cluster, or a PostgreSQL URL."
        )
    private = recipe.data.parameters.get("private")
    if isinstance(private, str) and not Path(private).is_absolute():
        raise RecipeError(f"data.private: data are not sent, so it must be the whole path on the nodes, got {private!r}.")
    if storage is None:
        raise RecipeError(
            "A release needs --storage: its answers are paid for, and a job's own directory goes with the cluster. Name a "
            "directory that all nodes see."
        )


def stage(recipe: Recipe, folder: Path, uploads: Sequence[Path], installed: bool) -> None:
    """Put into ``folder`` what the job needs."""
    (folder / _STAGED).write_text(recipe_text(recipe), "utf-8")
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    if not installed:  # the cluster runs this very code; links are followed
        shutil.copytree(Path(pate.__file__).parent, folder / "pate", ignore=ignored)
    private = recipe.data.parameters.get("private")
    for path in uploads:
        whole = path.resolve()
        place = folder / whole.name
        if not whole.exists():
            raise ParameterError(f"--upload {path}: there is no such file or directory.")
        if mode_of(recipe) == "release" and isinstance(private, str) and Path(private).resolve().is_relative_to(whole):
            raise ParameterError(f"--upload {path}: it holds the private records, {private}, which stay where they are.")
        if place.exists():
            raise ParameterError(f"--upload {path}: something named {whole.name!r} is sent already. Rename it.")
        if whole.is_dir():
            shutil.copytree(whole, place, ignore=ignored)
        else:
            shutil.copy(whole, place)


def entrypoint(python: str, out: str, data: str | None, *, through_log: bool, allow_unverified: bool) -> str:
    """The command that the job runs, with the interpreter ``python`` of the cluster."""
    words = [python, "-m", "pate.commands.in_job", *(["--log-results"] if through_log else []), "--", _STAGED]
    words += ["--address", "auto", "--out", out, *(["--data", data] if data else [])]
    words += ["--allow-unverified"] if allow_unverified else []
    return shlex.join(words)


def packed(folder: Path) -> Iterator[str]:
    """The lines by which a run's results travel in a log: a zip in base64 between two marks, with its checksum."""
    result = Result.read(folder)
    open_data = result.simulated and result.data.benchmark
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            public = name.parts[0] in (*_PUBLIC, PUBLIC_PLOTS) or LATER_RELEASE.fullmatch(name.parts[0])
            if path.is_file() and (open_data or public) and not name.name.startswith("."):
                archive.write(path, name.as_posix())
    content = stored.getvalue()
    if len(content) > _MOST:
        raise ClusterError(f"The results, {len(content) >> 20} MB, are too much for a log. Give --storage.")
    text = base64.b64encode(content).decode()
    yield f"{BEGIN} {hashlib.sha256(content).hexdigest()} {folder.name} {'all' if open_data else 'public'}"
    yield from (text[start : start + _LINE] for start in range(0, len(text), _LINE))
    yield END


def unpacked(lines: Iterable[str], out: Path) -> tuple[Path, bool] | None:
    """Put the results that stand in a log into ``out``; where, and whether all of them travelled. None: there are none."""
    text: list[str] = []
    head: list[str] | None = None
    ended = False
    for line in lines:
        if line.startswith(BEGIN):
            head, text, ended = line.split(" "), [], False
        elif line.startswith(END):
            ended = True
        elif head is not None and not ended:
            text.append(line)
    if head is None or not ended:
        return None
    try:
        content = base64.b64decode("".join(text), validate=True)
    except ValueError:
        content = b""
    if len(head) != 4 or hashlib.sha256(content).hexdigest() != head[1] or "/" in head[2] or head[2].startswith("."):
        raise ClusterError("The results in the job's log are damaged: their checksum is wrong. Run it again with --storage.")
    place = out / head[2]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(each.file_size for each in archive.infolist()) > _MOST_UNPACKED:
            raise ClusterError("The results in the job's log unpack to more than a gigabyte: refused.")
        for each in archive.infolist():
            if not (place / each.filename).resolve().is_relative_to(place.resolve()):
                raise ClusterError(f"The results in the job's log name a file outside of it, {each.filename!r}: refused.")
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        archive.extractall(place)
    return place, head[3] == "all"


def finished_in(lines: Iterable[str]) -> Path | None:
    """Where a job's log says that its run lies, as the cluster sees it."""
    places = [line.removeprefix(FINISHED) for line in lines if line.startswith(FINISHED)]
    return Path(places[-1]) if places else None


def shown(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a log that people want to read."""
    hidden = False
    for line in lines:
        if line.startswith(BEGIN):
            hidden = True
        if not hidden:
            yield line
        if line.startswith(END):
            hidden = False
