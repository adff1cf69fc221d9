"""``--set key=value``: the parameters of a part, read from the command line."""

from __future__ import annotations

from collections.abc import Sequence

from pate.errors import ParameterError

Setting = int | float | bool | str


def parse_settings(settings: Sequence[str]) -> dict[str, Setting]:
    """Parameters from ``key=value`` strings; a value is a whole number, a number, true/false, or else text.

    Everything that is wrong is reported at once.

    >>> parse_settings(["sigma=40", "threshold=1e2", "charging=joint", "verbose=false"])
    {'sigma': 40, 'threshold': 100.0, 'charging': 'joint', 'verbose': False}
    """
    parsed: dict[str, Setting] = {}
    problems: list[str] = []
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not key.isidentifier() or not value:
            problems.append(f"got {setting!r}")
        elif key in parsed:
            problems.append(f"{key!r} is given twice")
        else:
            parsed[key] = _value(value)
    if problems:
        raise ParameterError(f"--set must look like key=value, each key once: {'; '.join(problems)}. Example: --set sigma=40")
    return parsed


def _value(text: str) -> Setting:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
