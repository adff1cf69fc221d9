"""A user's own data in files: tables, NumPy arrays or directories of pictures; private, public and test named explicitly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from pate.errors import DataError, ParameterError, PartitionError
from pate.experiments.datasets.base import DatasetSource, Split, TestSet
from pate.experiments.datasets.own_pictures import picture_files, read_pictures
from pate.experiments.datasets.own_tables import Label, as_public, check_columns, read_public, read_test
from pate.teachers import PrivateData
from pate.teachers.data import check_name
from pate.teachers.storage.shards import Columns, read_shard
from pate.teachers.storage.tables import check_class_names

_TABLES, _ARRAYS = (".csv", ".parquet"), (".npz", ".npy")


@dataclass(frozen=True)
class Files(DatasetSource):
    """Your own data: .csv or .parquet tables, .npz or .npy arrays, or directories of pictures. All three parts are of one kind.

    private: records with labels and ids; public: records without; test: records with labels, or nothing.
    classes: how many there can be, or their names in the order of the labels 0, 1, …; declared, never counted. A label is a
    number or such a name.
    dataset: its name in the ledger: always the same for the same people.
    id, label, group_by, inputs: columns of tables; inputs are all columns of numbers of the public file unless named.
    shape: of a record; the public ones' unless given.
    size, colour: of pictures, [height, width]; others are scaled to it. All must have the first public one's unless given.
    test_is_public: figures about the test records may be published. is_benchmark: all records are public, nothing is private.
    """

    name: ClassVar[str] = "files"
    private: str
    public: str
    classes: int | Sequence[str]
    dataset: str
    test: str | None = None
    id: str = "id"
    label: str = "label"
    group_by: str | None = None
    inputs: Sequence[str] | None = None
    shape: Sequence[int] | None = None
    size: Sequence[int] | None = None
    colour: bool = False
    test_is_public: bool = False
    is_benchmark: bool = False

    def __post_init__(self) -> None:
        check_name(self.dataset)
        for what in ("private", "public", "test"):
            if not isinstance(getattr(self, what), str | None):
                raise ParameterError(f"data.{what} must be a path, got {getattr(self, what)!r}.")
        if isinstance(self.classes, str | bool) or self.n_classes < 2 or len(set(self.class_names)) < self.n_classes:
            raise ParameterError(f"data.classes must be at least 2, or a list of at least 2 names, got {self.classes!r}.")
        check_class_names(self.class_names)
        if isinstance(self.inputs, str):
            raise ParameterError(f"data.inputs must be a list of columns, got {self.inputs!r}.")
        for what in ("shape", "size"):
            sizes = getattr(self, what)
            if sizes is not None and not (
                isinstance(sizes, Sequence) and all(isinstance(side, int) and side > 0 for side in sizes)
            ):
                raise ParameterError(f"data.{what} must be whole numbers of at least 1, got {sizes!r}.")
        if self.size is not None and len(self.size) != 2:
            raise ParameterError(f"data.size must be [height, width], got {self.size!r}.")

    @property
    def benchmark(self) -> bool:
        return self.is_benchmark

    @property
    def n_classes(self) -> int:
        return self.classes if isinstance(self.classes, int) else len(self.classes)

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(str(each) for each in (range(self.classes) if isinstance(self.classes, int) else self.classes))

    def load(self, root: Path) -> Split:
        """Paths are named from ``root``. Test labels are read when the test split is opened, and not before."""
        private, public = root / self.private, root / self.public
        test = None if self.test is None else root / self.test
        named = [path for path in (private, public, test) if path is not None]
        for path in named:
            if not path.exists():
                raise DataError(f"{path}: there is no such file or directory. Paths are named from the recipe's directory.")
        places = [path.resolve() for path in named]
        if any(one.is_relative_to(other) for one, other in permutations(places, 2)):  # a directory is read with all below
            raise DataError(f"private, public and test must be apart, none in another, got {', '.join(map(str, named))}.")
        kinds = {_kind(path) for path in named}
        if len(kinds) > 1:
            raise DataError(f"private, public and test must be of one kind, got {' and '.join(sorted(kinds))}.")
        if kinds == {"pictures"}:
            data, public_x, read_test = self._pictures(private, public, test)
        else:
            data, public_x, read_test = self._tables(private, public, test)
        if len(data.y) and int(data.y.max()) >= self.n_classes:  # the label itself is not told: it is private
            raise DataError(f"{private}: labels must lie in 0..{self.n_classes - 1} (data.classes); found one outside.")
        return Split(
            name=self.dataset,
            protocol="own files",
            private=data,
            public_x=public_x,
            test=None if read_test is None else TestSet(read_test),
            class_names=self.class_names,
            test_is_public=self.test_is_public or self.is_benchmark,
        )

    def _tables(self, private: Path, public: Path, test: Path | None) -> tuple[PrivateData, NDArray[Any], Any]:
        named = [name for name in (self.id, self.label, self.group_by) if name is not None]
        shape = None if self.shape is None else tuple(self.shape)
        # The public records come first: they say what a record is, and the private ones have to be like that.
        public_x, inputs = read_public(public, self.inputs, named, shape)
        columns = Columns(
            id=self.id,
            label=self.label,
            group_by=self.group_by,
            features=inputs or None,
            shape=shape,
            classes=() if isinstance(self.classes, int) else self.class_names,
        )
        try:
            shard = read_shard(str(private), columns, name=self.dataset)
        except PartitionError as error:
            raise DataError(str(error).removeprefix("Shard ")) from None
        if inputs and self.inputs is None:
            check_columns(private, public, named)
        data = as_public(private, shard.data, public_x)
        label = Label(self.label, columns.classes)
        if test is None:
            return data, public_x, None
        read_test(test, inputs, label, public_x.shape[1:], labels=False)  # broken files are told now, labels stay shut
        return data, public_x, lambda: read_test(test, inputs, label, public_x.shape[1:])

    def _pictures(self, private: Path, public: Path, test: Path | None) -> tuple[PrivateData, NDArray[Any], Any]:
        if self.group_by is not None:
            raise DataError("data.group_by names a column, and pictures have none. Give them as .npz with an array groups.")
        files, labels = picture_files(private, self.class_names)
        names = [path.name for path in files]
        repeated = len(names) - len(set(names))
        if repeated:
            raise DataError(f"{private}: a picture's file name is its id, and {repeated} are there twice. Rename them.")
        scale = self.size is not None
        declared = None if self.size is None else (self.size[0], self.size[1])
        public_x = read_pictures(picture_files(public, None)[0], declared, self.colour, scale)
        size = (public_x.shape[-2], public_x.shape[-1])  # a private picture must not decide how others are read
        data = PrivateData(read_pictures(files, size, self.colour, scale), labels, ids=names, name=self.dataset)

        def read_last() -> tuple[NDArray[Any], NDArray[Any]]:
            assert test is not None
            found, y = picture_files(test, self.class_names)
            return read_pictures(found, size, self.colour, scale), y

        return data, public_x, None if test is None else read_last


def _kind(path: Path) -> str:
    if path.is_dir():
        return "pictures"
    if path.suffix.lower() in _TABLES:
        return "tables"
    if path.suffix.lower() in _ARRAYS:
        return "arrays"
    raise DataError(f"{path}: data must be {', '.join((*_TABLES, *_ARRAYS))} files or directories of pictures.")
