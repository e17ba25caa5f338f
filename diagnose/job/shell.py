"""Shell scripts as far as they are literal: the commands they run, with variables and arrays put in, and what they export.

Nothing is run and nothing is guessed. What only the process knew ($1, unset variables, command output) is marked as unresolved,
and what stands under a condition counts as unresolved too.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

_OPERATOR = re.compile(r"&&|\|\||;;|[;&|\n()]")
_REDIRECT = re.compile(r"\d*(?:<<<|>>|<&|>&|>\||<|>)&?")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_VARIABLE = re.compile(r"\$(\w+|[@*#?$!-])")


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a word: plain text, or something that the shell would put in."""

    kind: Literal["text", "variable", "arithmetic", "command"]
    text: str
    line: int
    quoted: bool = False

    @property
    def shown(self) -> str:
        """The piece as the script writes it, for people."""
        if self.kind == "variable":
            return f"${self.text}" if re.fullmatch(r"\w+|[@*#?$!-]", self.text) else "${" + self.text[:60] + "}"
        return {"arithmetic": f"$(({self.text[:60]}))", "command": "$(…)", "text": self.text}[self.kind]


@dataclass(frozen=True, kw_only=True)
class Word:
    """One word of a command; `array` holds the words of NAME=( … )."""

    parts: tuple[Part, ...]
    line: int
    array: tuple[Word, ...] | None = None

    @property
    def plain(self) -> str:
        """The word where it is plain unquoted text, else nothing."""
        return "" if any(part.kind != "text" or part.quoted for part in self.parts) else "".join(part.text for part in self.parts)

    @property
    def leading(self) -> str:
        """The unquoted text that the word begins with."""
        return self.parts[0].text if self.parts and self.parts[0].kind == "text" and not self.parts[0].quoted else ""


@dataclass(frozen=True, kw_only=True)
class Command:
    """Words up to the next operator; `before` and `after` are the operators around them."""

    words: tuple[Word, ...]
    before: str
    after: str


class _Lexer:
    """Reads one script once, from left to right."""

    def __init__(self, text: str, line: int) -> None:
        self.text, self.at, self.line = text, 0, line

    def advance(self, count: int) -> str:
        taken = self.text[self.at : self.at + count]
        self.at += len(taken)
        self.line += taken.count("\n")
        return taken

    def until(self, end: str, what: str) -> str:
        """The text up to `end`, which is passed over. Raises ValueError where it never comes."""
        found = self.text.find(end, self.at)
        if found < 0:
            raise ValueError(f"holds {what} in line {self.line} that never ends")
        taken = self.advance(found - self.at)
        self.advance(len(end))
        return taken

    def balanced(self, opening: str, closing: str, what: str) -> str:
        """The text up to the bracket that closes the one just passed."""
        depth, start, line = 1, self.at, self.line
        while self.at < len(self.text):
            sign = self.advance(1)
            depth += (sign == opening) - (sign == closing)
            if depth == 0:
                return self.text[start : self.at - 1]
            if sign == "\\":
                self.advance(1)
        raise ValueError(f"holds {what} in line {line} that never ends")

    def blanks(self) -> None:
        """Pass over blanks, continued lines and comments."""
        while self.at < len(self.text):
            if self.text.startswith(("\\\n", "\\\r\n"), self.at):
                self.advance(2 if self.text[self.at + 1] == "\n" else 3)
            elif self.text[self.at] in " \t\r\v\f\u00a0":
                self.advance(1)
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.advance((len(self.text) if end < 0 else end) - self.at)
            else:
                return


