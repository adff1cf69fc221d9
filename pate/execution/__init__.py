"""Where work runs: in this process, or on Ray on a laptop or a cluster. The one place that imports ray for computing."""

from typing import TYPE_CHECKING, Any

from pate.execution.base import ANYWHERE, Executor, Finished, Lost, Placement, Task
from pate.execution.serial import Serial

if TYPE_CHECKING:
    from pate.execution.on_ray import OnRay

__all__ = ["ANYWHERE", "Executor", "Finished", "Lost", "OnRay", "Placement", "Serial", "Task"]


def __getattr__(name: str) -> Any:
    if name == "OnRay":  # ray is an extra
        from pate.execution.on_ray import OnRay

        return OnRay
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
