"""Stored data on Ray: workers split, train, vote and compare; the driver reads no record, and every bit is that of memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_cases import N_CLASSES, N_TEACHERS, QUERIES, private_data

from pate.errors import PartitionError
from pate.execution import OnRay
from pate.features import PCA
from pate.public import PublicData
from pate.teachers import Columns, Ensemble, Partition, PrivateData, StoredData, StoredPartition, nearest_votes
from pate.teachers.storage import buckets, silo

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("fsspec")
pytest.importorskip("ray")

N_SHARDS = 5
WARD = private_data()
OWNERS = [f"patient-{row * row % 97}" for row in range(len(WARD))]
"""49 patients: some of the teachers have none."""
PEOPLE = PrivateData(WARD.x, WARD.y, ids=WARD.record_ids, group_by=OWNERS, name="ward")
INPUTS = tuple(f"x{column}" for column in range(WARD.x.shape[1]))
FEATURES = PCA(5).fit(PublicData(QUERIES, name="brochure"))


@pytest.fixture(scope="module")
def executor() -> Iterator[OnRay]:
    with OnRay(workers=2) as started:
        yield started


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of Parquet files; a patient's records lie in several of them."""
    folder = tmp_path_factory.mktemp("shards")
    rows = np.random.default_rng(3).permutation(len(WARD))
    for number, mine in enumerate(np.array_split(rows, N_SHARDS)):
        inputs = {name: WARD.x[mine, column] for column, name in enumerate(INPUTS)}
        table = {
            "id": [WARD.record_ids[row].decode() for row in mine],
            "label": WARD.y[mine],
            "patient": [OWNERS[row] for row in mine],
            **inputs,
        }
        parquet.write_table(arrow.table(table), folder / f"{number}.parquet")
    return folder


@pytest.fixture
def blind_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, not in the workers', reading private rows is an error."""

    def refuse(*_: Any) -> None:
        raise AssertionError("The driver read private rows.")

    for module, name in ((buckets, "read_shard"), (buckets, "read_rows"), (silo, "read_shard")):
        monkeypatch.setattr(module, name, refuse)


def split_on_ray(shards: Path, work_dir: Path, executor: OnRay, by_user: bool) -> StoredPartition:
    columns = Columns(
        group_by="patient" if by_user else None, features=tuple(f"x{column}" for column in range(WARD.x.shape[1]))
    )
    stored = StoredData(shards, columns=columns, name="ward")
    return StoredPartition.by_hash(stored, N_TEACHERS, salt="2026", work_dir=work_dir, executor=executor, allow_empty=True)


@pytest.mark.usefixtures("blind_driver")
@pytest.mark.parametrize("by_user", [False, True])
def test_teachers_of_stored_parts_vote_as_those_of_memory(executor: OnRay, shards: Path, tmp_path: Path, by_user: bool) -> None:
    parts = split_on_ray(shards, tmp_path / "work", executor, by_user)
    memory = Partition.by_hash(PEOPLE if by_user else WARD, N_TEACHERS, salt="2026", allow_empty=True)
    assert parts.manifest() == memory.manifest()
    found, expected = (
        Ensemble.train(each, "logistic", tmp_path / run, n_classes=N_CLASSES, features=FEATURES, executor=where, show="none")
        for each, run, where in ((parts, "stored", executor), (memory, "memory", None))
    )
    np.testing.assert_array_equal(found.predict(QUERIES, executor=executor), expected.predict(QUERIES))
    np.testing.assert_array_equal(found.vote(QUERIES, executor=executor).counts, expected.vote(QUERIES).counts)
    assert [record.model for record in found.records] == [record.model for record in expected.records]
    assert len(np.unique(expected.predict(QUERIES), axis=0)) > 1  # there is something to agree on
    parts.cleanup()


@pytest.mark.usefixtures("blind_driver")
@pytest.mark.parametrize("by_user", [False, True])
def test_stored_records_vote_on_their_nearest_queries_as_those_of_memory(
    executor: OnRay, shards: Path, tmp_path: Path, by_user: bool
) -> None:
    parts = split_on_ray(shards, tmp_path / "work", executor, by_user)
    rules: dict[str, Any] = {"n_classes": N_CLASSES, "votes_per_record": 2, "features": FEATURES}
    if by_user:
        rules["votes_per_user"] = 3
    votes = nearest_votes(parts, QUERIES, executor=executor, **rules)
    expected = nearest_votes(PEOPLE if by_user else WARD, QUERIES, **rules)
    np.testing.assert_array_equal(votes.counts, expected.counts)
    assert votes.electorate == expected.electorate
    parts.cleanup()


@pytest.mark.usefixtures("blind_driver")
def test_silos_vote_as_in_memory(executor: OnRay, shards: Path) -> None:
    parts = StoredPartition.by_silo(StoredData(shards, columns=Columns(features=INPUTS), name="ward"), executor=executor)
    votes = nearest_votes(parts, QUERIES, n_classes=N_CLASSES, executor=executor)
    np.testing.assert_array_equal(votes.counts, nearest_votes(WARD, QUERIES, n_classes=N_CLASSES).counts)


@pytest.mark.usefixtures("blind_driver")
def test_a_lie_is_found_by_the_workers(executor: OnRay, shards: Path, tmp_path: Path) -> None:
    parts = split_on_ray(shards, tmp_path / "work", executor, by_user=False)
    lie = PCA(5).fit(PublicData(WARD.x[::10], name="a brochure"))
    with pytest.raises(PartitionError, match="'a brochure', of which 100% are private records"):
        nearest_votes(parts, QUERIES, n_classes=N_CLASSES, executor=executor, features=lie)