def commands(text: str, line: int = 1) -> Iterator[Command]:
    """The simple commands of a script. Raises ValueError for quotes and brackets that never close."""
    lexer, before = _Lexer(text, line), ""
    words: list[Word] = []
    ends: list[str] = []
    while True:
        lexer.blanks()
        heredoc = _HEREDOC.match(lexer.text, lexer.at)
        redirect = _REDIRECT.match(lexer.text, lexer.at)
        found = _OPERATOR.match(lexer.text, lexer.at)
        if lexer.at >= len(lexer.text) or found:
            after = lexer.advance(len(found.group())) if found else ""
            if words:
                yield Command(words=tuple(words), before=before, after=after)
            before, words = after, []
            if after == "\n":
                ends = [_skip(lexer, end) for end in ends][:0]
            if not found:
                return
        elif heredoc and not lexer.text.startswith("<<<", lexer.at):
            ends.append(heredoc[2])
            lexer.advance(len(heredoc.group()))
        elif redirect:
            lexer.advance(len(redirect.group()))
            lexer.blanks()
            _word(lexer)
        else:
            words.append(_word(lexer))


def _skip(lexer: _Lexer, end: str) -> str:
    """Pass over the lines of a here-document."""
    found = re.compile(rf"^\t*{re.escape(end)}\r?$", re.MULTILINE).search(lexer.text, lexer.at)
    lexer.advance((found.end() if found else len(lexer.text)) - lexer.at)
    return end


def _word(lexer: _Lexer) -> Word:
    parts: list[Part] = []
    line = lexer.line
    while lexer.at < len(lexer.text):
        sign = lexer.text[lexer.at]
        if lexer.text.startswith(("\\\n", "\\\r\n"), lexer.at):
            break
        if sign == "(" and parts and parts[-1].kind == "text" and parts[-1].text.endswith("=") and not parts[-1].quoted:
            return Word(parts=_merged(parts), line=line, array=_array(lexer))
        if sign in " \t\r\v\f\u00a0\n;&|()" or (sign in "<>" and parts):
            break
        parts += _piece(lexer, sign)
    if not parts and lexer.at < len(lexer.text):
        parts = [Part(kind="text", text=lexer.advance(1), line=line)]
    return Word(parts=_merged(parts), line=line)


def _array(lexer: _Lexer) -> tuple[Word, ...]:
    start = lexer.line
    lexer.advance(1)
    words: list[Word] = []
    while True:
        lexer.blanks()
        if lexer.at >= len(lexer.text):
            raise ValueError(f"holds an array in line {start} that never ends")
        if lexer.text[lexer.at] == ")":
            lexer.advance(1)
            return tuple(words)
        if lexer.text[lexer.at] == "\n":
            lexer.advance(1)
        else:
            words.append(_word(lexer))


def _piece(lexer: _Lexer, sign: str) -> list[Part]:
    line = lexer.line
    if sign == "'":
        lexer.advance(1)
        return [Part(kind="text", text=lexer.until("'", "a quote"), line=line, quoted=True)]
    if sign == '"':
        return _double(lexer)
    if sign == "\\":
        lexer.advance(1)
        return [Part(kind="text", text=lexer.advance(1), line=line, quoted=True)]
    if sign in "$`":
        return [_expansion(lexer, quoted=False)]
    return [Part(kind="text", text=lexer.advance(1), line=line)]


def _double(lexer: _Lexer) -> list[Part]:
    """What stands in double quotes: text and expansions."""
    start = lexer.line
    lexer.advance(1)
    parts = [Part(kind="text", text="", line=start, quoted=True)]
    while lexer.at < len(lexer.text):
        sign, line = lexer.text[lexer.at], lexer.line
        if sign == '"':
            lexer.advance(1)
            return parts
        if sign in "$`":
            parts.append(_expansion(lexer, quoted=True))
        elif sign == "\\" and lexer.text[lexer.at + 1 : lexer.at + 2] in ('"', "\\", "$", "`", "\n"):
            lexer.advance(1)
            # a continued line keeps its break, as a blank would do: options in quotes are cut there, and keep their lines
            parts.append(Part(kind="text", text=lexer.advance(1), line=line, quoted=True))
        else:
            parts.append(Part(kind="text", text=lexer.advance(1), line=line, quoted=True))
    raise ValueError(f"holds a quote in line {start} that never ends")


_EXPANSIONS: tuple[tuple[str, str, Literal["variable", "arithmetic", "command"], str], ...] = (
    ("`", "`", "command", "a command substitution"),
    ("$((", "))", "arithmetic", "a calculation"),
    ("$(", ")", "command", "a command substitution"),
    ("${", "}", "variable", "an expansion"),
)


