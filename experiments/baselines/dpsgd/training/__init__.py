"""The training itself, on torch. Importing this package without torch is a one-line hint at the extra that brings it."""

from pate.extras import require

require("torch", "train")
