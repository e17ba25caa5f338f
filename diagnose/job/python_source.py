"""Configurations that are Python functions: what one sets as literal values, told from its syntax tree. Nothing is imported or run.

A function is followed through the values it assigns (`config.training.steps = 10`), the configuration classes it builds
(`ParallelismConfig(tensor_parallel_degree=8)`) and the functions it starts from, in the same file or in one beside it. What stands under a
condition, or comes from anything else, is not known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from diagnose.job.model import UNRESOLVED, Leaf, job_error
from diagnose.job.text import JobText

_MAX_LEVEL = 8  # of functions that start from others
_MAX_NUMBER = 2**62


class Source(Struct, frozen=True, kw_only=True):
    """A Python file: its tree, its name for people (empty for the job file itself), and how a module that it imports is found."""

    tree: ast.Module
    name: str = ""
    find: Callable[[str, int], Source | None] = lambda _module, _level: None

    @property
    def functions(self) -> dict[str, ast.FunctionDef]:
        """Its own functions."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}

    @property
    def configurations(self) -> tuple[str, ...]:
        """The functions that give a whole configuration, in order: they need no argument, and say or show that they return one."""
        return tuple(name for name, one in self.functions.items() if not name.startswith("_") and _gives_configuration(one))

    def imported(self, name: str) -> tuple[Source, str] | None:
        """The file that a name is imported from, where it lies beside this one, and what it is called there."""
        for node in self.tree.body:
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                if (alias.asname or alias.name) == name and isinstance(node, ast.ImportFrom):
                    found = self.find(node.module or "", node.level)
                    return None if found is None else (found, alias.name)
        return None


class Configured(Struct, frozen=True, kw_only=True):
    """What a function sets: one value for each key, the later one where there are several, and who decides the rest."""

    leaves: tuple[Leaf, ...]
    others: tuple[str, ...] = ()  # functions that are not at hand and decide what is left out
    changes: tuple[str, ...] = ()  # functions that may change the configuration afterwards


def source_of(text: JobText) -> Source | None:
    """The Python file that a text is; None for other texts."""
    if text.python is None:
        return None

    def around(path: str) -> tuple[str, ast.Module] | None:
        found = text.beside(path)
        tree = None if found is None else found.python
        return None if found is None or tree is None else (found.source, tree)

    return Source(tree=text.python, find=finder(around))


def chosen_function(text: JobText, names: Sequence[str]) -> str:
    """The one of several configurations that is meant, by its name or its number from 1. Raises JobFileError."""
    listed = ", ".join(f"{place} {name}" for place, name in enumerate(names, 1))
    if text.choice is not None:
        number = int(text.choice) if re.fullmatch(r"\d{1,4}", text.choice) else 0
        found = names[number - 1] if 1 <= number <= len(names) else next((one for one in names if one == text.choice), None)
        if found is None:
            raise job_error(text.source, f"holds no configuration {text.choice}", f"Its configurations are {listed}.")
        return found
    if len(names) > 1:
        raise job_error(text.source, f"holds {len(names)} configurations", f"Choose one with --command, by number or name: {listed}.")
    return names[0]


def configured(source: Source, name: str) -> Configured:
    """What the function `name` of a file sets."""
    try:
        found = _Function(source=source).returned(source.functions[name])
    except RecursionError:  # names that stand for each other
        return Configured(leaves=(), others=(name,))
    return Configured(
        leaves=tuple(found.leaves.values()), others=tuple(dict.fromkeys(found.others)), changes=tuple(dict.fromkeys(found.changes))
    )


def _gives_configuration(one: ast.FunctionDef) -> bool:
    arguments = one.args
    if len(arguments.args) + len(arguments.posonlyargs) > len(arguments.defaults) or None in arguments.kw_defaults:
        return False
    if one.returns is not None:
        return "Config" in ast.unparse(one.returns)
    return "config" in one.name and any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(one))


_Leaves = dict[str, Leaf]


@dataclass(kw_only=True)
class _Held:
    """What is known of a configuration on its way through functions, and by whom else it is made or changed."""

    leaves: _Leaves = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def copy(self) -> _Held:
        return _Held(leaves=dict(self.leaves), others=list(self.others), changes=list(self.changes))


