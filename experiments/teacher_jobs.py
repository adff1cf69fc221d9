"""Teachers from files: what ``pate teachers`` does, as functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.errors import ParameterError, PartitionError, PateError, TeacherError
from pate.execution import Executor, OnRay, Serial
from pate.experiments.array_files import read_arrays
from pate.extras import require
from pate.features import Features, features_named
from pate.progress import duration, last_written, per_second
from pate.public import PublicData
from pate.teachers import Partition
from pate.teachers.partitioned import Partitioned
from pate.teachers.registry import from_description
from pate.teachers.run_directory import RunDirectory
from pate.teachers.storage.shards import Columns, read_shard
from pate.teachers.storage.stored import StoredData, StoredPartition

PARTS = "parts"
"""Where in a run directory the workers put stored data that they split."""

_SHOWN = 10  # failed teachers in a table
_FACTS = ("teachers", "n_teachers", "n_classes", "features", "unit", "fingerprint")


@dataclass(frozen=True)
class PrivateSource:
    """Private records in storage and how to split them.

    place: an .npz, .parquet or .csv file, which is read here; or a directory, glob or URL of such files, which the workers
    read themselves.
    """

    place: str
    columns: Columns
    name: str
    salt: str

    @property
    def is_one_file(self) -> bool:
        return Path(self.place).is_file()

    def split(self, n_teachers: int, n_classes: int, work_dir: Path, executor: Executor, allow_empty: bool) -> Partitioned:
        """One part for each of ``n_teachers`` teachers, by keyed hash."""
        if self.is_one_file:
            data = read_shard(self.place, self.columns, name=self.name).data
            if data.y.max() >= n_classes:  # the largest label is not told: it is private
                raise PartitionError(
                    f"{self.place}: labels must lie in 0..{n_classes - 1} (--classes {n_classes}); found one outside. Declare "
                    "all classes that there can be."
                )
            return Partition.by_hash(data, n_teachers, salt=self.salt, allow_empty=allow_empty)
        return StoredPartition.by_hash(
            self._stored(),
            n_teachers,
            salt=self.salt,
            work_dir=work_dir,
            executor=executor,
            n_classes=n_classes,
            allow_empty=allow_empty,
        )

    def silos(self, n_classes: int, executor: Executor) -> Partitioned:
        """One part for each sub-directory or file."""
        return StoredPartition.by_silo(self._stored(), salt=self.salt, executor=executor, n_classes=n_classes)

    def _stored(self) -> StoredData:
        try:
            require("fsspec.core", "storage").url_to_fs(self.place)
        except (ImportError, ValueError) as error:  # fsspec says which package reads such URLs, or that none does
            if isinstance(error, PateError):
                raise
            raise PartitionError(f"{self.place}: it cannot be opened: {error}.") from error
        return StoredData(self.place, columns=self.columns, name=self.name)


def executor_for(serial: bool, address: str | None, workers: int | None, gpus: float) -> Executor:
    """Ray on all cores or at ``address``, connected; or this process alone."""
    if not serial:
        on_ray = OnRay(address, workers=workers, gpus=gpus)
        on_ray.start()  # a cluster that cannot be reached is told before anything is read or written
        return on_ray
    if address is not None or workers is not None or gpus:
        raise ParameterError("--serial means this process alone: leave out --address, --workers and --gpus.")
    return Serial()


def public_features(name: str | None, settings: dict[str, Any], public: Path | None) -> Features | None:
    """A feature extractor by name, fitted on the public inputs in ``public`` where it is given."""
    if name is None:
        if settings or public is not None:
            raise ParameterError("--features-set and --public belong to --features: name the features too.")
        return None
    features = features_named(name, settings)
    if public is not None:
        return features.fit(PublicData(read_inputs(public), name=public.name))
    if features.needs_fit:
        raise ParameterError(f"--features {name} is fitted on public inputs: give them with --public FILE (.npy or .npz).")
    return features


def read_inputs(path: Path) -> NDArray[Any]:
    """Public inputs [record, ...] from an .npy, or from an .npz under the name ``x`` (or its only array)."""
    arrays = read_arrays(path, alone="x", error=ParameterError)
    if "x" not in arrays and len(arrays) != 1:
        raise ParameterError(f"{path}: public inputs are the array 'x', found {', '.join(arrays) or 'none'}.")
    return arrays["x"] if "x" in arrays else next(iter(arrays.values()))


def status(run_dir: Path, errors: bool = False) -> dict[str, Any]:
    """How far a run is, whether or not it is going on. Private, as all of a run directory is.

    errors: also what each failed teacher's code said, which may quote the data.
    """
    run = RunDirectory(run_dir)
    facts = _run_facts(run)
    suffix = from_description(facts["teachers"]).suffix
    found = [run.read_record(teacher, suffix) for teacher in range(facts["n_teachers"])]
    records = [record for record in found if record is not None]
    outcomes = Counter(record.outcome for record in records)
    scored = [record for record in records if record.accuracy is not None]
    running = run.is_locked()
    pending = facts["n_teachers"] - len(records)
    said = last_written(run.progress_file) if running else None
    rate = said["rate"] if said else None
    told = {
        "run": str(run.path),
        "model": facts["teachers"],
        "features": facts["features"],
        "n_teachers": facts["n_teachers"],
        "n_classes": facts["n_classes"],
        "unit": facts["unit"],
        "fingerprint": facts["fingerprint"],
        "trained": outcomes["trained"],
        "empty": outcomes["empty"],
        "failed": {str(record.teacher): record.error_kind for record in records if record.outcome == "failed"},
        "pending": pending,
        "running": running,
        "rate": rate,
        "seconds_left": pending / rate if rate else None,
        "held_out_accuracy": float(np.mean([record.accuracy for record in scored])) if scored else None,
        "seconds": sum(record.seconds for record in records),
    }
    if errors:
        told["errors"] = {str(record.teacher): record.error for record in records if record.outcome == "failed"}
    return told


def status_rows(facts: Mapping[str, Any]) -> dict[str, str]:
    """What :func:`status` found, as the rows of a table."""
    model, failed = facts["model"], list(facts["failed"].items())
    settings = ", ".join(f"{key}={value}" for key, value in model["settings"].items())
    accuracy = facts["held_out_accuracy"]
    pending = str(facts["pending"])
    if facts["running"]:
        pending += ", training now"
        if facts["rate"]:
            pending += f", {per_second(facts['rate'])}, {duration(facts['seconds_left'])} left"
    elif facts["pending"]:
        pending += ", stopped: train with --resume"
    more = f" and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
    return {
        "model": f"{model['family']} ({settings})" if settings else model["family"],
        "features": str(facts["features"] or "none"),
        "data set": f"{facts['fingerprint']}, unit {facts['unit']}, {facts['n_classes']} classes",
        "trained": str(facts["trained"]),
        "pending": pending,
        "failed, vote the default": ", ".join(f"{teacher} ({kind})" for teacher, kind in failed[:_SHOWN]) + more or "none",
        "empty, vote the default": str(facts["empty"]),
        "accuracy on held-out records": "not measured" if accuracy is None else f"{accuracy:.1%}",
        "training time of all": duration(facts["seconds"]),
    }


def _run_facts(run: RunDirectory) -> dict[str, Any]:
    if run.path.is_dir() and not run.exists() and (run.path / PARTS).is_dir():
        raise TeacherError(
            f"Run directory {run.path}: the data are being split, or were when it stopped; no teacher has begun."
        )
    facts = run.read_run()
    missing = [name for name in _FACTS if name not in facts]
    if not missing and not {"family", "settings"} <= dict(facts["teachers"]).keys():
        missing = ["teachers"]
    if missing:
        raise TeacherError(
            f"Run directory {run.path}: run.json is damaged, it lacks {', '.join(missing)}. Train into a new one."
        )
    return facts


def how_to_go_on(run_dir: Path) -> str:
    """What a run that was stopped has kept, and the next step."""
    try:
        facts = status(run_dir)
    except (PateError, OSError):
        return "No teacher had begun."
    finished = facts["trained"] + facts["empty"]
    kept = f"{finished} of {facts['n_teachers']} teachers are finished and kept in {run_dir}"
    return f"{kept}: go on with the same command and --resume."
