"""``pate submit``: a run on a Ray cluster, as a job that goes on without us."""

from __future__ import annotations

import re
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pate.commands.options import Json, print_json
from pate.commands.run import AllowUnverified, Changes, Out, RecipeName
from pate.commands.settings import parse_changes

if TYPE_CHECKING:
    from pate.execution.jobs import JobServer

ServerAddress = Annotated[
    str | None, typer.Option("--address", help="The job server, http://head:8265; else $RAY_DASHBOARD_ADDRESS or $RAY_ADDRESS.")
]


def submit(
    recipe: RecipeName,
    address: ServerAddress = None,
    settings: Changes = [],  # noqa: B006  (typer reads the default)
    data: Annotated[str | None, typer.Option("--data", help="Directory of the data sets, as the cluster sees it.")] = None,
    out: Out = Path("runs"),
    storage: Annotated[
        str | None,
        typer.Option("--storage", help="A directory that all nodes see, and this machine if it can: the run is kept there."),
    ] = None,
    submission_id: Annotated[
        str | None, typer.Option("--submission-id", help="Name of the job; a second one of that name is not sent.")
    ] = None,
    pip: Annotated[list[str], typer.Option("--pip", help="A package that the job needs; repeatable.")] = [],  # noqa: B006
    upload: Annotated[
        list[Path], typer.Option("--upload", help="Your own module or folder that the recipe names; repeatable.")
    ] = [],  # noqa: B006
    python: Annotated[str, typer.Option("--python", help="The interpreter on the cluster that has Ray.")] = "python",
    installed: Annotated[bool, typer.Option("--installed", help="pate is installed on the cluster: do not send it.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the log and bring back the results.")] = True,
    allow_unverified: AllowUnverified = False,
    json: Json = False,
) -> None:
    """Send a run to a Ray cluster, follow its log, bring back its results. If this command ends early, the job goes on.

    Example: pate submit mnist --address http://head:8265 --data /mnt/data
    """
    from pate.execution.jobs import JobServer
    from pate.experiments.recipes.checking import with_noise
    from pate.experiments.recipes.reading import read_recipe
    from pate.experiments.submitting import check_submittable, entrypoint, stage

    checked = with_noise(read_recipe(recipe, parse_changes(settings)))
    check_submittable(checked, storage)
    server = JobServer(server_address(address))
    name = submission_id or f"pate-{re.sub(r'[^a-z0-9]+', '-', checked.title.lower()) or 'run'}-{secrets.token_hex(4)}"
    seen_here = storage is not None and Path(storage).is_dir()
    environment = {"RAY_USAGE_STATS_ENABLED": "0", **({"PATE_DATA": data} if data else {})}
    with tempfile.TemporaryDirectory(prefix="pate-submit-") as folder:
        stage(checked, Path(folder), upload, installed)
        command = entrypoint(python, storage or "runs", data, through_log=not seen_here, allow_unverified=allow_unverified)
        server.submit(command, name, Path(folder), environment, pip, checked.title)
    typer.echo(f"Job {name} at {server.address}", err=True)
    if not wait:
        typer.echo(name)
        return
    place = follow_and_fetch(server, name, Path(storage) if storage is not None and seen_here else out)
    if json:
        print_json({"job": name, "run": None if place is None else str(place)})


def server_address(given: str | None) -> str:
    """Where the job server is, or an error that says how to tell."""
    import os

    from pate.errors import ParameterError

    for found in (given, os.environ.get("RAY_DASHBOARD_ADDRESS"), os.environ.get("RAY_ADDRESS")):
        if found and found.startswith(("http://", "https://")):
            return found
    raise ParameterError("Where is the job server? Give --address http://HEAD:8265, the address of the cluster's dashboard.")


def follow_and_fetch(server: JobServer, name: str, out: Path) -> Path | None:
    """Show a job's log until it ends; then bring back its results, or end as it did."""
    from pate.experiments.submitting import shown

    lines: list[str] = []

    def kept() -> object:
        for line in server.follow(name):
            lines.append(line)
            yield line

    try:
        for line in shown(kept()):  # type: ignore[arg-type]
            typer.echo(line, err=True)
    except KeyboardInterrupt:
        typer.echo(
            f"pate: The job goes on. Follow it: pate jobs logs {name} --follow; bring back its results: pate jobs results "
            f"{name}; stop it: pate jobs stop {name}",
            err=True,
        )
        raise typer.Exit(130) from None
    end_as(server, name)
    return bring_back(lines, out)


def end_as(server: JobServer, name: str) -> None:
    """Return if the job succeeded; else end with its own exit code."""
    job = server.job(name)
    if job.status != "SUCCEEDED":
        typer.echo(f"pate: Job {name} ended: {job.status.lower()}. {' '.join(job.message.split())[:300]}", err=True)
        raise typer.Exit(job.exit_code or 1)


def bring_back(lines: list[str], out: Path) -> Path | None:
    """The results in a log, unpacked into ``out``."""
    from pate.experiments.reports.page import OWNER, PUBLIC
    from pate.experiments.submitting import finished_in, unpacked

    found = unpacked(lines, out)
    if found is None:  # on storage that was named
        place = finished_in(lines)
        typer.echo(f"Results: {place or 'none'}")
        return place
    place, everything = found
    typer.echo(f"Results: {place}")
    typer.echo(f"Report: {place / (OWNER if everything else PUBLIC)}")
    if not everything:
        typer.echo("Only what may be published travels in a log. The owner's copy stays there; --storage keeps all of it.")
    return place
