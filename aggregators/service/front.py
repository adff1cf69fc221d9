"""What HTTP stands before: a service in this process, or one elsewhere that is spoken to in the same words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from pate.aggregators.service.desk import Service


class Front(Protocol):
    """A service as the web application sees it."""

    async def ask(self, client: str, key: str, queries: Sequence[Any]) -> list[int]:
        """Labels, or ABSTAIN. Raises QueryError, KeyConflict, QuotaExceeded, BudgetExceeded, ExecutionError."""

    async def budget(self) -> dict[str, Any]:
        """For anybody with a token."""

    async def mechanism(self) -> dict[str, Any]:
        """For anybody with a token."""

    async def owner(self) -> dict[str, Any]:
        """For the owner."""

    async def verify(self) -> dict[str, Any]:
        """For the owner. Raises LedgerError where ledger or answers are unsound."""

    async def ready(self) -> bool:
        """Whether a question would be answered now."""


class LocalFront:
    """A service in this process."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def ask(self, client: str, key: str, queries: Sequence[Any]) -> list[int]:
        if self.service.source.takes == "inputs":  # making arrays of long lists would hold up everyone else's requests
            return await asyncio.wrap_future(await asyncio.to_thread(self.service.submit, client, key, queries))
        return await asyncio.wrap_future(self.service.submit(client, key, queries))

    async def budget(self) -> dict[str, Any]:
        return await asyncio.to_thread(self.service.budget_facts)

    async def mechanism(self) -> dict[str, Any]:
        return self.service.mechanism_facts()

    async def owner(self) -> dict[str, Any]:
        return await asyncio.to_thread(self.service.owner_facts)

    async def verify(self) -> dict[str, Any]:
        return await asyncio.to_thread(self.service.verify)

    async def ready(self) -> bool:
        return self.service.trouble is None
