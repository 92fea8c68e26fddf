"""An import contract that names what a package may import, so that everything else is refused.

import-linter calls it for the contracts of type `only` in pyproject.toml. The standard library and the package itself
are always allowed; an allowed name covers the modules below it. Imports are judged where they stand, not transitively.
"""

import sys
from collections.abc import Iterable

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def covers(allowed: Iterable[str], module: str) -> bool:
    """Whether `module` is one of the allowed names or lies below one."""
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


class OnlyContract(Contract):
    """`source` (packages or modules) imports only itself, the standard library and what `allowed` lists.

    Modules in `apart` are not judged: they have contracts of their own.
    """

    type_name = "only"

    source = fields.SetField(subfield=fields.StringField())
    allowed = fields.SetField(subfield=fields.StringField())
    apart = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every import of the source's modules that leads anywhere else."""
        sources = set(map(str, self.source))  # type: ignore[call-overload]
        permitted = {*sources, *sys.stdlib_module_names, *map(str, self.allowed)}  # type: ignore[call-overload]
        apart = set(map(str, self.apart or ()))  # type: ignore[arg-type]
        modules = sources.union(*map(graph.find_descendants, sources)) - apart
        breaches = [
            (module, imported)
            for module in sorted(modules)
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if not covers(permitted, imported)
        ]
        return ContractCheck(kept=not breaches, metadata={"breaches": breaches})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line a breach."""
        for module, imported in check.metadata["breaches"]:
            output.print_error(f"{module} imports {imported}")
