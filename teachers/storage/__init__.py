"""Private data that the workers read from storage themselves: no record passes through the driver."""

from pate.teachers.storage.shards import Columns
from pate.teachers.storage.stored import StoredData, StoredPartition

__all__ = ["Columns", "StoredData", "StoredPartition"]
