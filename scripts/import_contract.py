"""An import contract that names what a package may import, so that everything else is refused.

import-linter calls it for the contracts of type `only` in pyproject.toml. The standard library and the package itself
are always allowed; an allowed name covers the modules below it. Imports are judged where they stand, not transitively.
"""

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

SERVICE = Path(__file__).resolve().parent.parent / "service"


def covers(allowed: Iterable[str], module: str) -> bool:
    """Whether `module` is one of the allowed names or lies below one."""
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def in_functions(graph: ImportGraph, module: str, imported: str) -> bool:
    """Whether a module imports another inside of functions alone."""
    source = SERVICE.joinpath(*module.split("."))
    file = source / "__init__.py" if source.is_dir() else source.with_suffix(".py")
    functions = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
    lines = {line for node in functions for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return all(found["line_number"] in lines for found in graph.get_import_details(importer=module, imported=imported))


class OnlyContract(Contract):
    """`source` (packages or modules) imports only itself, the standard library and what `allowed` lists.

    Modules in `apart` are not judged: they have contracts of their own. What `in_functions` lists is imported inside of
    functions alone: when they are called, not when the module is imported.
    """

    type_name = "only"

    source = fields.SetField(subfield=fields.StringField())
    allowed = fields.SetField(subfield=fields.StringField())
    apart = fields.SetField(subfield=fields.StringField(), required=False)
    in_functions = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every import of the source's modules that leads anywhere else."""
        sources = set(map(str, self.source))  # pyrefly: ignore[bad-argument-type]
        permitted = {*sources, *sys.stdlib_module_names, *map(str, self.allowed)}  # pyrefly: ignore[bad-argument-type]
        apart = set(map(str, self.apart or ()))  # pyrefly: ignore[bad-argument-type]
        called = set(map(str, self.in_functions or ()))  # pyrefly: ignore[bad-argument-type]
        modules = sources.union(*map(graph.find_descendants, sources)) - apart
        breaches = [
            (module, imported)
            for module in sorted(modules)
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if not covers(permitted, imported)
            and not (covers(called, imported) and in_functions(graph, module, imported))
        ]
        return ContractCheck(kept=not breaches, metadata={"breaches": breaches})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line per breach."""
        for module, imported in check.metadata["breaches"]:
            output.print_error(f"{module} imports {imported}")
