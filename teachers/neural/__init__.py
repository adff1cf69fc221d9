"""Teachers on torch: any ``nn.Module`` through an adapter, and a small CNN that is good at few images."""

from pate.teachers.neural.cnn import CNNTeachers
from pate.teachers.neural.family import TorchTeachers

__all__ = ["CNNTeachers", "TorchTeachers"]
