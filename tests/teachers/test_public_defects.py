"""Defects found in public implementations of PATE, reproduced in a few lines, and refused here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_teachers import MeanTeachers

from pate.errors import PartitionError, VotesError
from pate.features import PCA, Features, Standardise
from pate.public import PublicData
from pate.teachers.data import PrivateData
from pate.teachers.ensemble import Ensemble
from pate.teachers.family import Part
from pate.teachers.nearest import nearest_votes
from pate.teachers.partition import Partition
from pate.teachers.storage import StoredData, StoredPartition
from pate.votes import Votes

N, TEACHERS = 200, 5
RNG = np.random.default_rng(29)
X, Y = RNG.normal(size=(N, 4)), RNG.integers(0, 2, N)
DATA = PrivateData(X, Y, [f"patient {row}" for row in range(N)])


def test_the_same_partition_for_every_teacher() -> None:
    """vanderschaarlab/mlforhealthlabpub issue 29: by an index that never moves, each teacher gets the first partition."""
    shuffled = RNG.permutation(N)
    parts = [shuffled[: N // TEACHERS] for _ in range(TEACHERS)]  # the defect: teacher i should start at i * N // TEACHERS
    with pytest.raises(PartitionError, match="40 of 200 records are used more than once, and 4 of 5 parts are copies"):
        Partition.from_rows(DATA, parts)


def test_the_same_partition_for_every_teacher_under_fresh_ids() -> None:
    """The same defect, hidden: the copies were numbered anew before they were split by silo."""
    first = slice(0, N // TEACHERS)
    copies = PrivateData(np.tile(X[first], (TEACHERS, 1)), np.tile(Y[first], TEACHERS), np.arange(N))
    silos = np.repeat(np.arange(TEACHERS), N // TEACHERS)
    with pytest.raises(PartitionError, match="5 teachers hold the same 40 records under other ids: 0, 1, 2, 3, 4"):
        Partition.by_silo(copies, silos)


def test_teachers_that_resample_all_data() -> None:
    """vanderschaarlab/synthcity issue 275: each teacher draws a random subset of all records, again and again."""
    bootstrap = [RNG.integers(0, N, N // TEACHERS) for _ in range(TEACHERS)]
    with pytest.raises(
        PartitionError, match=r"records are used more than once, and \d of 5 parts repeat a record of their own"
    ):
        Partition.from_rows(DATA, bootstrap)
    subsets = [RNG.choice(N, N // TEACHERS, replace=False) for _ in range(TEACHERS)]
    with pytest.raises(
        PartitionError, match=r"\d+ of 200 records are used more than once\. One record would then change several"
    ):
        Partition.from_rows(DATA, subsets)


def test_an_overlapping_record() -> None:
    """Two extracts that share a record are joined: the same person twice."""
    with pytest.raises(PartitionError, match="records overlap; 1 of 201 repeat"):
        PrivateData(np.vstack([X, X[:1]]), np.append(Y, Y[0]), [*DATA.record_ids, DATA.record_ids[0]])


def test_an_overlapping_user() -> None:
    """Rows are disjoint, people are not: a split by rows puts a patient's visits with several teachers."""
    visits = PrivateData(X, Y, range(N), group_by=[f"patient {row % 50}" for row in range(N)])
    parts = np.split(np.arange(N), TEACHERS)
    with pytest.raises(PartitionError, match="with one teacher; 50 of 50 users are with several"):
        Partition.from_rows(visits, parts)
    with pytest.raises(PartitionError, match="with one silo; 50 of 50 users are with several"):
        Partition.by_silo(visits, np.repeat(["north", "south"], N // 2))
    together = Partition.by_hash(visits, TEACHERS, salt="2026")
    assert all(len(set(together.teacher_of[visits.unit_of == user])) == 1 for user in range(50))


def test_an_id_less_shuffle() -> None:
    """Shuffle, then cut: with one record fewer many others are with another teacher, seed or no seed."""

    def shuffle_and_cut(n_records: int) -> np.ndarray:
        place = np.empty(n_records, dtype=int)
        for teacher, rows in enumerate(np.array_split(np.random.default_rng(0).permutation(n_records), TEACHERS)):
            place[rows] = teacher
        return place

    moved = (shuffle_and_cut(N)[:-1] != shuffle_and_cut(N - 1)).mean()
    assert moved > 0.25  # one person left, and dozens of the others moved: the defect
    with pytest.raises(PartitionError, match=r"every record needs an id, got none.*random shuffle"):
        PrivateData(X, Y, None)

    fewer = PrivateData(X[:-1], Y[:-1], DATA.record_ids[:-1])
    here, there = (Partition.by_hash(data, TEACHERS, salt="2026").teacher_of for data in (DATA, fewer))
    np.testing.assert_array_equal(here[:-1], there)  # by id nobody moves


PUBLIC = RNG.normal(size=(300, 4))
LIES = {  # each: what it was fitted on, and what is said of it
    "all private rows": (X, "which holds 100% of the private records"),
    "a tenth of them": (X[: N // 10], "of which 100% are private records"),
    "everything there is": (np.concatenate([PUBLIC, X]), "which holds 100% of the private records"),
    "half of everything": (np.concatenate([PUBLIC, X])[1::2][-150:], "of which 67% are private records"),
}


def in_memory(folder: Path) -> Partition:
    return Partition.by_hash(DATA, TEACHERS, salt="2026")


def in_storage(folder: Path) -> StoredPartition:
    (folder / "shards").mkdir()
    for name, rows in (("a", slice(0, 90)), ("b", slice(90, N))):
        np.savez(folder / "shards" / f"{name}.npz", x=X[rows], y=Y[rows], ids=[f"patient {row}" for row in range(N)[rows]])
    return StoredPartition.by_hash(StoredData(folder / "shards"), TEACHERS, salt="2026", work_dir=folder / "work")


def train(parts: Any, features: Features, folder: Path) -> None:
    Ensemble.train(parts, MeanTeachers(), folder / "run", n_classes=2, features=features, show="none")


def vote(parts: Any, features: Features, folder: Path) -> None:
    nearest_votes(parts, PUBLIC[:5], n_classes=2, features=features)


def vote_without_parts(parts: Any, features: Features, folder: Path) -> None:
    nearest_votes(DATA, PUBLIC[:5], n_classes=2, features=features)


USES = [(in_memory, train), (in_storage, train), (in_memory, vote_without_parts), (in_memory, vote), (in_storage, vote)]


@pytest.mark.parametrize(("where", "use"), USES)
def test_private_scaling_under_a_public_name(
    tmp_path: Path, where: Callable[[Path], Any], use: Callable[[Any, Features, Path], None]
) -> None:
    """vanderschaarlab/synthcity issue 278: one scaler for all teachers, fitted on private rows; here called public ones."""
    pytest.importorskip("fsspec")
    parts = where(tmp_path)
    for lie, found in LIES.values():
        for features in (Standardise(), PCA(2)):
            with pytest.raises(PartitionError, match=rf"were fitted on 'a brochure', {found}"):
                use(parts, features.fit(PublicData(lie, name="a brochure")), tmp_path)
    assert not (tmp_path / "run").exists()
    # As honest as it should be: three private rows came among the public ones by chance.
    use(parts, Standardise().fit(PublicData(np.concatenate([PUBLIC, X[:3]]))), tmp_path)


class OneFails(MeanTeachers):
    """The teacher that has record 0 cannot learn from it."""

    def fit(self, part: Part, n_classes: int) -> NDArray[Any]:
        if (part.x == X[0]).all(axis=1).any():
            raise ArithmeticError("this record breaks the training")
        return super().fit(part, n_classes)


def test_a_shrinking_ensemble(tmp_path: Path) -> None:
    """A teacher that fails is left out: one record then changes the number of votes as well as the votes."""
    parts = Partition.by_hash(DATA, 10, salt="s")
    ensemble = Ensemble.train(parts, OneFails(), tmp_path, n_classes=2, holdout=0.0, max_failures=0.1, default_vote=1)
    predictions = ensemble.predict(PUBLIC[:5])
    (failed,) = ensemble.failures
    assert failed == parts.teacher_of[0]
    assert ensemble.vote(PUBLIC[:5]).n_teachers == 10
    assert (predictions[failed] == 1).all()
    survivors = Votes.from_predictions(np.delete(predictions, failed, axis=0), 2)
    with pytest.raises(VotesError, match="A teacher that fails votes a fixed default class"):
        Votes(survivors.counts, n_teachers=10)
