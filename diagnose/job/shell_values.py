"""What the words of a shell script stand for, as far as the script itself tells: variables, calculations, tests. Nothing is run.

What only the process knew ($1, unset variables, command output) stays in a value as a piece that is marked as unresolved.
"""

from __future__ import annotations

import ast
import dataclasses
import fnmatch
import math
import operator
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.diagnosis import ScriptDefault
from diagnose.job.shell_syntax import Chain, Part, Simple, Word, document_of, parse_script, word_of

MAX_WORDS = 100_000
MAX_TEXT = 1_000_000
MAX_DEPTH = 12  # of expansions in expansions


class Piece(Struct, frozen=True, kw_only=True):
    """A stretch of a value. `unresolved` names what the script does not tell, and `unset` the variable that it never sets;
    `several` says that it may stand for several words, `fallback` that the environment goes before it. `source` is the file
    beside the script in which it stands.
    """

    text: str
    line: int
    unresolved: str = ""
    several: bool = False
    unset: str = ""
    fallback: bool = False
    source: str = ""


Value = tuple[Piece, ...]


@dataclass(frozen=True, kw_only=True)
class Token:
    """One word of a command after expansion. `unresolved` names what it holds that the file does not tell; such text is never read."""

    text: str
    line: int
    unresolved: str = ""
    several: bool = False
    source: str = ""
    pieces: Value = field(default=(), compare=False, repr=False)


class Variable(Struct, frozen=True, kw_only=True):
    """What a variable holds: one value, or those of an array."""

    values: tuple[Value, ...]
    array: bool = False


@dataclass(kw_only=True)
class Scope:
    """Variables while a script is read from top to bottom, and where the script lies. `path` is None for a text without a file."""

    variables: dict[str, Variable] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    path: Path | None = None
    source: str = ""
    notes: list[str] = field(default_factory=list)
    defaults: list[ScriptDefault] = field(default_factory=list)
    depth: int = 0
    not_given: set[str] = field(default_factory=set)  # variables that only arguments would set, where the script is read without any

    def copy(self) -> Scope:
        """The same, to be changed on its own; notes and defaults are shared."""
        return dataclasses.replace(self, variables=dict(self.variables), exported=set(self.exported))

    def note(self, line: int, text: str) -> None:
        """A remark with the place that it is about."""
        self.notes.append(f"line {line}{f' of {self.source}' if self.source else ''}: {text}")

    def text(self, name: str) -> str | None:
        """The value of a plain variable where all of it is known."""
        held = self.variables.get(name)
        return None if held is None or held.array or not held.values else known(held.values[0])


def known(value: Value) -> str | None:
    """A value as text, where all of it is known."""
    return None if any(piece.unresolved for piece in value) else "".join(piece.text for piece in value)


def token(value: Value, line: int) -> Token:
    """A value as one word; its line is that of the first piece that holds anything: quotes in front of an expansion do not."""
    first = next((piece for piece in (*(one for one in value if one.text or one.unresolved), *value)), Piece(text="", line=line))
    gap = next((piece for piece in value if piece.unresolved), None)
    return Token(
        text="".join(piece.text for piece in value),
        line=first.line,
        unresolved=gap.unresolved if gap else "",
        several=any(piece.several for piece in value),
        source=first.source,
        pieces=value,
    )


def plain(text: str, line: int, source: str = "") -> Value:
    """Known text as a value."""
    return (Piece(text=text, line=line, source=source),)


# --- words to values --------------------------------------------------------------------------------------------------


class _Values:
    """Values under way: pieces are joined until a cut."""

    def __init__(self) -> None:
        self.done: list[Value] = []
        self.current: list[Piece] = []
        self.letters = 0

    def add(self, value: Value) -> None:
        self.current += value
        self.letters += sum(len(piece.text) + 1 for piece in value)
        if self.letters > MAX_TEXT:  # variables that hold themselves twice
            raise ValueError(f"unfolds to more than {MAX_TEXT} characters")

    def cut(self) -> None:
        if self.current:
            self.done.append(tuple(self.current))
        self.current = []
        if len(self.done) > MAX_WORDS:  # arrays that hold themselves twice
            raise ValueError(f"unfolds to more than {MAX_WORDS} words")

    def add_split(self, value: Value) -> None:
        """A value cut at its blanks; blanks at its ends cut it off from its neighbours."""
        for piece in value:
            if piece.unresolved:
                self.add((piece,))
                continue
            if piece.text[:1].isspace():
                self.cut()
            for place, match in enumerate(re.finditer(r"\S+", piece.text)):
                if place:
                    self.cut()
                self.add((replace(piece, text=match.group(), line=piece.line + piece.text.count("\n", 0, match.start())),))
            if piece.text[-1:].isspace():
                self.cut()


