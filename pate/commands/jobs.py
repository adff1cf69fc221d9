"""``pate jobs``: runs on a cluster, found again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pate.commands.options import Json, print_json
from pate.commands.run import Out
from pate.commands.submit import ServerAddress, bring_back, end_as, server_address

app = typer.Typer(no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="JOB", help="A job of `pate jobs list`.")]


@app.callback()
def jobs() -> None:
    """Runs that were sent to a Ray cluster."""


@app.command("list")
def list_jobs(
    address: ServerAddress = None,
    everything: Annotated[bool, typer.Option("--all", help="Also jobs that pate did not send.")] = False,
    json: Json = False,
) -> None:
    """The jobs that pate sent."""
    from pate.execution.jobs import JobServer

    found = [job for job in JobServer(server_address(address)).list() if everything or "pate" in job.metadata]
    found.sort(key=lambda job: job.started or 0, reverse=True)
    if json:
        print_json([{**job.__dict__, "metadata": dict(job.metadata)} for job in found])
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("job", "recipe", "status", "began", title=f"{len(found)} jobs")
    for job in found:
        began = "–" if job.started is None else datetime.fromtimestamp(job.started, UTC).isoformat(" ", "seconds")
        table.add_row(job.id, job.metadata.get("pate", "–"), job.status, began)
    Console().print(table)


@app.command("status")
def status(job: Id, address: ServerAddress = None, json: Json = False) -> None:
    """How a job is."""
    from pate.execution.jobs import JobServer

    found = JobServer(server_address(address)).job(job)
    if json:
        print_json({**found.__dict__, "metadata": dict(found.metadata)})
    else:
        code = "" if found.exit_code is None else f", exit code {found.exit_code}"
        typer.echo(f"{found.id}: {found.status}{code}. {' '.join(found.message.split())}")


@app.command("logs")
def logs(
    job: Id,
    address: ServerAddress = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until it ends; then end as it did.")] = False,
) -> None:
    """What a job printed."""
    from pate.execution.jobs import JobServer
    from pate.experiments.submitting import shown

    server = JobServer(server_address(address))
    try:
        for line in shown(server.follow(job) if follow else server.logs(job).splitlines()):
            typer.echo(line)
    except KeyboardInterrupt:
        typer.echo(f"pate: The job goes on. Stop it: pate jobs stop {job}", err=True)
        raise typer.Exit(130) from None
    if follow:
        end_as(server, job)


@app.command("stop")
def stop(job: Id, address: ServerAddress = None) -> None:
    """Stop a job. What it had finished is kept where it runs, and what it was charged stays charged."""
    from pate.execution.jobs import JobServer

    found = JobServer(server_address(address)).stop(job)
    typer.echo(f"{found.id}: {found.status}")


@app.command("results")
def results(job: Id, address: ServerAddress = None, out: Out = Path("runs")) -> None:
    """Bring back the results of a job that has ended."""
    from pate.errors import ClusterError
    from pate.execution.jobs import ENDED, JobServer

    server = JobServer(server_address(address))
    if server.job(job).status not in ENDED:
        raise ClusterError(f"Job {job!r} has not ended yet. Wait for it with `pate jobs logs {job} --follow`.")
    end_as(server, job)
    bring_back(server.logs(job).splitlines(), out)
