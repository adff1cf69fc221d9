"""Reading a recipe: TOML, changes to it, and everything that is wrong with it in one message."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, overload

import tomli_w
from pydantic import BaseModel, ValidationError

from pate.errors import DataError, RecipeError
from pate.experiments.recipes.checking import recipe_problems, table_problems, with_noise
from pate.experiments.recipes.model import NOT_FOR, DpsgdRecipe, ErmRecipe, Recipe, RunRecipe
from pate.experiments.recipes.parts import named_parts, places_of, steps_of, without_old_parameters
from pate.references import did_you_mean

BUILT_IN = Path(__file__).parent
SUFFIX = ".toml"


def read_recipe(place: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe, checked: built-in by name, from a .toml file, or given as nested tables.

    changes: as :func:`change_all` takes them.
    """
    return check_recipe(*_changed(place, changes))


def read_dpsgd_recipe(place: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> DpsgdRecipe:
    """As :func:`read_recipe`, for the baseline: the same data and budget with the table ``[dpsgd]``."""
    tables, subject = _changed(place, changes)
    if "dpsgd" not in tables:
        raise RecipeError(
            f"{subject}: it has no table [dpsgd], which says how the baseline is trained. Add one, for example --set "
            "dpsgd.model=logistic --set dpsgd.lot_size=1024 --set dpsgd.epochs=20."
        )
    return check_recipe(tables, subject, DpsgdRecipe)


def read_erm_recipe(place: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> ErmRecipe:
    """As :func:`read_recipe`, for private empirical risk minimisation: the same data and budget with the table ``[erm]``."""
    tables, subject = _changed(place, changes)
    if "erm" not in tables:
        raise RecipeError(
            f"{subject}: it has no table [erm], which says how the baseline is learned. Add one, for example --set "
            "erm.model=logistic --set erm.data_norm=4.0. It separates two classes, no more."
        )
    return check_recipe(tables, subject, ErmRecipe)


def read_whole_recipe(place: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The tables of a recipe and of the baselines in the same file, checked, with every default; sigma as a number."""
    tables, subject = _changed(place, changes)
    kinds: dict[str, Any] = {"dpsgd": DpsgdRecipe, "erm": ErmRecipe}
    baselines = {name: check_recipe(tables, subject, kind).to_dict()[name] for name, kind in kinds.items() if name in tables}
    return with_noise(check_recipe(tables, subject)).to_dict() | baselines


def load_tables(place: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What to call it in messages, and its tables, not yet checked."""
    if isinstance(place, Mapping):
        return "The recipe", _copied(place)
    path = find_recipe(place)
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"{path}: the recipe cannot be read ({error.strerror or error}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: not TOML: {error}. `pate recipes show digits` prints one to compare with.") from None
    tables.setdefault("title", path.stem)
    return f"Recipe {path.name}", tables


def find_recipe(place: str | Path) -> Path:
    """The file of a recipe: a path that ends in .toml, or the name of a built-in one."""
    name = str(place)
    if name.endswith(SUFFIX) or "/" in name:
        path = Path(name)
        if not path.is_file():
            raise RecipeError(f"{path}: there is no such recipe. `pate recipes new {path.stem}.toml` writes one to begin with.")
        return path
    known = built_in_recipes()
    if name not in known:
        raise RecipeError(
            f"{name!r} is no built-in recipe{did_you_mean(name, known)} Known: {', '.join(known)}; your own is a file that "
            "ends in .toml."
        )
    return known[name]


def built_in_recipes() -> dict[str, Path]:
    return {path.stem: path for path in sorted(BUILT_IN.glob(f"*{SUFFIX}"), key=lambda path: path.stem)}


def change(tables: dict[str, Any], path: str, value: Any, subject: str) -> None:
    """Set ``tables[a][b]`` for the path "a.b"; the tables on the way are made where there are none."""
    *above, last = steps_of(path)
    if not all((*above, last)):
        raise RecipeError(f"{subject}: a change must name a key by its path, such as aggregator.sigma; got {path!r}.")
    here = tables
    for name in above:
        here = here.setdefault(name, {})
        if not isinstance(here, dict):
            raise RecipeError(f"{subject}: {path} cannot be set, since {name!r} is a value and not a table.")
    if isinstance(value, Mapping) and isinstance(here.get(last), dict):
        for key, each in value.items():
            change(here[last], key, each, subject)
    else:
        here[last] = _copied(value)


def change_all(tables: dict[str, Any], changes: Mapping[str, Any], subject: str) -> None:
    """The changes of one command, values by path, ``{"aggregator.sigma": 20}``; a table is merged into the one that is there.

    Where another part is named (``{"student.model": "vat"}``), the old one's parameters go, but for those given here.
    """
    before = named_parts(tables)
    for path, value in changes.items():
        change(tables, path, value, subject)
    given = {place for path, value in changes.items() for place in places_of(steps_of(path), value)}
    without_old_parameters(tables, before, given)


@overload
def check_recipe(tables: Mapping[str, Any], subject: str = ...) -> Recipe: ...
@overload
def check_recipe(tables: Mapping[str, Any], subject: str, kind: type[DpsgdRecipe]) -> DpsgdRecipe: ...
@overload
def check_recipe(tables: Mapping[str, Any], subject: str, kind: type[ErmRecipe]) -> ErmRecipe: ...
def check_recipe(tables: Mapping[str, Any], subject: str = "The recipe", kind: type[RunRecipe] = Recipe) -> RunRecipe:
    """The recipe in ``tables``; or a RecipeError that lists all problems at once."""
    own = {name: value for name, value in tables.items() if name not in NOT_FOR[kind]}
    try:
        recipe = kind.model_validate(own)
        problems = list(recipe_problems(recipe))
    except ValidationError as error:
        problems = list(_problems(error, kind))
        broken = {str(each["loc"][0]) for each in error.errors() if each["loc"]}
        problems += _problems_of_sound_tables(own, broken, kind)
    if problems:
        more = f"{len(problems)} problems: " if len(problems) > 1 else ""
        raise RecipeError(f"{subject}: {more}{'; '.join(problems)}.")
    return recipe


def recipe_text(recipe: RunRecipe | Mapping[str, Any]) -> str:
    """TOML, from which :func:`read_recipe` makes an equal recipe."""
    return tomli_w.dumps(recipe if isinstance(recipe, Mapping) else recipe.to_dict())


def _changed(place: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
    subject, tables = load_tables(place)
    change_all(tables, changes or {}, subject)
    return tables, subject


def _problems(error: ValidationError, kind: type[RunRecipe]) -> Iterator[str]:
    for each in error.errors():
        # Of a union ("true, false or a table") pydantic reports every branch, named in the path.
        path = [str(step) for step in each["loc"] if step not in ("bool", "FeaturesTable")]
        where = ".".join(path)
        if each["type"] == "extra_forbidden":
            yield f"{where}: unknown key{did_you_mean(path[-1], _keys(path[:-1], kind)).rstrip('.')}"
        elif each["type"] == "missing":
            yield f"{where}: missing"
        elif where:
            found = repr(each["input"])
            yield f"{where}: {each['msg'][0].lower()}{each['msg'][1:]}, got {found[:60]}"


def _keys(path: list[str], kind: type[RunRecipe]) -> list[str]:
    """The keys of the table at ``path``."""
    table: Any = kind
    for step in path:
        annotation = table.model_fields[step].annotation
        models = [
            each for each in (annotation, *get_args(annotation)) if isinstance(each, type) and issubclass(each, BaseModel)
        ]
        if not models:
            return []
        table = models[0]
    return list(table.model_fields)


def _problems_of_sound_tables(tables: Mapping[str, Any], broken: set[str], kind: type[RunRecipe]) -> list[str]:
    """What is wrong inside the tables that pydantic found nothing wrong with, so that one run tells all."""
    found: list[str] = []
    for name, value in tables.items():
        if name in broken or name not in kind.model_fields or not isinstance(value, Mapping):
            continue
        annotation = kind.model_fields[name].annotation
        table = next(each for each in (annotation, *get_args(annotation)) if isinstance(each, type))
        if issubclass(table, BaseModel):
            found += table_problems(table.model_validate(dict(value)), name)
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list | tuple) else value
