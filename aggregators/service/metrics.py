"""Figures for Prometheus: of the HTTP layer, and of the budget that anybody with a token may see. No client is named."""

from __future__ import annotations

from typing import Any

from pate.extras import require

require("prometheus_client", "serve")

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest  # noqa: E402
from prometheus_client.exposition import CONTENT_TYPE_LATEST  # noqa: E402

MEDIA_TYPE = CONTENT_TYPE_LATEST
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_REFUSALS = ("budget-exhausted", "quota-exhausted")


class Metrics:
    """A registry of its own, so that two services in one process, as in tests, do not count together."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter("pate_requests", "Requests by HTTP status.", ["status"], registry=self.registry)
        self._refused = Counter(
            "pate_refused", "Requests that the budget or a quota did not cover.", ["reason"], registry=self.registry
        )
        self._seconds = Histogram(
            "pate_query_seconds",
            "From a question's arrival to its response, padding included.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._waiting = Gauge("pate_queries_waiting", "Questions that wait for their response now.", registry=self.registry)
        self._answered = Gauge("pate_answered", "Answers in the ledger's database.", registry=self.registry)
        self._abstained = Gauge("pate_abstained", "Abstentions in the ledger's database.", registry=self.registry)
        self._remaining = Gauge("pate_remaining_fraction", "Share of the budget that is left.", registry=self.registry)
        self._ready = Gauge("pate_ready", "1 if a question would be answered now.", registry=self.registry)
        for reason in _REFUSALS:
            self._refused.labels(reason)

    def request(self, status: int, code: str | None, query_seconds: float | None) -> None:
        """One response. query_seconds: of a question; None for other requests."""
        self._requests.labels(str(status)).inc()
        if code in _REFUSALS:
            self._refused.labels(code).inc()
        if query_seconds is not None:
            self._seconds.observe(query_seconds)

    def text(self, budget: dict[str, Any] | None, ready: bool, waiting: int) -> bytes:
        """What a scrape gets. budget: None where it cannot be read just now; the old figures stay."""
        if budget is not None:
            self._answered.set(budget["answered"])
            self._abstained.set(budget["abstained"])
            self._remaining.set(budget["remaining_fraction"])
        self._ready.set(ready)
        self._waiting.set(waiting)
        return generate_latest(self.registry)