def expanded(word: Word, scope: Scope) -> tuple[Token, ...]:
    """A word's tokens: variables put in, and outside quotes cut at blanks, as the shell does."""
    values = _Values()
    for part in word.parts:
        for number, value in enumerate(_part(part, scope)):
            if number:
                values.cut()
            if part.kind != "text" and not part.quoted:
                values.add_split(value)
            else:
                values.add(value)
    values.cut()
    quoted = any(part.quoted for part in word.parts)
    array = any(part.kind == "variable" and re.search(r"(^|\[)[@*]", part.text) for part in word.parts)
    made = [token(value, word.line) for value in values.done]
    return tuple(one for one in made if one.text or one.unresolved or (quoted and not array))


def joined(word: Word, scope: Scope) -> Value:
    """A word as one value: blanks do not cut."""
    values = _Values()
    for part in word.parts:
        for number, value in enumerate(_part(part, scope)):
            values.add((Piece(text=" ", line=part.line), *value) if number else value)
    return tuple(values.current)


def words_of(texts: Sequence[Value]) -> tuple[Token, ...]:
    """Texts cut at their blanks."""
    values = _Values()
    for text in texts:
        values.add_split(text)
        values.cut()
    return tuple(token(value, 1) for value in values.done)


def _part(part: Part, scope: Scope) -> Sequence[Value]:
    """What a piece of a word stands for: an array for several values."""
    if part.kind == "text":
        return (plain(part.text, part.line, scope.source),)
    found: Sequence[Value] | None = None
    scope.depth += 1
    if scope.depth <= MAX_DEPTH:
        if part.kind == "arithmetic":
            number = calculated(part.text, part.line, scope)
            forget_counted(part.text, part.line, scope)
            found = None if number is None else (plain(str(number), part.line, scope.source),)
        elif part.kind == "command":
            text = _output(part, scope)
            found = None if text is None else (text,)
        else:
            found = _variable(part, scope)
    scope.depth -= 1
    return (_gap(part, scope),) if found is None else found


def unknown(name: str, line: int, scope: Scope, *, several: bool = False) -> Value:
    """What a variable holds that is not known."""
    return (Piece(text=f"${name}", line=line, unresolved=f"${name}", several=several, source=scope.source),)


def forget(names: Sequence[str], line: int, scope: Scope, *, array: bool = False) -> None:
    """What variables hold is not known from here on."""
    for name in names:
        scope.variables[name] = Variable(values=(unknown(name, line, scope, several=array),), array=array)


_ASSIGNED = r"([A-Za-z_]\w*)(?:\[[^\]]*\])?"
_CHANGED = re.compile(rf"{_ASSIGNED}\s*(?:\+\+|--|(?:<<|>>|[-+*/%&|^])?=(?!=))|(?:\+\+|--)\s*{_ASSIGNED}")  # by a calculation


def forget_counted(text: str, line: int, scope: Scope) -> None:
    """What a calculation assigns is not worked out."""
    forget([name or before for name, before in _CHANGED.findall(text)], line, scope)


def _gap(part: Part, scope: Scope) -> Value:
    """What is not told, by the name that the script gives it."""
    name = re.fullmatch(r"(\w+)(\[.*\])?", part.text)
    unset = name[1] if part.kind == "variable" and name and name[1] not in scope.variables else ""
    several = part.kind == "variable" and re.search(r"\[[@*]\]|^[@*]$", part.text) is not None
    return (Piece(text=part.shown, line=part.line, unresolved=part.shown, several=several, unset=unset, source=scope.source),)


