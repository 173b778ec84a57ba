"""No module imports, by whatever way round, one that imports it; imports inside functions count, too."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted({*ROOT.glob("*/src"), *ROOT.glob("*/*/src")})


def find_modules(folder):
    """Python files under a folder by their dotted names, which begin below it."""
    files = [file for file in folder.rglob("*.py") if "tests" not in file.parts]
    return {name_module(file.relative_to(folder)): file for file in files}


def name_module(file):
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def find_imports(name, file, modules):
    """The modules among these that one of them imports."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for each in node.names:
                found = f"{source}.{each.name}"
                yield from [found] if found in modules else [source] if source in modules else []


def find_cycles(imports):
    """Groups of modules that import each other, directly or through others."""
    reached = {name: follow_imports(name, imports) for name in imports}
    groups = (frozenset(other for other in reached[name] if name in reached[other]) for name in imports)
    return {group for group in groups if len(group) > 1}


def follow_imports(name, imports):
    """Every module that importing this one imports; the module itself if the way leads back."""
    seen, ahead = set(), [*imports[name]]
    while ahead:
        each = ahead.pop()
        if each not in seen:
            seen.add(each)
            ahead += imports[each]
    return seen


@pytest.mark.parametrize("folder", [ROOT, *SOURCES], ids=lambda folder: str(folder.relative_to(ROOT)))
def test_no_module_imports_one_that_imports_it(folder):
    modules = find_modules(folder)
    if folder == ROOT:
        modules = {name: file for name, file in modules.items() if name.startswith("e2e.")}
    assert modules
    imports = {
        name: {found for found in find_imports(name, file, modules) if found != name}
        for name, file in modules.items()
    }
    assert find_cycles(imports) == set()


def test_cycles_are_found():
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}
    assert find_cycles(imports) == {frozenset("abc")}
