"""Reports: what stands in them, and that a public copy holds nothing that depends on votes other than through the mechanism."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from result_cases import CASES, LEDGER, RECIPE, own_data, partial_votes, privacy, ten_classes, two_classes, unverified

from pate.errors import DataError
from pate.experiments.reports.page import OWNER, PUBLIC
from pate.experiments.reports.writing import PUBLIC_PLOTS, PUBLIC_RESULT, write_again, write_all
from pate.experiments.results import Consensus, Curve, LabelNoise, Result, StageFact

for package in ("matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extra 'plot')")


def written(result: Result, folder: Path) -> Path:
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "ledger.json").write_text(json.dumps(LEDGER))
    result.write(folder / "result.json")
    write_all(result, folder)
    return folder


def words(page: Path) -> str:
    """What a reader sees: without tags, styles and pictures."""
    text = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page.read_text(), flags=re.DOTALL)
    return " ".join(text.split())


def canary() -> Result:
    """A number of its own in every private place."""
    facts = privacy(
        data_dependent=0.712345,
        private_published={"theorem6": 1.312345},
        curve=Curve(queries=[1, 100, 200], independent=[0.2, 1.3, 1.9], dependent=[0.1, 0.4, 0.712345]),
    )
    counts = {"private_records": 61_234, "test_records": 51_234}
    data = own_data().data.model_copy(update={"fingerprint": "canary-fingerprint", **counts})
    return own_data(
        privacy=facts,
        data=data,
        label_noise=LabelNoise(answered=150, right=None, plurality=0.912345),
        consensus=Consensus(edges=[0.0, 0.5, 1.0], counts=[41_234, 31_234]),
        stages=[StageFact(name="teachers", seconds=21_234.5, cached=False, private=True, note="canary-note")],
        private_warnings=["canary-warning"],
        environment={"platform": "canary-platform"},
    )


CANARIES = ("712345", "0.7123", "312345", "1.312", "canary", "61234", "51234", "912345", "91.2345", "41234", "31234", "21234")


def test_a_public_copy_tells_nothing_private(tmp_path: Path) -> None:
    folder = written(canary(), tmp_path)
    public = [folder / PUBLIC, folder / PUBLIC_RESULT, *(folder / PUBLIC_PLOTS).glob("*.svg")]
    for path in public:
        found = [each for each in CANARIES if each in path.read_text()]
        assert not found, (path.name, found)
    assert not (folder / PUBLIC_PLOTS / "consensus.svg").exists()
    assert not (folder / PUBLIC_PLOTS / "times.svg").exists()
    assert not (folder / PUBLIC_PLOTS / "confusion.svg").exists(), "the test records are private"
    assert Result.read(folder / PUBLIC_RESULT).privacy.spent is None, "it tells that somebody came or went"
    owner = words(folder / OWNER)
    for each in ("0.7123", "1.312", "canary-warning", "canary-fingerprint"):
        assert each in owner, "or the test above would prove nothing"


@pytest.mark.parametrize("name", CASES)
def test_public_of_public_is_the_same_and_can_be_read_back(name: str, tmp_path: Path) -> None:
    result = CASES[name]()
    assert result.public().public() == result.public()
    result.write(tmp_path / "result.json")
    assert Result.read(tmp_path) == result


def test_a_report_says_what_a_data_protection_officer_asks(tmp_path: Path) -> None:
    told = words(written(own_data(), tmp_path) / OWNER)
    for each in (
        *("A release: noise from the operating system", "Owner's copy", "one user", "e ε = 6.686", "δ = 1e-05"),
        *("Neighbouring data: one record (or user) replaced", "the owner of the data", "not drawn"),
    ):
        assert each in told, each
    public = words(tmp_path / PUBLIC)
    assert "withheld" in public
    assert "Public copy" in public
    assert "accuracy, ±" not in public, "the test records are private"


def test_each_kind_of_run_says_what_it_is(tmp_path: Path) -> None:
    for number, (result, said) in enumerate(
        (
            (ten_classes(), ("Simulation, not private", "PATE 2018, Theorem 6", "no bound", "Not private: computed from")),
            (two_classes(), ("area under the ROC curve", "always the larger class: 76.00%")),
            (partial_votes(), ("votes on at most 1 of the queries", "no figure below the data-independent one is known")),
            (unverified(), ("Unverified aggregator",)),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        told = words(written(result, folder) / OWNER)
        for each in said:
            assert each in told, each


def test_it_is_self_contained_and_made_anew_the_same(tmp_path: Path) -> None:
    folder = written(ten_classes(), tmp_path)
    page = (folder / OWNER).read_text()
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert "<script" not in page
    assert (folder / OWNER).stat().st_mode & 0o077 == 0, "private"
    assert write_again(folder, public=False) == folder / OWNER
    assert (folder / OWNER).read_text() == page, "pictures are drawn the same every time"
    assert write_again(folder, public=True, path=folder / "elsewhere.html").exists()


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no result\.json"):
        write_again(tmp_path, public=False)
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(DataError, match="not a result of this version"):
        write_again(tmp_path, public=False)
    ten_classes().write(tmp_path / "result.json")
    with pytest.raises(DataError, match="not the directory of a finished run"):
        write_again(tmp_path, public=False)
