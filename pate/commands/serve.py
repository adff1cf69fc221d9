"""``pate serve``: the aggregator behind HTTP. ``pate token``: who may ask it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pate.commands.options import (
    Address,
    AggregatorName,
    BudgetDelta,
    BudgetEpsilon,
    BudgetSlack,
    Json,
    LedgerPlace,
    Settings,
    Unit,
    print_json,
)
from pate.commands.settings import parse_settings, parse_shape
from pate.commands.trouble import in_words

if TYPE_CHECKING:
    from pate.aggregators.service.tokens import Role, Tokens

app = typer.Typer(help="Who may ask the service: add, list, renew, remove.", no_args_is_help=True)

_FIRST: dict[str, Role] = {"owner": "owner", "analyst": "analyst"}


def serve(
    aggregator: AggregatorName,
    ledger: LedgerPlace,
    votes: Annotated[
        Path | None,
        typer.Option("--votes", help="Votes on a public pool, of `pate teachers vote`; clients send record numbers."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="A run directory of `pate teachers train`; clients send records themselves.")
    ] = None,
    settings: Settings = [],  # noqa: B006  (typer reads the default)
    budget_epsilon: BudgetEpsilon = None,
    delta: BudgetDelta = None,
    slack: BudgetSlack = 0.0,
    shape: Annotated[
        str | None,
        typer.Option("--shape", help="With --run: shape of one record, such as 28,28, where the run does not state it."),
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option("--fingerprint", help="Of the private data, where the votes do not state it.")
    ] = None,
    unit: Unit = None,
    tokens: Annotated[
        Path | None, typer.Option("--tokens", help="The file of `pate token`; made beside the ledger unless given.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 8080,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="Certificate chain, PEM; with --tls-key.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Private key, PEM; with --tls-cert.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS, though others can reach the host: something before it must encrypt.")
    ] = False,
    pad: Annotated[
        float, typer.Option("--pad", min=0.0, max=60.0, help="Answers leave at whole multiples of so many seconds; 0: at once.")
    ] = 0.0,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="Requests per second of a client whose token states none.")
    ] = None,
    max_batch: Annotated[int, typer.Option("--max-batch", min=1, max=2000, help="Questions in one request.")] = 1000,
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=1, help="Bytes in one request.")] = 8 << 20,
    open_metrics: Annotated[bool, typer.Option("--open-metrics", help="/metrics without a token.")] = False,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    allow_unverified: Annotated[
        bool, typer.Option("--allow-unverified", help="An aggregator of your own that has not passed `pate check`.")
    ] = False,
    ray: Annotated[
        bool, typer.Option("--ray", help="As an actor on Ray, where teachers vote, too. See docs/service.md.")
    ] = False,
    address: Address = None,
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="With --ray: processes that take HTTP requests.")] = 1,
) -> None:
    """Answer questions over HTTP, each paid for from the ledger before its noise is drawn.

    One service for one ledger: a second one ends with exit code 4. SIGTERM and Ctrl-C end it after the answers that are due.

    Example: pate serve --votes votes.npz -a gnmax -s sigma=40 --ledger ledger.db --budget-epsilon 1
    """
    from pate.aggregators.service.app import HttpSettings
    from pate.aggregators.service.front import LocalFront
    from pate.aggregators.service.server import Listening, run_server
    from pate.aggregators.service.token_file import TokenFile
    from pate.experiments.serving import ServeOptions, open_service

    if (address is not None or replicas != 1) and not ray:
        raise typer.BadParameter("--address and --replicas belong to --ray")
    listening = Listening(host, port, tls_cert, tls_key, insecure, log_level)
    http = HttpSettings(max_bytes, max_batch, rate, pad, open_metrics)
    options = ServeOptions(
        aggregator,
        ledger,
        parse_settings(settings),
        votes=None if votes is None else str(votes),
        run=None if run is None else str(run),
        fingerprint=fingerprint,
        unit=unit,
        shape=parse_shape(shape),
        budget_epsilon=budget_epsilon,
        delta=delta,
        slack=slack,
        allow_unverified=allow_unverified,
    )
    with in_words(lambda: "What was answered is in the ledger: the same command goes on from there."):
        clients = known_tokens(tokens, ledger)
        if ray:
            from pate.experiments.serving_on_ray import serve_on_ray

            options = options.with_quotas(clients.quotas)
            serve_on_ray(
                options,
                lambda: clients if clients.clients or tokens else first_tokens(ledger),
                http,
                listening,
                replicas,
                address,
            )
            return
        with open_service(options) as service, listening.open() as place:
            # Tokens are made once all else is well: they are shown only once.
            if not clients.clients and tokens is None:
                first_tokens(ledger)
            known = TokenFile(tokens or _beside(ledger), lambda changed: service.set_quotas(changed.quotas))
            run_server(LocalFront(service), known, http, listening, place)


def known_tokens(path: Path | None, ledger: str) -> Tokens:
    """The clients in ``path``; where none is given, in the file beside the ledger, or nobody if there is none yet."""
    from pate.aggregators.service.tokens import Tokens
    from pate.errors import ParameterError

    if path is None and "://" in ledger:
        raise ParameterError("A ledger in a database has no file beside it: name one with --tokens (`pate token add`).")
    beside = _beside(ledger)
    return Tokens([]) if path is None and not beside.exists() else Tokens.read(path or beside)


def first_tokens(ledger: str) -> Tokens:
    """An owner and an analyst in a new file beside the ledger; their tokens are printed."""
    from pate.aggregators.service.tokens import Tokens, add_client

    path = _beside(ledger)
    made = {name: add_client(path, name, role) for name, role in _FIRST.items()}
    typer.echo(f"New tokens in {path}. They are shown once, and only their hashes are kept:")
    for name, token in made.items():
        typer.echo(f"{name} {token}")
    sys.stdout.flush()
    return Tokens.read(path)


def _beside(ledger: str) -> Path:
    return Path(f"{ledger}.tokens.json")


TokensFile = Annotated[Path, typer.Option("--tokens", help="The file of tokens, made with the first one. Private.")]
ClientName = Annotated[str, typer.Argument(metavar="CLIENT", help="Name of the client.")]


@app.command()
def add(
    client: ClientName,
    tokens: TokensFile,
    owner: Annotated[bool, typer.Option("--owner", help="May see the owner's page and /metrics; else an analyst.")] = False,
    quota: Annotated[
        int | None, typer.Option("--quota", min=0, help="Questions it may have paid for; no limit unless given.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="Its requests per second; as `pate serve` says.")
    ] = None,
) -> None:
    """Make a token and print it, once. A service that runs takes it up within a second (with --ray, at its next start).

    Example: pate token add ann --tokens tokens.json --quota 500
    """
    from pate.aggregators.service.tokens import add_client

    role: Role = "owner" if owner else "analyst"
    typer.echo(add_client(tokens, client, role, quota, rate))


@app.command("list")
def list_(tokens: TokensFile, json: Json = False) -> None:
    """Who has a token, in which role, and with which limits."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from pate.aggregators.service.tokens import Tokens

    clients = Tokens.read(tokens).clients
    if json:
        print_json([{"client": each.client, "role": each.role, "quota": each.quota, "rate": each.rate} for each in clients])
        return
    table = Table("client", "role", "quota", "requests/s")
    for each in clients:
        limits = ("none" if value is None else f"{value:g}" for value in (each.quota, each.rate))
        table.add_row(escape(each.client), each.role, *limits)
    Console().print(table)


@app.command()
def renew(client: ClientName, tokens: TokensFile) -> None:
    """A new token in place of the old one, with the same role and limits. A service that runs takes it up by itself."""
    from pate.aggregators.service.tokens import renew_client

    typer.echo(renew_client(tokens, client))


@app.command()
def remove(client: ClientName, tokens: TokensFile) -> None:
    """Take a client's token away. A service that runs refuses it within a second (with --ray, from its next start on)."""
    from pate.aggregators.service.tokens import remove_client

    remove_client(tokens, client)
    typer.echo(f"{client} has no token any more. A service with --ray must be started again to hear of it.")
