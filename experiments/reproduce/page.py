"""docs/results.md, written from the files of finished studies: nothing on it is typed by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import mean, stdev

from pate.experiments.array_files import write_text
from pate.experiments.reproduce.drawing import figure_of
from pate.experiments.reproduce.running import Found, StudyResult
from pate.experiments.reproduce.studies import DPSGD, ERM, STUDIES, SWEEP_RECORDS, Study, Target
from pate.progress import duration

PAGE, FOLDER = "results.md", "results"
_MARKS = ("<!-- results: written by pate reproduce -->", "<!-- end of results -->")

_HEAD = """\
# Results

Written by `pate reproduce all`; the figures are in [docs/results/](results/), a file for each study with its commit, seeds,
machine and versions. `pate reproduce mnist` repeats one study; `--quick` runs the last budget of each line with one seed.

**Publishable** is the data-independent epsilon, which the ledger enforces before the first query. The data-dependent ones are
for the owner of the data only: exact, and by the bound of PATE 2018 for comparison; of partial votes none smaller than the
publishable one is known, and of several rounds none is. Private ERM is the second baseline ([erm.md](erm.md)). DP-SGD's is by
PLD, for records added or removed; an ensemble's covers records replaced under their own id as well, that of partial votes these
alone here, since the number of voters is told ([method.md](method.md#5-limits)). All runs here are seeded simulations on public
benchmark data: the epsilon is what the same run costs in a release.

## How it was done

- Test labels are opened once in each run, after everything else, and nothing was chosen by the figures below. sigma follows
  from the budget (`sigma = "auto"`: the least noise that the ledger lets pass), or is the paper's. What was chosen before, and
  on what:
- Encodings, the number of cells and the ridge of `proportions` were chosen on labels of *public* records of these benchmarks,
  which the owner of real data would have to hold or do without: cells among 100 to 3,000, votes of a
  record among 1 to 10, ridge among 0.03 to 1,000, on
  Fashion-MNIST, protocol A of Adult, and Diabetes. The public records of Adult's protocol A are two thirds of the test records
  of its protocol B, so its partial votes under B are not blind to that test; under A they are.
- Adult's small encoding and the sizes of rounds ([rounds.md](rounds.md)) were chosen on held-out rows of adult.data, and so
  were settings of the baselines of the tables ([dpsgd.md](dpsgd.md)). Such rows are private here: on data that are no benchmark
  the choice would be a release of its own, and no epsilon below pays for it.
- Kinds and numbers of teachers, the 50 queries of MNIST, the features of its students, and the first tries of those of
  Fashion-MNIST come from earlier studies of others, which did look at test accuracy while they were designed.
- A seed decides everything that is drawn: self-supervised features, queries, teachers, noise, student. "±" is the standard
  deviation over seeds; the test's own standard error, which does not shrink with seeds, is beside it.
- The bound of 2018 is for one direction only, so it can lie below the exact cost, which is the larger of both and carries an
  allowance for rounding: where teachers nearly always agree, that allowance is most of it.
- A run finds features that an earlier one of the same seed left, so the times of a study differ by a minute or two.
"""


def write_page(results: Sequence[StudyResult], docs: Path) -> Path:
    """The page for these studies, in the order of :data:`STUDIES`."""
    order = list(STUDIES)
    found = sorted(results, key=lambda result: order.index(result.study))
    parts = [_HEAD, *(_section(STUDIES[result.study], result) for result in found)]
    path = docs / PAGE
    write_text(path, "\n".join(parts))
    return path


def headline(results: Sequence[StudyResult]) -> str:
    """The table of the README: of each data set and line the best mean at an epsilon up to 1, or at its least one above."""
    rows = ["| | | publishable epsilon | student | published |", "|---|---|---|---|---|"]
    for result in sorted(results, key=lambda each: list(STUDIES).index(each.study)):
        study = STUDIES[result.study]
        for line in dict.fromkeys(case.line for case in result.cases if not case.sweep):
            cases = [case for case in result.cases if case.line == line and not case.sweep]
            protocol = cases[-1].protocol  # that with the larger test set, where there are two
            cases = [case for case in cases if case.protocol == protocol]
            small = [case for case in cases if _epsilon(case) <= 1] or cases[:1]
            # Rounded, so that of equals in print the cheapest stands there.
            best = max(small, key=lambda case: (round(mean(figure_of(case, study.metric)), 3), -_epsilon(case)))
            rows.append(_headline_row(study, best, line))
    return "\n".join(rows)


def _epsilon(case: Found) -> float:
    return mean(point.epsilon for point in case.points)


def _headline_row(study: Study, case: Found, line: str) -> str:
    figures = figure_of(case, study.metric)
    told = f"{mean(figures):.1%}" if study.metric == "accuracy" else f"AUC {mean(figures):.3f}"
    papers: dict[str, list[str]] = {}
    for each in study.published:
        if "CNN" not in each.what and each.what.startswith("DP-SGD") == (line == DPSGD) and line != ERM:
            papers.setdefault(each.what, []).append(f"{each.accuracy:.1%} at {each.epsilon:g}")
    fitting = [f"{what}: {', '.join(points)}" for what, points in papers.items()]
    where = f"{study.title}, {case.protocol}" if case.protocol else study.title
    return f"| {where} | {line} | {_epsilon(case):.2f} | {told} | {'; '.join(fitting) or '–'} |"


def write_headline(results: Sequence[StudyResult], readme: Path) -> bool:
    """Put it between the marks in the README; False where there is no such file, or no marks in it."""
    if not readme.is_file() or not all(mark in (text := readme.read_text("utf-8")) for mark in _MARKS):
        return False
    before, rest = text.split(_MARKS[0], 1)
    after = rest.split(_MARKS[1], 1)[1]
    write_text(readme, f"{before}{_MARKS[0]}\n{headline(results)}\n{_MARKS[1]}{after}")
    return True


def _section(study: Study, result: StudyResult) -> str:
    lines = [
        f"## {study.title}",
        "",
        *study.notes,
        "",
        f"![{study.title}: {'AUC' if study.metric == 'auc' else study.metric} against epsilon]({FOLDER}/{study.name}.svg)",
        "",
    ]
    lines += _table(study, result)
    if study.targets and not result.quick:
        lines += [
            "",
            "Against what was asked for beforehand, the best of a line's budgets that fit:",
            "",
            "| | epsilon at most | asked | reached |",
            "|---|---|---|---|",
        ]
        lines += [_target_row(study, result, target) for target in study.targets]
    if study.published:
        lines += ["", "Published, each as its source states it:", "", "| | epsilon | accuracy | source |", "|---|---|---|---|"]
        lines += [f"| {each.what} | {each.epsilon:g} | {each.accuracy:.1%} | {each.source} |" for each in study.published]
    lines += _trade_offs(study, result)
    lines += [
        "",
        f"{_code_told(result)}; {'quick, ' if result.quick else ''}seeds {', '.join(map(str, result.seeds))}; "
        f"{result.machine}; {result.created[:10]}; "
        f"python {result.environment.get('python')}, torch {result.environment.get('torch', 'none')}.",
        "",
    ]
    return "\n".join(lines)


def _code_told(result: StudyResult) -> str:
    """One commit, or several where runs of earlier ones were found."""
    codes = [re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", code) for code in result.code_of_runs]
    return f"{'Commit' if len(codes) == 1 else 'Commits'} {'; '.join(codes)}"


def _table(study: Study, result: StudyResult) -> Iterator[str]:
    auc = any(point.auc is not None for case in result.cases for point in case.points)
    yield (
        "| | protocol | publishable epsilon | accuracy | test's s.e. | "
        + ("AUC | balanced accuracy | majority | " if auc else "")
        + "data-dependent, exact | bound of 2018 | time a run |"
    )
    yield "|---" * (11 if auc else 8) + "|"
    for case in result.cases:
        if case.sweep:
            continue
        points = case.points
        error = math.sqrt(mean(p.accuracy * (1 - p.accuracy) / p.tested for p in points))
        cells = [
            f"{case.line} (`{case.recipe}`)",
            case.protocol or "–",
            f"{mean(p.epsilon for p in points):.3f}",
            f"**{spread([100 * p.accuracy for p in points], 2)}%**",
            f"{100 * error:.2f}",
        ]
        if auc:
            cells += [
                spread([float(p.auc or 0) for p in points], 3),
                f"{mean(p.balanced_accuracy for p in points):.1%}",
                f"{mean(p.majority for p in points):.1%}",
            ]
        cells += [_private(case, "epsilon_dependent"), _private(case, "epsilon_2018"), duration(max(p.seconds for p in points))]
        yield "| " + " | ".join(cells) + " |"


def spread(values: Sequence[float], digits: int) -> str:
    """Mean and standard deviation over seeds, such as 98.50 ± 0.12."""
    told = f"{mean(values):.{digits}f}"
    return told if len(values) < 2 else f"{told} ± {stdev(values):.{digits}f}"


def _private(case: Found, attribute: str) -> str:
    values = [getattr(point, attribute) for point in case.points]
    return "–" if any(value is None for value in values) else f"{mean(values):.3f}"


def reached(study: Study, result: StudyResult, target: Target) -> float | None:
    """The best mean of the target's line within its epsilon; None where no case of it is."""
    fitting = [
        mean(figure_of(case, study.metric))
        for case in result.cases
        if (case.line, case.protocol) == (target.line, target.protocol)
        and not case.sweep
        and mean(point.epsilon for point in case.points) <= target.epsilon
    ]
    return max(fitting, default=None)


def _target_row(study: Study, result: StudyResult, target: Target) -> str:
    found = reached(study, result, target)
    form = ".2%" if study.metric == "accuracy" else ".3f"
    told = "not run" if found is None else f"{found:{form}}{'' if found >= target.least else ' (missed)'}"
    where = f"{target.line}, {target.protocol}" if target.protocol else target.line
    return f"| {where} | {target.epsilon:g} | {target.least:{form}} | {told} |"


def _trade_offs(study: Study, result: StudyResult) -> Iterator[str]:
    titles = {"teachers": "How many teachers", "sigma": "How much noise", "records": "How many records"}
    for sweep in dict.fromkeys(case.sweep for case in result.cases if case.sweep):
        yield from ("", f"### {titles[sweep]}", "", f"![{titles[sweep]}]({FOLDER}/{study.name}-{sweep}.svg)", "")
        if sweep == SWEEP_RECORDS:
            yield from _over_records([case for case in result.cases if case.sweep == sweep], study.metric)
            continue
        yield f"| {sweep} | accuracy | answers right | publishable epsilon | data-dependent, exact | bound of 2018 |"
        yield "|---|---|---|---|---|---|"
        for case in result.cases:
            if case.sweep == sweep:
                points = case.points
                right = mean(float(p.labels_right or 0) for p in points)
                yield (
                    f"| {case.value:g} | {spread([100 * p.accuracy for p in points], 2)}% | {right:.1%} | "
                    f"{mean(p.epsilon for p in points):.3f} | {_private(case, 'epsilon_dependent')} | "
                    f"{_private(case, 'epsilon_2018')} |"
                )


def _over_records(cases: Sequence[Found], metric: str) -> Iterator[str]:
    lines = list(dict.fromkeys(case.line for case in cases))
    epsilon = mean(_epsilon(case) for case in cases)
    yield f"At epsilon {epsilon:.2f}; as many records to a teacher as ever, so fewer teachers, and lots a like share. In %."
    yield from ("", f"| share of the records | {' | '.join(lines)} |", "|---" * (len(lines) + 1) + "|")
    for share in dict.fromkeys(case.value for case in cases):
        here = {case.line: case for case in cases if case.value == share}
        cells = [spread([100 * each for each in figure_of(here[line], metric)], 1) for line in lines]
        yield f"| {Fraction(share)} | {' | '.join(cells)} |"
