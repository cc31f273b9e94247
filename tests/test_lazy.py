"""lazy: a module that a library imports and hardly ever uses is loaded when it uses it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from joinproto.lazy import postponed


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A library `eager_reader` that imports `heavy_book`, which says when it is loaded."""
    (tmp_path / "heavy_book.py").write_text("import sys\nsys.loads_of_book += 1\ntext = 'words'\n")
    (tmp_path / "eager_reader.py").write_text(
        "import heavy_book\ndef read(): return heavy_book.text\n"
    )
    monkeypatch.setattr(sys, "loads_of_book", 0, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("heavy_book", "eager_reader"):
        sys.modules.pop(name, None)


def loads() -> int:
    count: int = sys.loads_of_book  # type: ignore[attr-defined]  # set by the fixture
    return count


def late() -> ModuleType:
    with postponed("heavy_book"):
        return importlib.import_module("eager_reader")


@pytest.mark.usefixtures("modules")
class TestPostponed:
    def test_it_is_loaded_when_it_is_used_and_once(self) -> None:
        reader = late()
        assert loads() == 0
        assert [reader.read(), reader.read()] == ["words", "words"]
        assert loads() == 1

    def test_what_it_lacks_is_lacking(self) -> None:
        with pytest.raises(AttributeError, match="heavy_book.*pictures"):
            _ = late().heavy_book.pictures

    def test_who_imports_it_later_gets_the_module_itself(self) -> None:
        reader = late()
        book = importlib.import_module("heavy_book")
        assert vars(book)["text"] == "words"
        assert reader.heavy_book is not book
        assert reader.read() is book.text
        assert loads() == 1

    def test_one_that_is_loaded_already_is_left_alone(self) -> None:
        book = importlib.import_module("heavy_book")
        assert late().heavy_book is book
        assert sys.modules["heavy_book"] is book

    def test_it_is_over_also_when_the_import_fails(self, modules: Path) -> None:
        (modules / "eager_reader.py").write_text("import heavy_book\nraise ZeroDivisionError\n")
        with pytest.raises(ZeroDivisionError):
            late()
        assert "heavy_book" not in sys.modules