def _expansion(lexer: _Lexer, *, quoted: bool) -> Part:
    line = lexer.line
    for opening, closing, kind, what in _EXPANSIONS:
        if lexer.text.startswith(opening, lexer.at):
            lexer.advance(len(opening))
            text = lexer.until(closing, what) if opening == closing else lexer.balanced(opening[-1], closing[0], what)
            lexer.advance(len(closing) - 1)
            return Part(kind=kind, text=text, line=line, quoted=quoted)
    match = _VARIABLE.match(lexer.text, lexer.at)
    if match is None:
        return Part(kind="text", text=lexer.advance(1), line=line, quoted=quoted)
    lexer.advance(len(match.group()))
    return Part(kind="variable", text=match[1], line=line, quoted=quoted)


def _merged(parts: list[Part]) -> tuple[Part, ...]:
    """Neighbouring texts of one kind as one."""
    texts: list[list[Part]] = []
    for part in parts:
        if texts and part.kind == "text" == texts[-1][0].kind and part.quoted == texts[-1][0].quoted:
            texts[-1].append(part)
        else:
            texts.append([part])
    return tuple(replace(group[0], text="".join(part.text for part in group)) for group in texts)


_OPENERS, _CLOSERS = frozenset({"if", "for", "while", "until", "case", "select"}), frozenset({"fi", "done", "esac"})
_SKIPPED = frozenset({"then", "else", "elif", "do", "!", "time"})
_TESTS = frozenset({"[", "[[", "test"})
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<plus>\+)?=")
_DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})
_SHELLS = frozenset({"bash", "sh", "zsh", "eval"})
_MAX_WORDS = 100_000
_MAX_TEXT = 1_000_000
_MAX_DEPTH = 5


@dataclass(frozen=True, kw_only=True)
class Token:
    """One word of a command after expansion. `unresolved` names what it holds that the file does not tell; such text is never read."""

    text: str
    line: int
    unresolved: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One simple command with the environment that it sees."""

    tokens: tuple[Token, ...]
    environment: Mapping[str, Token]
    conditional: bool = False


@dataclass(kw_only=True)
class _State:
    """Variables while a script is read from top to bottom. An array is a tuple of tokens."""

    variables: dict[str, tuple[Token, ...]] = field(default_factory=dict)
    letters: dict[str, int] = field(default_factory=dict)  # how many the value of a variable holds
    arrays: set[str] = field(default_factory=set)
    exported: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    words: int = 0
    depth: int = 0


def read_script(text: str) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """The commands of a script in order, and what had to be noted. Raises ValueError with a sentence's end."""
    state = _State()
    return tuple(_runs(text, 1, state, level=0)), tuple(dict.fromkeys(state.notes))


def _runs(text: str, line: int, state: _State, level: int) -> list[Run]:
    if level > _MAX_DEPTH:
        raise ValueError("holds commands inside commands too deeply")
    found: list[Run] = []
    tested = False
    for command in commands(text, line):
        words, depth = _uncontrolled(command, state)
        maybe = depth > 0 or tested or command.before == "||"
        tested = command.after == "&&" and (tested or (bool(words) and words[0].plain in _TESTS))
        rest = _assign(words, state, conditional=maybe)
        if rest is None:
            continue
        words, prefix = rest
        tokens = tuple(token for word in words for token in _expanded(word, state))
        state.words += len(tokens)
        if state.words > _MAX_WORDS:
            raise ValueError(f"unfolds to more than {_MAX_WORDS} words")
        inner = _inner(tokens)
        if inner is not None:
            found += [replace(run, conditional=run.conditional or maybe) for run in _runs(inner.text, inner.line, state, level + 1)]
        elif tokens:
            seen = {name: state.variables[name][0] for name in state.exported if state.variables.get(name) and name not in state.arrays}
            found.append(Run(tokens=tokens, environment=seen | prefix, conditional=maybe))
    return found