_PARAMETER = re.compile(r"(?P<sign>[!#]?)(?P<name>\w+|[@*])(?P<index>\[[^\]]*\])?(?P<rest>.*)", re.DOTALL)
_FALLBACK = re.compile(r"(?P<colon>:?)(?P<sign>[-=+?])(?P<word>.*)", re.DOTALL)


def _variable(part: Part, scope: Scope) -> Sequence[Value] | None:
    """A variable's value, or the fallback that the script gives; None where only the process knew it."""
    match = _PARAMETER.fullmatch(part.text)
    if match is None or part.text in ("$", "?", "-"):
        return None
    name, index, rest = match["name"], match["index"] or "", match["rest"]
    held = _held(name, index, part, scope)
    if match["sign"] == "#":
        return _count(held, index or name, part, scope)
    if match["sign"] == "!":
        target = scope.text(name)
        return None if target is None or rest or not re.fullmatch(r"\w+", target) else _held(target, "", part, scope)
    if not rest:
        return held
    fallback = _FALLBACK.fullmatch(rest)
    if fallback is not None:
        return _or_fallback(part, held, fallback, scope)
    if held is None:
        return None
    changed = [_changed(value, rest, part.line, scope) for value in held]
    return None if any(value is None for value in changed) else [value for value in changed if value is not None]


def _held(name: str, index: str, part: Part, scope: Scope) -> Sequence[Value] | None:
    """The values of a variable, or of one member of an array; None where it is never set."""
    inside = index[1:-1]
    if name in ("@", "*"):
        inside, name = name, "@"
    if name == "0" or (name == "BASH_SOURCE" and inside in ("", "0", "@")):
        return None if scope.path is None else (plain(str(scope.path), part.line, scope.source),)
    held = scope.variables.get(name)
    if inside in ("@", "*"):
        return None if held is None else held.values
    if inside:
        key = known(joined(word_of(inside, part.line), scope))
        if key is None:
            return None
        member = scope.variables.get(f"{name}[{key}]")
        if member is not None:
            return member.values
        number = calculated(inside, part.line, scope)
        if held is None or number is None or not -len(held.values) <= number < len(held.values):
            return None
        return (held.values[number],)
    if held is None:
        return None
    return held.values[:1] if held.array else held.values


def _count(held: Sequence[Value] | None, index: str, part: Part, scope: Scope) -> Sequence[Value] | None:
    if held is None or any(known(value) is None for value in held):
        return None
    size = len(held) if index.strip("[]") in ("@", "*") else len(known(held[0]) or "") if held else 0
    return (plain(str(size), part.line, scope.source),)


def _or_fallback(part: Part, held: Sequence[Value] | None, match: re.Match[str], scope: Scope) -> Sequence[Value] | None:
    sign, word = match["sign"], match["word"]
    texts = None if held is None else [known(value) for value in held]
    if texts is not None and None in texts:
        return held if sign != "+" else None
    there = texts is not None and (any(texts) or not match["colon"])
    if sign == "+":
        return (_word(word, part, scope),) if there else (plain("", part.line),)
    if there or sign == "?":
        return held if there else None
    value = _word(word, part, scope)
    value = tuple(replace(piece, fallback=texts is None) for piece in value)
    name = _PARAMETER.fullmatch(part.text)
    called = name["name"] if name else part.text
    if sign == "=":
        scope.variables[called] = Variable(values=(value,))
    text = known(value)
    if text and texts is None:
        scope.defaults.append(ScriptDefault(variable=called, value=text, line=part.line, file=scope.source))
    return (value,)


def _word(text: str, part: Part, scope: Scope) -> Value:
    """The word behind an operator in ${…}; in double quotes single ones mean nothing."""
    return joined(word_of(text.replace("'", "\\'") if part.quoted else text, part.line), scope)


def _changed(value: Value, rest: str, line: int, scope: Scope) -> Value | None:
    """A known value with its head, tail or inside cut away or replaced."""
    text = known(value)
    if text is None or len(text) > 1_000:
        return None
    cut = re.fullmatch(r"(?P<sign>##?|%%?)(?P<pattern>.*)", rest, re.DOTALL)
    if rest in ("^^", ",,"):
        return plain(text.upper() if rest == "^^" else text.lower(), value[0].line if value else line)
    if cut:
        pattern = known(joined(word_of(cut["pattern"], line), scope))
        return None if pattern is None else plain(_cut(text, cut["sign"], pattern), line)
    return None


