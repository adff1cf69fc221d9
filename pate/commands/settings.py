"""``--set key=value``: the parameters of a part, read from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from pate.errors import ParameterError

Setting = int | float | bool | str | None | list[Any] | dict[str, Any]


def parse_settings(settings: Sequence[str], option: str = "--set") -> dict[str, Setting]:
    """Parameters from ``key=value`` strings; a value is a whole number, a number, true/false, null, or else text.

    A value that begins with ``[``, ``{`` or ``"`` is JSON: a list, an object, or text that would else be a number.
    Everything that is wrong is reported at once.

    >>> parse_settings(["sigma=40", "threshold=1e2", "charging=joint", "verbose=false"])
    {'sigma': 40, 'threshold': 100.0, 'charging': 'joint', 'verbose': False}
    >>> parse_settings(["hidden=[64, 32]", 'parameters={"C": 10}', 'version="2"', "max_depth=null"])
    {'hidden': [64, 32], 'parameters': {'C': 10}, 'version': '2', 'max_depth': None}
    """
    return _parsed(settings, option, str.isidentifier, "sigma=40")


def parse_changes(settings: Sequence[str], option: str = "--set") -> dict[str, Setting]:
    """As :func:`parse_settings`, for keys that are paths in a recipe.

    >>> parse_changes(["aggregator.sigma=20", "title=mine"])
    {'aggregator.sigma': 20, 'title': 'mine'}
    """
    return _parsed(settings, option, lambda key: all(part.isidentifier() for part in key.split(".")), "aggregator.sigma=40")


def parse_grid(settings: Sequence[str], option: str = "--grid") -> dict[str, list[Setting]]:
    """Values to try by path in a recipe, from ``path=value,value,…``.

    >>> parse_grid(["aggregator.sigma=20,40", "student.model=spreading"])
    {'aggregator.sigma': [20, 40], 'student.model': ['spreading']}
    """
    grid: dict[str, list[Setting]] = {}
    for setting in settings:
        path, _, values = setting.partition("=")
        each = [parse_changes([f"{path}={value}"], option) for value in values.split(",")]
        grid[path.strip()] = [value for found in each for value in found.values()]
    return grid


def parse_shape(text: str | None, option: str = "--shape") -> tuple[int, ...] | None:
    """The shape of one record from text; None stays None.

    >>> parse_shape("28,28"), parse_shape("3x32x32"), parse_shape(None)
    ((28, 28), (3, 32, 32), None)
    """
    if text is None:
        return None
    sizes = re.split(r"[,x]", text.replace(" ", ""))
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise ParameterError(f"{option} must be whole numbers of at least 1, such as 28,28; got {text!r}.")
    return tuple(int(size) for size in sizes)


def _parsed(settings: Sequence[str], option: str, is_key: Callable[[str], bool], example: str) -> dict[str, Setting]:
    parsed: dict[str, Setting] = {}
    problems: list[str] = []
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not is_key(key) or not value:
            problems.append(f"got {setting!r}")
        elif key in parsed:
            problems.append(f"{key!r} is given twice")
        else:
            try:
                parsed[key] = _value(value)
            except ValueError as error:
                problems.append(f"the value of {key!r} begins as JSON but is none ({error})")
    if problems:
        raise ParameterError(
            f"{option} must look like key=value, each key once: {'; '.join(problems)}. Example: {option} {example}"
        )
    return parsed


def _value(text: str) -> Setting:
    if text[0] in '[{"' or text == "null":
        found: Setting = json.loads(text, parse_constant=_refuse)
        return found
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")
