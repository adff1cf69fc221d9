"""One page to read: self-contained HTML, for a data-protection officer as much as for a researcher."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pate.experiments.results import Result
from pate.extras import require
from pate.progress import duration

OWNER, PUBLIC = "report.html", "report-public.html"
_TEMPLATE = "report.html"

PAPERS = {
    "proposition8": "PATE 2018, Proposition 8",
    "theorem6": "PATE 2018, Theorem 6 (one direction)",
    "expected_2018": "PATE 2018 scripts, expected cost: no bound",
    "theorem2_2017": "PATE 2017, Theorem 2",
    "theorem3_2017": "PATE 2017, Theorem 3 (one direction)",
}
_CAPTIONS = {
    "epsilon": "Epsilon as the run went on.",
    "labels": "What became of the queries.",
    "confusion": "The student on the test records: how often a class was taken for another.",
    "consensus": "How far the teachers agreed. Private: owner's copy only.",
    "times": "How long each stage took. Private: owner's copy only.",
}


def render(result: Result, recipe: str, ledger: Sequence[Mapping[str, Any]], plots: Mapping[str, Path]) -> str:
    """recipe: its TOML. ledger: rows of ledger.json. plots: SVG files by name, of this copy of the result."""
    jinja: Any = require("jinja2", "plot")
    loader = jinja.FileSystemLoader(Path(__file__).parent)
    environment = jinja.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"duration": duration, "percent": lambda share: f"{100 * share:.2f}%", "figure": _figure}
    text: str = environment.get_template(_TEMPLATE).render(
        result=result,
        privacy=result.privacy,
        training=result.privacy.training,
        erm=result.privacy.erm,
        data=result.data,
        test=result.evaluation,
        factor=_figure(math.exp(min(result.privacy.promised, 700))),
        papers=_papers(result),
        recipe=recipe,
        ledger=[{**row, "memo": _memo(row.get("memo", {}))} for row in ledger],
        plots=[
            {"name": name, "caption": _CAPTIONS[name], "alt": _alt(result, name), "source": _inlined(path)}
            for name, path in plots.items()
        ],
        mechanism=", ".join(f"{key} = {value}" for key, value in result.privacy.mechanism.items()),
    )
    return text


def _papers(result: Result) -> list[tuple[str, float]]:
    found = {**result.privacy.published, **(result.privacy.private_published or {})}
    return [(PAPERS.get(key, key), value) for key, value in found.items()]


def _memo(memo: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value if isinstance(value, str) else json.dumps(value)}" for key, value in memo.items())


def _inlined(path: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _figure(value: float | None) -> str:
    """As people read it: four digits that count, no exponent where it can be avoided."""
    if value is None:
        return "–"
    return f"{value:.4g}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.2e}"


def _alt(result: Result, name: str) -> str:
    """What a picture shows, for those who do not see it."""
    privacy = result.privacy
    if name == "epsilon":
        asked = privacy.curve.queries[-1] if privacy.curve else privacy.asked
        what = "steps" if privacy.training else "queries"
        end = f"{_figure(privacy.data_independent)} after {asked} {what}"
        return f"Epsilon grows to {end}; the budget is {_figure(privacy.budget_epsilon)}."
    if name == "labels":
        right = result.label_noise.right if result.label_noise else None
        answered = f"{privacy.answered} of {privacy.asked} queries were answered"
        return f"{answered}." if right is None else f"{answered}, {right:.1%} of them right."
    if name == "confusion" and result.evaluation is not None:
        test = result.evaluation
        return f"Confusion matrix of {test.tested} test records; {test.accuracy:.2%} lie on its diagonal."
    if name == "times":
        return "; ".join(f"{stage.name} {duration(stage.seconds)}" for stage in result.stages)
    return _CAPTIONS[name]