def _cut(text: str, sign: str, pattern: str) -> str:
    places = range(len(text) + 1)
    if sign[0] == "#":
        order = places if sign == "#" else reversed(places)
        return next((text[place:] for place in order if fnmatch.fnmatchcase(text[:place], pattern)), text)
    order = reversed(places) if sign == "%" else places
    return next((text[:place] for place in order if fnmatch.fnmatchcase(text[place:], pattern)), text)


# --- what commands would print ----------------------------------------------------------------------------------------


def _output(part: Part, scope: Scope) -> Value | None:
    """The output of a command that only says or shortens what the script tells: echo, cat of a here-document, dirname and the like."""
    try:
        chain = parse_script(part.text, part.line)
    except ValueError:
        return None
    return _printed(chain, scope, part.line)


def _printed(chain: Chain, scope: Scope, line: int) -> Value | None:
    items = [(before, node) for before, node in chain.items if not (isinstance(node, Simple) and _name(node) in ("set", "export"))]
    if not items or not all(isinstance(node, Simple) for _, node in items):
        return None
    simple = [node for _, node in items if isinstance(node, Simple)]
    if len(simple) == 2 and items[1][0] in ("&&", ";") and _name(simple[0]) == "cd" and _name(simple[1]) == "pwd":
        folder = _arguments(simple[0], scope)
        return None if len(folder) != 1 else plain(posixpath.normpath(folder[0]), line, scope.source)
    if len(simple) != 1:
        return None
    command = simple[0]
    name = _name(command)
    if name == "cat" and len(command.words) == 1 and command.heredocs:
        return joined(document_of(command.heredocs[-1]), scope)
    if name == "echo":
        values = [value for word in command.words[1:] if word.plain not in ("-n", "-e") for value in (joined(word, scope),)]
        return tuple(piece for number, value in enumerate(values) for piece in ((*plain(" ", line), *value) if number else value))
    given = _arguments(command, scope)
    if name == "dirname" and len(given) == 1:
        return plain(posixpath.dirname(given[0]) or ".", line, scope.source)
    if name == "basename" and given:
        return plain(posixpath.basename(given[0]).removesuffix(given[1] if len(given) > 1 else ""), line, scope.source)
    if name in ("realpath", "readlink") and len(given) == 1 and given[0].startswith("/"):
        return plain(posixpath.normpath(given[0]), line, scope.source)
    if name == "expr":
        number = calculated(" ".join(given), line, scope)
        return None if number is None else plain(str(number), line, scope.source)
    return None


def _name(command: Simple) -> str:
    return command.words[0].plain if command.words else ""


def _arguments(command: Simple, scope: Scope) -> list[str]:
    """The words behind a command's options; none where one is not known."""
    values = [known(joined(word, scope)) for word in command.words[1:]]
    words = [value for value in values if value is not None]
    return [word for word in words if not word.startswith("-")] if len(words) == len(values) else []


# --- calculations -----------------------------------------------------------------------------------------------------


_BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: int(left / right),  # the shell rounds towards nought; exact for what `_number` allows
    ast.Mod: lambda left, right: int(math.fmod(left, right)),
}
_COMPARED = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def calculated(text: str, line: int, scope: Scope) -> int | None:
    """A shell's calculation with whole numbers and literal variables; None for anything else."""
    if len(text) > 2_000:
        return None
    if "$" in text or "`" in text:
        text_ = known(joined(word_of(text.replace('"', ""), line), scope))
        if text_ is None:
            return None
        text = text_
    text = text.replace("&&", " and ").replace("||", " or ")
    ternary = re.fullmatch(r"([^?]*)\?([^:?]*):([^:?]*)", text, re.DOTALL)
    if ternary:
        text = f"({ternary[2]}) if ({ternary[1]}) else ({ternary[3]})"
    try:
        return _number(ast.parse(" ".join(text.split()), mode="eval").body, scope)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _number(node: ast.expr, scope: Scope) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        found = node.value
    elif isinstance(node, ast.Name):
        held = scope.text(node.id)
        if held is None or not re.fullmatch(r"-?\d{1,15}", held):
            raise ValueError
        found = int(held)
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        found = _BINARY[type(node.op)](_number(node.left, scope), _number(node.right, scope))
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        found = int(_COMPARED[type(node.ops[0])](_number(node.left, scope), _number(node.comparators[0], scope)))
    elif isinstance(node, ast.BoolOp):
        values = [bool(_number(one, scope)) for one in node.values]
        found = int(all(values) if isinstance(node.op, ast.And) else any(values))
    elif isinstance(node, ast.IfExp):
        found = _number(node.body if _number(node.test, scope) else node.orelse, scope)
    else:
        raise ValueError
    if abs(found) > 10**15:
        raise ValueError
    return found


