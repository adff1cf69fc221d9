"""``pate query``: questions to a running service from the shell, and a student that learns from what it said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_cases import TOKENS, serving

from pate.aggregators import GNMax
from pate.aggregators.service.desk import Service
from pate.aggregators.service.sources import Live, Pool
from pate.experiments.release_files import read_release
from pate.ledger import Budget
from pate.release import Electorate
from pate.votes import Votes

Pate = Callable[..., Any]
LABELS = [0, 1] * 20


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("PATE_TOKEN", TOKENS["ann"])
    votes = Votes([[100, 0], [0, 100]] * 20, n_teachers=100)
    with serving(Service(GNMax(4.0), Pool(votes, "ward"), tmp_path / "l.db", Budget(60.0, 1e-5), quotas={"bob": 0})) as found:
        yield found


def test_questions_answers_and_the_budget(pate: Pate, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = pate("query", url, "--ids", "0,1, 3", "--key", "k", "--json").json
    assert first["labels"] == [0, 1, 1]
    assert first["key"] == "k"
    assert first["mechanism"] == {"aggregator": "gnmax", "sigma": 4.0}
    assert pate("query", url, "--ids", "0,1,3").out.split() == ["0", "1", "1"]
    assert pate("query", url, "--budget", "--json").json["answered"] == 3
    assert "queries left: " in pate("query", url, "--budget").out
    token = tmp_path / "token"
    token.write_text(TOKENS["bob"] + "\n")
    monkeypatch.delenv("PATE_TOKEN")
    assert pate("query", url, "--ids", "0", "--token-file", token, "--json").json["labels"] == [0]
    refused = pate("query", url, "--ids", "9", "--token-file", token)
    assert refused.code == 3
    assert "--key" in refused.err
    assert not any(secret in refused.err + refused.out for secret in TOKENS.values())


def test_a_student_learns_from_the_answers(pate: Pate, url: str, tmp_path: Path) -> None:
    x = np.array([[2.0 * label - 1.0, 0.01 * row] for row, label in enumerate(LABELS)], dtype=np.float32)
    np.save(tmp_path / "public.npy", x)
    np.savez(tmp_path / "queries.npz", rows=np.arange(4, 24), x=x[4:24])
    out = tmp_path / "release.json"
    ran = pate("query", url, "--ids-file", tmp_path / "queries.npz", "--out", out)
    assert ran.code == 0, ran.err
    found = read_release(out)
    assert found.queries is not None
    assert found.queries.tolist() == list(range(4, 24))
    assert found.release.labels.tolist() == LABELS[4:24]
    student = ("--model", "spreading", "--out", tmp_path / "student.zip", "--json")
    trained = pate("student", "train", "--public", tmp_path / "public.npy", "--release", out, *student)
    assert trained.code == 0, trained.err
    again = pate("query", url, "--ids-file", tmp_path / "queries.npz", "--out", out)
    assert again.code == 2
    assert "not overwritten" in again.err


def test_records_themselves_go_with_their_rows(pate: Pate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATE_TOKEN", TOKENS["ann"])

    def vote(records: Any) -> Votes:
        return Votes([[100, 0] if record.sum() < 0 else [0, 100] for record in records], n_teachers=100)

    np.savez(tmp_path / "queries.npz", rows=[5, 6], x=np.array([[-1.0, 0.0], [1.0, 0.0]]))
    source = Live(vote, (2,), Electorate(100, 2), "ward")
    with serving(Service(GNMax(4.0), source, tmp_path / "l.db", Budget(60.0, 1e-5))) as url:
        out = tmp_path / "release.json"
        assert pate("query", url, "--inputs", tmp_path / "queries.npz", "--out", out).code == 0
    found = read_release(out)
    assert found.queries is not None
    assert (found.queries.tolist(), found.release.labels.tolist()) == ([5, 6], [0, 1])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 2),
        (("--ids", "1", "--budget"), 2),
        (("--ids", "1,x"), 2),
        (("--ids", ""), 2),
        (("--budget", "--key", "k"), 2),
        (("--ids", "40"), 2),
        (("--ids-file", "absent.npy"), 2),
        (("--ids", "1", "--token-file", "absent"), 2),
    ],
)
def test_what_is_wrong_is_said_in_a_line(pate: Pate, url: str, words: tuple[str, ...], code: int) -> None:
    ran = pate("query", url, *words)
    assert ran.code == code
    assert len(ran.err.splitlines()) == 1


def test_a_service_that_is_not_there(pate: Pate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATE_TOKEN", "t")
    ran = pate("query", "http://127.0.0.1:9", "--ids", "1", "--retries", "0")
    assert ran.code == 6
    assert "--key" in ran.err