def _uncontrolled(command: Command, state: _State) -> tuple[tuple[Word, ...], int]:
    """A command's words without the shell's own keywords, and how many conditions or loops it stands in."""
    words = command.words
    depth = state.depth
    while words and words[0].plain in _OPENERS | _CLOSERS | _SKIPPED | {"{", "}", "function"}:
        first = words[0].plain
        if first in _OPENERS | {"{", "function"}:
            state.depth += 1
            depth = state.depth
            if first in ("for", "case", "select", "function"):
                return (), depth
        elif first in _CLOSERS or first == "}":
            state.depth = max(0, state.depth - 1)
        words = words[1:]
    return words, depth


def _assign(words: tuple[Word, ...], state: _State, *, conditional: bool) -> tuple[tuple[Word, ...], dict[str, Token]] | None:
    """Take the assignments in front of a command into account: its words and its own variables; None where there is nothing else."""
    declaring = bool(words) and words[0].plain in _DECLARING
    export = declaring and (words[0].plain == "export" or any(word.plain == "-x" for word in words[1:]))
    items = words[1:] if declaring else words
    ahead = [_ASSIGNMENT.match(word.leading) for word in items]
    count = next((place for place, match in enumerate(ahead) if match is None), len(items))
    if not declaring and count < len(items):
        prefix = {
            match["name"]: _joined(_value(word, match.end(), state), word.line)
            for word, match in zip(items, ahead[:count], strict=False)
            if match
        }
        return items[count:], prefix
    for word, match in zip(items, ahead, strict=True):
        if match is not None:
            _store(state, word, match, _value(word, match.end(), state), conditional=conditional)
        if export:
            state.exported.add(word.plain if match is None else match["name"])
    return None


def _store(state: _State, word: Word, match: re.Match[str], value: tuple[Token, ...], *, conditional: bool) -> None:
    name = match["name"]
    before = state.variables.get(name, ())
    letters = sum(len(one.text) for one in value) + (state.letters.get(name, 0) if match["plus"] else 0)
    if conditional and value != before:
        state.notes.append(f"line {word.line}: {name} is set under a condition, so what it holds is not known")
        unknown = Token(text=f"${name}", line=word.line, unresolved=f"${name}")
        value = (*before, unknown) if match["plus"] and word.array is not None else (unknown,)
    elif match["plus"]:
        joined = (*before, *value)
        if len(joined) > _MAX_WORDS or letters > _MAX_TEXT:
            raise ValueError(f"unfolds to more than {_MAX_WORDS} words")
        value = joined if word.array is not None or name in state.arrays else (_joined(joined, word.line),)
    if word.array is not None:
        state.arrays.add(name)
    elif not match["plus"]:
        state.arrays.discard(name)
    state.variables[name], state.letters[name] = value, letters


def _value(word: Word, skip: int, state: _State) -> tuple[Token, ...]:
    if word.array is not None:
        found = tuple(token for item in word.array for token in _expanded(item, state))
        if len(found) > _MAX_WORDS:
            raise ValueError(f"unfolds to more than {_MAX_WORDS} words")
        return found
    rest = replace(word, parts=(replace(word.parts[0], text=word.parts[0].text[skip:]), *word.parts[1:]))
    return (_joined(_expanded(rest, state, split=False), word.line),)


def _joined(tokens: Sequence[Token], line: int) -> Token:
    """Pieces as one word; its line is that of the first piece that holds anything: quotes in front of an expansion do not."""
    return Token(
        text="".join(token.text for token in tokens),
        line=next((token.line for token in (*(one for one in tokens if one.text or one.unresolved), *tokens)), line),
        unresolved=next((token.unresolved for token in tokens if token.unresolved), ""),
    )


# --- expansion --------------------------------------------------------------------------------------------------------


class _Tokens:
    """Tokens under way: pieces are joined until a cut."""

    def __init__(self) -> None:
        self.done: list[Token] = []
        self.current: list[Token] = []

    def add(self, piece: Token) -> None:
        self.current.append(piece)

    def cut(self) -> None:
        if self.current:
            self.done.append(_joined(self.current, self.current[0].line))
        self.current = []

    def add_split(self, value: Token) -> None:
        """A value cut at its blanks; blanks at its ends cut it off from its neighbours."""
        if value.text[:1].isspace():
            self.cut()
        for place, piece in enumerate(_pieces(value)):
            if place:
                self.cut()
            self.add(piece)
        if value.text[-1:].isspace():
            self.cut()