# --- tests ------------------------------------------------------------------------------------------------------------

_OF_THE_RUN = re.compile(
    r"(SLURM|OMPI|PMI|KUBERNETES|PBS|LSB)\w*|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_(ADDR|PORT)|HOME|USER|PWD|PATH|HOSTNAME"
)
_NUMBERS = {"-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt, "-ge": operator.ge}
_TEXTS = {"=": operator.eq, "==": operator.eq, "!=": operator.ne}


def tested(words: Sequence[Word], scope: Scope) -> bool | None:
    """What `[ … ]`, `[[ … ]]` or `test …` says; None where it is not known."""
    first = words[0].plain
    inner = list(words[1:-1] if first in ("[", "[[") else words[1:])
    return _Test(inner, scope, patterns=first == "[[").either()


class _Test:
    def __init__(self, words: list[Word], scope: Scope, *, patterns: bool) -> None:
        self.words, self.scope, self.patterns, self.at = words, scope, patterns, 0

    def sign(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.words[place].plain if place < len(self.words) else ""

    def either(self) -> bool | None:
        found = self.both()
        while self.sign() in ("||", "-o"):
            self.at += 1
            other = self.both()
            found = True if found or other else None if found is None or other is None else False
        return found

    def both(self) -> bool | None:
        found = self.primary()
        while self.sign() in ("&&", "-a"):
            self.at += 1
            other = self.primary()
            found = False if found is False or other is False else None if found is None or other is None else True
        return found

    def primary(self) -> bool | None:
        if self.at >= len(self.words):
            return False
        if self.sign() == "!":
            self.at += 1
            found = self.primary()
            return None if found is None else not found
        if self.sign() == "(":
            self.at += 1
            found = self.either()
            self.at += self.sign() == ")"
            return found
        following = self.sign(1)
        if following in _NUMBERS or following in _TEXTS or following in ("=~", "<", ">"):
            left, sign, right = self.words[self.at], following, self.words[self.at + 2] if self.at + 2 < len(self.words) else None
            self.at += 3
            return None if right is None else self.compared(left, sign, right)
        if re.fullmatch(r"-[a-zA-Z]", self.sign()) and self.at + 1 < len(self.words) and following not in ("&&", "||", ")", "-a", "-o"):
            sign, word = self.sign(), self.words[self.at + 1]
            self.at += 2
            return self.asked(sign, joined(word, self.scope), word.line)
        word = self.words[self.at]
        self.at += 1
        text = known(joined(word, self.scope))
        return None if text is None else bool(text)

    def asked(self, sign: str, value: Value, line: int) -> bool | None:
        """-z and -n; of files nothing is known. A variable that the script never sets is taken as unset, as where it has a fallback."""
        if sign not in ("-z", "-n"):
            return None
        value = self.given(value)
        text = known(value)
        if text is not None:
            return bool(text) == (sign == "-n")
        names = [piece.unset for piece in value if piece.unresolved or piece.text]
        if sign == "-z" and names and all(name and not name.isdigit() and not _OF_THE_RUN.fullmatch(name) for name in names):
            self.scope.note(
                line, f"{', '.join(names)} is taken as unset; an environment that sets it goes before what the script puts there"
            )
            return True
        return False if any(piece.text.strip() and not piece.unresolved for piece in value) and sign == "-z" else None

    def given(self, value: Value) -> Value:
        """A value without variables that only arguments would set."""
        return tuple(piece for piece in value if not (piece.unresolved and piece.unset in self.scope.not_given))

    def compared(self, left: Word, sign: str, right: Word) -> bool | None:
        one, other = (known(self.given(joined(word, self.scope))) for word in (left, right))
        if one is None or other is None or sign in ("=~", "<", ">"):
            return None
        if sign in _NUMBERS:
            whole = all(re.fullmatch(r"\s*-?\d{1,15}\s*", text) for text in (one, other))
            return bool(_NUMBERS[sign](int(one), int(other))) if whole else None
        if self.patterns and not any(part.quoted for part in right.parts):
            return fnmatch.fnmatchcase(one, other) == (sign != "!=")
        return bool(_TEXTS[sign](one, other))


def matches(text: str, pattern: Word, scope: Scope) -> bool | None:
    """Whether a text fits a pattern of `case`; None where the pattern is not known."""
    wanted = known(joined(pattern, scope))
    if wanted is None:
        return None
    return text == wanted if any(part.quoted for part in pattern.parts) else fnmatch.fnmatchcase(text, wanted)


def merged(scopes: Sequence[Mapping[str, Variable]], names: Sequence[str]) -> dict[str, Variable]:
    """What variables hold behind branches of which one was taken: what all agree on, else what they begin with and an unresolved rest."""
    found: dict[str, Variable] = {}
    for name in names:
        held = [one.get(name) for one in scopes]
        first = held[0]
        if all(one == first for one in held):
            if first is not None:
                found[name] = first
            continue
        known_ = [one for one in held if one is not None]
        array = any(one.array for one in known_)
        last = next((piece for one in reversed(known_) for value in one.values for piece in value), Piece(text="", line=1))
        begin = _common(known_ if len(known_) == len(held) else [])
        if array and begin and (flags := _flags_behind(len(begin), known_)) is not None:
            found[name] = Variable(values=(*begin, *flags), array=True)
            continue
        piece = Piece(text=f"${name}", line=last.line, unresolved=f"${name}", several=array or bool(begin), source=last.source)
        if array:
            found[name] = Variable(values=(*begin, (piece,)), array=True)
        else:
            whole = begin[0] if begin else ()
            found[name] = Variable(values=((*whole, piece),))
    return found


def _flags_behind(size: int, held: Sequence[Variable]) -> list[Value] | None:
    """The members that only some of several arrays have behind so many common ones: flags of which it is not known whether they are given.

    None where one goes on with anything else, or with what is not known.
    """
    rests = [one.values[size:] for one in held]
    if any(piece.several for rest in rests for value in rest for piece in value):
        return None
    if any(rest and not token(rest[0], 1).text.startswith("--") for rest in rests):
        return None
    gap = "$(…)"  # another shell, to which it may be handed on, takes it for any words
    return [
        tuple(replace(piece, unresolved=gap) if piece.text.startswith("--") else piece for piece in value)
        for rest in rests
        for value in rest
    ]


def _common(held: Sequence[Variable]) -> tuple[Value, ...]:
    """What several values of a variable begin with: members of arrays, pieces of texts up to a blank."""
    if not held:
        return ()
    if any(one.array for one in held):
        lists = [one.values for one in held]
        size = next(
            (place for place in range(min(map(len, lists))) if any(one[place] != lists[0][place] for one in lists)), min(map(len, lists))
        )
        return lists[0][:size]
    values = [tuple(piece for piece in one.values[0] if piece.text or piece.unresolved) if one.values else () for one in held]
    shortest = min(values, key=len)
    size = next((place for place in range(len(shortest)) if any(one[place] != shortest[place] for one in values)), len(shortest))
    begin = shortest[:size]
    if not begin or not any(piece.text.strip() for piece in begin):
        return ()
    rests = [one[size] if len(one) > size else None for one in values]
    ends = begin[-1].text[-1:].isspace() or all(rest is None or (not rest.unresolved and rest.text[:1].isspace()) for rest in rests)
    return ((*begin, Piece(text=" ", line=begin[-1].line)),) if ends else ()