@dataclass(kw_only=True)
class _Function:
    """One function on its way: `values` are what its names stand for, `configs` the configurations that it makes or changes."""

    source: Source
    level: int = 0
    bound: dict[str, ast.expr | None] = field(default_factory=dict)  # arguments that the caller gives; None for what is not known
    values: dict[str, ast.expr] = field(default_factory=dict)
    configs: dict[str, _Held] = field(default_factory=dict)
    result: _Held | None = None

    def returned(self, function: ast.FunctionDef) -> _Held:
        self.run(function)
        return self.result or _Held()

    def run(self, function: ast.FunctionDef, *, sure: bool = True) -> None:
        self.values = {
            target.id: node.value
            for node in self.source.tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        arguments = function.args
        places = [*arguments.posonlyargs, *arguments.args]
        for argument, default in zip(reversed(places), reversed(arguments.defaults), strict=False):
            self.values[argument.arg] = default
        for argument, given in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            self.values |= {argument.arg: given} if given is not None else {}
        for name in _parameters(function):
            value = self.bound.get(name)
            if value is not None:
                self.values[name] = value
            elif name in self.bound:
                self.values.pop(name, None)
        self.block(function.body, sure=sure)

    def block(self, body: Sequence[ast.stmt], *, sure: bool) -> None:
        for node in body:
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self.assigned(target, value, sure=sure)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self.assigned(target, value, sure=sure)
                case ast.AugAssign(target=target):
                    self.assigned(target, None, sure=False)
                case ast.Return(value=ast.expr() as value):
                    self.result = self.configuration(value) if sure or self.result is None else self.result
                case ast.With(items=items, body=inner):
                    for item in items:
                        self.assigned(item.optional_vars, None, sure=False)
                    self.block(inner, sure=sure)
                case ast.If(body=inner, orelse=other) | ast.While(body=inner, orelse=other):
                    self.block([*inner, *other], sure=False)
                case ast.For(target=target, body=inner, orelse=other):
                    self.assigned(target, None, sure=False)
                    self.block([*inner, *other], sure=False)
                case ast.Try(body=inner, handlers=handlers, orelse=other, finalbody=last):
                    self.block([*inner, *(one for handler in handlers for one in handler.body), *other], sure=False)
                    self.block(last, sure=sure)
                case ast.Match(cases=cases):
                    self.block([one for case in cases for one in case.body], sure=False)
                case ast.Expr(value=ast.Call() as call):
                    self.changed(call, sure=sure)

    def assigned(self, target: ast.expr | None, value: ast.expr | None, *, sure: bool) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            alike = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else None
            for place, one in enumerate(target.elts):
                self.assigned(one, None if alike is None else alike[place], sure=sure and alike is not None)
            return
        path = None if target is None else _path(target)
        if target is None or path is None:
            return
        name, *keys = self.meant(path)
        if not keys:
            self.configs.pop(name, None)
            self.values.pop(name, None)
            if sure and value is not None:
                if isinstance(value, ast.Call | ast.Name):
                    self.configs[name] = self.configuration(value)
                self.values[name] = value
            return
        held = self.configs.setdefault(name, _Held()).leaves
        key = ".".join(keys)
        for inner in [one for one in held if one == key or one.startswith(f"{key}.")]:
            del held[inner]
        if sure and value is not None:
            held.update(self.of_value(value, key))
        else:
            held[key] = self.leaf(key, f"{UNRESOLVED} (set under a condition)", target)

    def meant(self, path: list[str]) -> list[str]:
        """The place of a value where its first name stands for a part of a configuration: model.x behind model = cfg.model."""
        part = self.values.get(path[0])
        whole = _path(part) if len(path) > 1 and isinstance(part, ast.Attribute) else None
        return path if whole is None or whole[0] not in self.configs else [*whole, *path[1:]]

    def changed(self, call: ast.Call, *, sure: bool) -> None:
        """A function that a configuration, or a part of one, is handed to: what it sets where it is at hand, else it may set anything."""
        if _called(call) == "setattr" and len(call.args) == 3 and isinstance(call.args[1], ast.Constant):
            part = ast.Attribute(value=call.args[0], attr=str(call.args[1].value), ctx=ast.Store())
            self.assigned(ast.copy_location(part, call), call.args[2], sure=sure)
            return
        for place, one in enumerate(call.args):
            name, *keys = _path(one) or [""]
            held = self.configs.get(name)
            if held is not None and not self.applied(call, place, held, "".join(f"{key}." for key in keys), sure=sure) and not keys:
                held.changes.append(_called(call))

    def applied(self, call: ast.Call, place: int, held: _Held, below: str, *, sure: bool) -> bool:
        """Set what a function sets in the argument at a place; nothing is sure where it may end early. False where it is not at hand."""
        found = self.function(_called(call))
        names = [] if found is None else [one.arg for one in (*found[1].args.posonlyargs, *found[1].args.args)]
        if found is None or place >= len(names):
            return False
        source, function = found
        early = any(isinstance(one, ast.Return) for node in function.body[:-1] for one in ast.walk(node))
        part = _Held(leaves={key.removeprefix(below): leaf for key, leaf in held.leaves.items() if key.startswith(below)})
        _Function(source=source, level=self.level + 1, configs={names[place]: part}).run(function, sure=sure and not early)
        held.leaves = {key: leaf for key, leaf in held.leaves.items() if not key.startswith(below)}
        held.leaves |= {below + key: replace(leaf, key=below + key, shown=below + key) for key, leaf in part.leaves.items()}
        held.changes += part.changes
        return True

    # --- configurations ---

    def configuration(self, node: ast.expr) -> _Held:
        """What an expression says of a whole configuration."""
        if isinstance(node, ast.Name):
            return self.configs[node.id].copy() if node.id in self.configs else _Held()
        if not isinstance(node, ast.Call):
            return _Held()
        name = _called(node)
        if name.rpartition(".")[2][:1].isupper():
            return _Held(leaves=dict(self.of_arguments(node, "")))
        found = None if node.args else self.followed(node)
        if found is not None:
            return found
        found = next((held for one in node.args if (held := self.configuration(one)).leaves), _Held())
        found.others.append(name)
        found.leaves |= self.given(node)
        return found

    def followed(self, call: ast.Call) -> _Held | None:
        """What a function sets that stands in this file, or in one beside it, with the arguments of a call; None where it is not at hand.

        Arguments that are none of its own, which it takes as a map, are what the call sets.
        """
        found = self.function(_called(call))
        if found is None:
            return None
        source, function = found
        given = {one.arg: one.value for one in call.keywords if one.arg is not None}
        bound = {name: self.handed(value) for name, value in given.items()}
        held = _Function(source=source, level=self.level + 1, bound=bound).returned(function)
        own = _parameters(function)
        held.leaves |= {key: leaf for key, leaf in self.given(call).items() if key.partition(".")[0] not in own}
        return held

    def handed(self, node: ast.expr) -> ast.expr | None:
        """An argument as the function that it is handed to may read it: its literal value; None where that is not known."""
        value = self.literal(node)
        return None if isinstance(value, _Unknown) else ast.copy_location(ast.parse(repr(value), mode="eval").body, node)

    def function(self, name: str) -> tuple[Source, ast.FunctionDef] | None:
        """A function of this file, or of one beside it from which it is imported, also through others; None where it is not at hand."""
        if self.level >= _MAX_LEVEL or "." in name:
            return None
        source: Source = self.source
        for _ in range(_MAX_LEVEL):
            if name in source.functions:
                return source, source.functions[name]
            found = source.imported(name)
            if found is None:
                return None
            source, name = found
        return None

    def given(self, node: ast.Call) -> _Leaves:
        """Literal arguments of a function: by their names, and from dictionaries that are handed on with **."""
        found: _Leaves = {}
        for keyword in node.keywords:
            if keyword.arg is not None:
                found |= dict(self.of_value(keyword.value, keyword.arg))
            else:
                found |= self.of_dictionary(keyword.value)
        return found

    def of_dictionary(self, node: ast.expr) -> _Leaves:
        held = self.values.get(node.id) if isinstance(node, ast.Name) else node
        return dict(self.of_map(held, "")) if isinstance(held, ast.Dict) else {}

    def of_arguments(self, node: ast.Call, path: str) -> Iterator[tuple[str, Leaf]]:
        """What a class or a function is given, under the path of what it makes: arguments without names by their place."""
        below = f"{path}." if path else ""
        if path:
            yield f"{path}._target_", self.leaf(f"{path}._target_", _called(node), node, known=True)
        chained = node.func.value if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call) else None
        for place, value in enumerate(node.args or (chained.args if chained is not None else [])):
            if path and not isinstance(value, ast.Starred):
                yield from self.of_value(value, f"{below}{place}")
        for keyword in node.keywords:
            if keyword.arg is not None:
                yield from self.of_value(keyword.value, f"{below}{keyword.arg}")

    def of_map(self, node: ast.Dict, path: str) -> Iterator[tuple[str, Leaf]]:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                yield from self.of_dictionary(value).items()
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield from self.of_value(value, f"{path}.{key.value}" if path else key.value)

    def of_value(self, node: ast.expr, path: str) -> Iterator[tuple[str, Leaf]]:
        if path.count(".") > _MAX_LEVEL:  # config = wrapped(config)
            return
        if isinstance(node, ast.Name) and node.id in self.values:
            held = self.values[node.id]
            part = self.configs.get(node.id, _Held()).leaves if isinstance(held, ast.Call) else {}
            made = isinstance(held, ast.Call) and self.function(_called(held)) is not None and not held.args
            yield from self.of_value(held, path) if not isinstance(held, ast.Name) and not (made and part) else ()
            yield from ((below, replace(leaf, key=below, shown=below)) for key, leaf in part.items() if (below := f"{path}.{key}"))
            return
        if isinstance(node, ast.Dict):
            yield from self.of_map(node, path)
            return
        if isinstance(node, ast.Call) and ("." not in path or _called(node).rpartition(".")[2][:1].isupper()):
            yield from self.of_arguments(node, path)
            return
        value = self.literal(node)
        told: object = f"{UNRESOLVED} = {ast.unparse(node)[:60]}" if isinstance(value, _Unknown) else value
        yield path, self.leaf(path, told, node)

    def leaf(self, key: str, value: object, node: ast.AST, *, known: bool = False) -> Leaf:
        line: int | None = getattr(node, "lineno", None)
        return Leaf(key=key, shown=key, value=value, line=line, place=f"line {line}", known=known).moved(self.source.name)

    # --- values ---

    def literal(self, node: ast.expr, level: int = 0) -> object:
        match node:
            case ast.Constant(value=value) if isinstance(value, str | int | float | bool) or value is None:
                return value
            case ast.Name(id=name) if name in self.values and level < _MAX_LEVEL:
                return self.literal(self.values[name], level + 1)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                found = [self.literal(one, level + 1) for one in items] if level < _MAX_LEVEL else [_Unknown()]
                return _Unknown() if any(isinstance(one, _Unknown) for one in found) else found
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self.literal(operand, level)
                return -number if isinstance(number, int | float) else _Unknown()
            case ast.BinOp(left=left, op=op, right=right):
                return (
                    _calculated(op, self.literal(left, level + 1), self.literal(right, level + 1)) if level < _MAX_LEVEL * 4 else _Unknown()
                )
            case ast.Attribute(value=ast.Name(id="torch"), attr=name):
                return name
            case ast.Attribute():
                path = _path(node)
                return ".".join(path) if path is not None and path[0][:1].isupper() else _Unknown()
            case _:
                return _Unknown()


