"""``pate dpsgd``: the baseline, on the data, budget and test of a recipe; and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from pate.commands.options import Json, print_json
from pate.commands.run import Changes, DataFolder, Out, RecipeName, how_to_go_on, print_finished
from pate.commands.settings import parse_changes
from pate.commands.trouble import in_words, shown

if TYPE_CHECKING:
    from pate.experiments.baselines.dpsgd.accounting import Cost


class _TrainUnlessNamed(TyperGroup):
    """``pate dpsgd mnist`` is ``pate dpsgd train mnist``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["train", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(no_args_is_help=True, cls=_TrainUnlessNamed)


@app.callback()
def dpsgd() -> None:
    """DP-SGD, the baseline: gradients clipped record by record, and noise.

    Example: pate dpsgd mnist --set privacy.epsilon=3
    """


@app.command("train")
def train(
    recipe: RecipeName,
    settings: Changes = [],  # noqa: B006  (typer reads the default)
    data: DataFolder = None,
    out: Out = Path("runs"),
    again: Annotated[
        bool, typer.Option("--again", help="A run of its own, though the same one is there: it is charged once more.")
    ] = False,
    json: Json = False,
) -> None:
    """Train on the private data of a recipe as its table `dpsgd` says; the word `train` may be left out.

    The same command goes on where a stopped run was: what is trained and paid for is found and not done again.
    """
    from pate.experiments.baselines.dpsgd.launch import MODEL, launch_dpsgd
    from pate.experiments.recipes.reading import find_recipe, read_dpsgd_recipe

    checked = read_dpsgd_recipe(recipe, parse_changes(settings))
    with in_words(how_to_go_on(checked, out, again)):
        finished = launch_dpsgd(checked, base=find_recipe(recipe).parent, data=data, out=out, show=shown(), again=again)
    if json:
        print_json({"run": str(finished.folder), "result": finished.result.model_dump(mode="json")})
    else:
        print_finished(finished)
        typer.echo(f"Model: {finished.folder / MODEL}")


@app.command("account")
def account(
    rate: Annotated[
        float | None, typer.Option("--rate", "-q", help="Sampling rate: expected lot over the number of records.")
    ] = None,
    lot: Annotated[int | None, typer.Option("--lot", min=1, help="Expected lot, with --records, in place of --rate.")] = None,
    records: Annotated[int | None, typer.Option("--records", "-n", min=1, help="Number of records (or users).")] = None,
    noise: Annotated[float | None, typer.Option("--noise", help="Noise multiplier, in clipping bounds.")] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="A target: find the noise multiplier.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1)] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", help="In place of --steps; an epoch is 1/rate steps.")] = None,
    delta: Annotated[float, typer.Option("--delta")] = 1e-5,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw epsilon over steps: RDP and PLD against strong composition.")
    ] = None,
    json: Json = False,
) -> None:
    """What a training costs, or how much noise a target epsilon asks for. No data is touched.

    Example: pate dpsgd account --rate 0.01 --noise 4 --steps 10000 --plot composition.png
    """
    from pate.errors import ParameterError
    from pate.experiments.baselines.dpsgd.accounting import Training, composition, noise_for_epsilon
    from pate.privacy.subsampled import check_rate

    if (rate is None) == (lot is None or records is None):
        raise ParameterError("Give --rate, or --lot and --records.")
    if (steps is None) == (epochs is None):
        raise ParameterError("Give --steps or --epochs, one of the two.")
    if (noise is None) == (epsilon is None):
        raise ParameterError("Give --noise, or a target --epsilon, one of the two.")
    share = check_rate(rate if rate is not None else (lot or 0) / (records or 1))
    count = steps if steps is not None else max(1, round((epochs or 1) / share))
    sigma = noise if noise is not None else noise_for_epsilon(share, count, epsilon or 0.0, delta)
    training = Training(share, sigma, count)
    cost = training.cost(delta)
    if plot is not None:
        from pate.experiments.baselines.dpsgd.plots import plot_composition

        with in_words(lambda: "Nothing was drawn."):
            plot_composition(composition(training, delta), plot)
    if json:
        print_json(cost.to_json())
        return
    _print(cost)
    if plot is not None:
        typer.echo(f"Plot: {plot}")


def _print(cost: Cost) -> None:
    from rich.console import Console
    from rich.table import Table

    training = cost.training
    table = Table(title=f"DP-SGD, {training.steps} steps at rate {training.rate:.4g}", show_header=False)
    rows: dict[str, Any] = {
        "noise multiplier": f"{training.sigma:g}",
        "epsilon": f"{cost.epsilon:.4f} at delta {cost.delta:g}, by {cost.accountant}: may be published",
        "by RDP": f"{cost.rdp.epsilon:.4f} (order {cost.rdp.order:g}); ledgers add these up",
        "by PLD": "dp_accounting is not installed: pip install 'pate[dpsgd]'" if cost.pld is None else f"{cost.pld:.4f}",
        "neighbours": "one record (or user) more or less",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)
