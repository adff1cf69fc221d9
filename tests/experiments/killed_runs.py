"""Runs in a child that is killed at a chosen point, and what their ledger then says."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pate.execution import Serial
from pate.experiments import array_files
from pate.experiments.pipeline import answering, folder, rounds, store, telling
from pate.experiments.pipeline import launch as launching
from pate.experiments.pipeline.launch import Finished, launch
from pate.experiments.recipes.reading import check_recipe
from pate.ledger import Ledger, faultpoints


def go(out: Path, tables: dict[str, Any], **options: Any) -> Finished:
    return launch(check_recipe(tables), out=out, executor=Serial(), show="none", **options)


def _until_death(out: Path, tables: dict[str, Any], die_at: int, again: bool) -> None:
    """In a child: run, and be killed at the ``die_at``-th thing that is said, written or committed."""
    seen = 0

    def event(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            event()
            return call(*args, **named)

        return called

    for module in (array_files, answering, folder, rounds, store, launching):
        for name in ("write_text", "write_private_arrays"):
            if hasattr(module, name):
                setattr(module, name, before(getattr(module, name)))
    launching.write_all = event  # type: ignore[assignment]
    telling.Teller.say = before(telling.Teller.say)  # type: ignore[method-assign]
    faultpoints.reached = event
    go(out, tables, again=again)


def killed(out: Path, tables: dict[str, Any], die_at: int, again: bool = False) -> bool:
    """Whether the child was killed; False: it came to the end."""
    child = multiprocessing.get_context("fork").Process(target=_until_death, args=(out, tables, die_at, again))
    child.start()
    child.join(60)
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


def charges_in(home: Path) -> list[str]:
    """The keys of what was charged to the durable ledger."""
    (fingerprint,) = Ledger.datasets(home / "ledger.db")
    with Ledger.open(home / "ledger.db", fingerprint) as ledger:
        ledger.verify()
        return [str(entry.key) for entry in ledger.entries() if entry.kind == "reserve"]