class _Unknown:
    """A value that only the program knows."""


def _calculated(op: ast.operator, left: object, right: object) -> object:
    if not isinstance(left, int) or not isinstance(right, int):
        return _Unknown()
    match op:
        case ast.Add():
            number = left + right
        case ast.Sub():
            number = left - right
        case ast.Mult():
            number = left * right
        case ast.FloorDiv() if right:
            number = left // right
        case ast.Pow() if 0 <= right < 64 and abs(left) <= 1024:
            number = left**right
        case _:
            return _Unknown()
    return number if abs(number) < _MAX_NUMBER else _Unknown()


def _parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    """The names of a function's own arguments."""
    return tuple(one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs))


def _path(node: ast.expr) -> list[str] | None:
    """The names of a.b.c; None for anything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        before = _path(node.value)
        return None if before is None else [*before, node.attr]
    return None


def _called(node: ast.Call) -> str:
    """What a call calls: a.b.c, or the last name of a chain of calls."""
    path = _path(node.func)
    if path is not None:
        return ".".join(path)
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def finder(around: Callable[[str], tuple[str, ast.Module] | None]) -> Callable[[str, int], Source | None]:
    """How modules are found: `around` gives the name and the tree of a file by its path."""
    seen: dict[str, Source | None] = {}

    def find(module: str, level: int) -> Source | None:
        path = "../" * max(level - 1, 0) + module.replace(".", "/")
        if module and path not in seen:
            found = around(f"{path}.py") or around(f"{path}/__init__.py")
            seen[path] = None if found is None else Source(tree=found[1], name=found[0], find=find)
        return seen.get(path)

    return find