def _expanded(word: Word, state: _State, *, split: bool = True) -> tuple[Token, ...]:
    """A word's tokens: variables put in, and outside quotes cut at blanks, as the shell does."""
    tokens = _Tokens()
    for part in word.parts:
        for number, value in enumerate(_part(part, state)):
            if number and split:
                tokens.cut()
            if split and part.kind != "text" and not part.quoted and not value.unresolved:
                tokens.add_split(value)
            else:
                tokens.add(value)
        if sum(len(one.text) + 1 for one in (*tokens.done, *tokens.current)) > _MAX_TEXT:  # variables that hold themselves twice
            raise ValueError(f"unfolds to more than {_MAX_TEXT} characters")
    tokens.cut()
    quoted = any(part.quoted for part in word.parts)
    return tuple(token for token in tokens.done if token.text or token.unresolved or quoted)


def _pieces(value: Token) -> list[Token]:
    """A text cut at blanks, each piece with the line that it stands in."""
    return [
        Token(text=match.group(), line=value.line + value.text.count("\n", 0, match.start())) for match in re.finditer(r"\S+", value.text)
    ]


def _part(part: Part, state: _State) -> tuple[Token, ...]:
    """What a piece of a word stands for: an array for several values."""
    found: tuple[Token, ...] | None = None
    if part.kind == "text":
        found = (Token(text=part.text, line=part.line),)
    elif part.kind == "arithmetic":
        number = _arithmetic(part.text, state)
        found = None if number is None else (Token(text=str(number), line=part.line),)
    elif part.kind == "variable":
        found = _variable(part, state)
    return (Token(text=part.shown, line=part.line, unresolved=part.shown),) if found is None else found


def _variable(part: Part, state: _State) -> tuple[Token, ...] | None:
    """A variable's value, or the fallback that the script gives; None where only the process knew it."""
    match = re.fullmatch(r"(\w+)(\[[@*]\])?(?:(:?[-=])(.*))?", part.text, re.DOTALL)
    if match is None:
        return None
    name, array, fallback = match[1], match[2], match[4]
    if name in state.variables:
        held = state.variables[name]
        return held[:1] if name in state.arrays and not array else held
    if fallback is None or "$" in fallback or "`" in fallback:
        return None
    text = fallback.strip("\"'")
    state.notes.append(f"line {part.line}: ${{{part.text}}} is taken as {text!r}; an environment that sets {name} goes before it")
    return (Token(text=text, line=part.line),)


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}


def _arithmetic(text: str, state: _State) -> int | None:
    """A shell's sum or product of whole numbers and literal variables; None for anything else."""
    names = re.sub(r"\$\{?(\w+)\}?", r"\1", text)
    try:
        return _number(ast.parse(names.strip(), mode="eval").body, state)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _number(node: ast.expr, state: _State) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        found = node.value
    elif isinstance(node, ast.Name):
        held = state.variables.get(node.id, ())
        if len(held) != 1 or held[0].unresolved or not re.fullmatch(r"\d{1,15}", held[0].text):
            raise ValueError
        found = int(held[0].text)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        found = _OPERATORS[type(node.op)](_number(node.left, state), _number(node.right, state))
    else:
        raise ValueError
    if abs(found) > 10**15:
        raise ValueError
    return found


def _inner(tokens: tuple[Token, ...]) -> Token | None:
    """The script inside `bash -c "…"` or `eval …`, wherever it stands in the command."""
    for place, token in enumerate(tokens):
        if token.text == "eval" and place == 0 and len(tokens) > 1:
            return Token(text=" ".join(one.text for one in tokens[1:]), line=tokens[1].line)
        after = tokens[place + 1 : place + 3]
        if token.text.rpartition("/")[2] in _SHELLS and len(after) == 2 and re.fullmatch(r"-\w*c", after[0].text):
            return after[1]
    return None
