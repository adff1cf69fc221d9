"""The keys of a baseline's table, checked, with all that is wrong in one message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from pate.errors import ParameterError
from pate.references import did_you_mean


class Checked(Protocol):
    """A pydantic model that also says what no single key is to blame for."""

    def __init__(self, **values: Any) -> None: ...

    def problems(self) -> list[str]: ...


S = TypeVar("S", bound=Checked)


def checked_settings(kind: type[S], values: dict[str, Any], words: Callable[[str, Any], str | None] = lambda *_: None) -> S:
    """Settings of this kind, or a ParameterError that tells all that is wrong. words: what to say of a key's value in place of
    pydantic's own, where it has something better."""
    try:
        found = kind(**values)
        problems = found.problems()
    except ValidationError as error:
        problems = [_problem(each, kind, words) for each in error.errors()]
    if problems:
        raise ParameterError(f"{'; '.join(dict.fromkeys(problems))}.")
    return found


def _problem(each: Any, kind: Any, words: Callable[[str, Any], str | None]) -> str:
    key = str(each["loc"][0])
    if each["type"] == "extra_forbidden":
        known: type[BaseModel] = kind
        return f"{key}: unknown key{did_you_mean(key, known.model_fields).rstrip('.')}"
    if each["type"] == "missing":
        return f"{key}: missing"
    better = words(key, each["input"])
    return better or f"{key}: {each['msg'][0].lower()}{each['msg'][1:]}, got {each['input']!r}"
