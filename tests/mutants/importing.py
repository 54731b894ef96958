"""An import hook that loads one module from a mutated syntax tree; the file on disk stays as it is."""

import ast
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_loader
from types import CodeType, ModuleType

from tests.mutants.mutations import ROOMS, Mutant, mutated_tree


class MutatedLoader(SourceFileLoader):
    """Compiles the mutated tree. It neither reads nor writes cached bytecode."""

    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._tree, self.path, "exec", dont_inherit=True)


class MutantFinder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._module = mutant.module
        path = mutant.path
        self._loader = MutatedLoader(self._module, str(path), mutated_tree(mutant.file, path.read_text(), mutant.id))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        return spec_from_loader(fullname, self._loader)


def install(mutant: Mutant) -> None:
    """From now on the module is imported mutated; none of the rooms may be imported already."""
    loaded = rooms_loaded()
    assert not loaded, f"imported before the mutant: {loaded}"
    sys.meta_path.insert(0, MutantFinder(mutant))


def rooms_loaded() -> list[str]:
    """Modules of the rooms that this process has imported."""
    rooms = {f"klamm.{room}" for room in ROOMS}
    return [name for name in sys.modules if ".".join(name.split(".")[:2]) in rooms]
