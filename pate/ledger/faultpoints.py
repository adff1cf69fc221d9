"""Names for the moments between two durable steps, so that tests can kill a process at each of them."""

from __future__ import annotations

APPEND_STEPS = (
    "transaction begun",
    "budget checked",
    "row inserted",
    "row committed",
    "head file written",
    "head file renamed",
    "head confirmed",
)
"""The steps of one append, in the order in which they are reached. PostgreSQL skips the head file."""


def reached(step: str) -> None:
    """Do nothing. A fault-injection test replaces this function in its own subprocess."""
