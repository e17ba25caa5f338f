"""The syntax of shell scripts: text taken apart into words, commands, conditions and loops.

Nothing is expanded here, and nothing is run.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|\n()]")
_REDIRECT = re.compile(r"(?:\{\w+\}|\d*)(?:<<<|&>>|>>|&>|<&|>&|>\||<>|<|>)")
_HEREDOC = re.compile(r"\d*<<(?P<dash>-?)[ \t]*(?P<quote>\\|['\"]?)(?P<end>[\w.!-]+)(?:(?P=quote))?")
_VARIABLE = re.compile(r"\$(\w+|[@*#?$!-])")
_BLANKS = " \t\r\v\f\u00a0"
_ENDS = _BLANKS + "\n;&|()"
# A line that goes on inside quotes keeps its break, as a blank would do: options are cut there and keep their lines. Where such a text is
# read as a script again, it goes on as well.
CONTINUED = "\f\n"
_MAX_DEPTH = 60  # of commands in commands: the parser recurses


class Part(Struct, frozen=True, kw_only=True):
    """A piece of a word: plain text, or something that the shell would put in."""

    kind: Literal["text", "variable", "arithmetic", "command"]
    text: str
    line: int
    quoted: bool = False

    @property
    def shown(self) -> str:
        """The piece as the script writes it, for people; a long one without what may hold brackets: it may be read as a script again."""
        long = len(self.text) > 60
        if self.kind == "variable":
            inner = re.match(r"[!#]?\w*", self.text).group() + "…" if long else self.text  # type: ignore[union-attr]  # matches nothing too
            return f"${self.text}" if re.fullmatch(r"\w+|[@*#?$!-]", self.text) else "${" + inner + "}"
        return {"arithmetic": f"$(({'…' if long else self.text}))", "command": "$(…)", "text": self.text}[self.kind]


class Word(Struct, frozen=True, kw_only=True):
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


@dataclass(kw_only=True)
class Heredoc:
    """The lines behind a command that it reads as its input, known once the line of the command has ended."""

    end: str
    literal: bool
    tabs: bool
    text: str = ""
    line: int = 0


class Simple(Struct, frozen=True, kw_only=True):
    """One command: its words, what it reads from the script itself (here-documents, here-strings), and the files it writes to.

    `cut`: it ends at a comment behind a line that goes on.
    """

    words: tuple[Word, ...]
    line: int
    heredocs: tuple[Heredoc, ...] = ()
    strings: tuple[Word, ...] = ()
    targets: tuple[Word, ...] = ()
    cut: bool = False


class Chain(Struct, frozen=True, kw_only=True):
    """Commands with the operator before each: ; && || | and the like."""

    items: tuple[tuple[str, Node], ...]


class Not(Struct, frozen=True, kw_only=True):
    """`! command`."""

    body: Node


class If(Struct, frozen=True, kw_only=True):
    """Conditions with what follows on each, and what follows on none."""

    branches: tuple[tuple[Chain, Chain], ...]
    otherwise: Chain | None


class For(Struct, frozen=True, kw_only=True):
    """A loop over words; None where they are the script's arguments or a calculation."""

    name: str
    words: tuple[Word, ...] | None
    body: Chain


class While(Struct, frozen=True, kw_only=True):
    """A loop on a condition."""

    condition: Chain
    body: Chain


class Case(Struct, frozen=True, kw_only=True):
    """A word held against patterns."""

    word: Word
    branches: tuple[tuple[tuple[Word, ...], Chain], ...]


class Group(Struct, frozen=True, kw_only=True):
    """Commands in braces, or in brackets (`own`: a shell of their own)."""

    body: Chain
    own: bool


class Function(Struct, frozen=True, kw_only=True):
    """A function that is defined, not called."""

    name: str
    body: Node


class Arithmetic(Struct, frozen=True, kw_only=True):
    """`(( … ))`."""

    text: str
    line: int


Node = Simple | Not | If | For | While | Case | Group | Function | Arithmetic


class _Lexer:
    """Reads one script once, from left to right. `marks` are (offset, line) from which lines count anew."""

    def __init__(self, text: str, line: int, marks: Sequence[tuple[int, int]] = ()) -> None:
        self.text, self.at = text, 0
        self.offsets = [0, *(offset for offset, _ in marks)]
        self.starts = [line, *(start for _, start in marks)]
        self.known = (0, 0, line)  # mark, offset, line there
        self.cut = -1  # where the last comment behind a line that goes on ends

    @property
    def line(self) -> int:
        mark = bisect.bisect_right(self.offsets, self.at) - 1
        if mark != self.known[0] or self.at < self.known[1]:
            self.known = (mark, self.offsets[mark], self.starts[mark])
        _, offset, line = self.known
        line += self.text.count("\n", offset, self.at)
        self.known = (mark, self.at, line)
        return line

    def advance(self, count: int) -> str:
        taken = self.text[self.at : self.at + count]
        self.at += len(taken)
        return taken

    def until(self, end: str, what: str) -> str:
        """The text up to `end`, which is passed over. Raises ValueError where it never comes."""
        found = self.text.find(end, self.at)
        if found < 0:
            raise ValueError(f"holds {what} in line {self.line} that never ends")
        taken = self.advance(found - self.at)
        self.advance(len(end))
        return taken

    def balanced(self, opening: str, closing: str, what: str, *, quotes: str = "'\"") -> str:
        """The text up to the bracket that closes the one just passed; brackets in quotes do not count."""
        depth, start, line = 1, self.at, self.line
        while self.at < len(self.text):
            sign = self.advance(1)
            depth += (sign == opening) - (sign == closing)
            if depth == 0:
                return self.text[start : self.at - 1]
            if sign == "\\":
                self.advance(1)
            elif sign in quotes:
                self._quoted(sign)
            elif sign == "#" and opening == "(" and self.text[self.at - 2 : self.at - 1] in ("\n", " ", "\t"):
                end = self.text.find("\n", self.at)
                self.advance((len(self.text) if end < 0 else end) - self.at)
        raise ValueError(f"holds {what} in line {line} that never ends")

    def _quoted(self, sign: str) -> None:
        """Pass over a quote that was opened; one that never closes stood for itself."""
        place = self.at
        while place < len(self.text):
            if self.text[place] == sign:
                self.at = place + 1
                return
            place += 2 if self.text[place] == "\\" and sign == '"' else 1

    def blanks(self) -> None:
        """Pass over blanks, continued lines and comments."""
        continued = False
        while self.at < len(self.text):
            if self.text.startswith(("\\\n", "\\\r\n"), self.at):
                self.advance(2 if self.text[self.at + 1] == "\n" else 3)
                continued = True
            elif self.text[self.at] in _BLANKS:
                self.advance(1)
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.advance((len(self.text) if end < 0 else end) - self.at)
                self.cut = self.at if continued else self.cut
            else:
                return


# --- words ------------------------------------------------------------------------------------------------------------


def _word(lexer: _Lexer, ends: str = _ENDS) -> Word:
    parts: list[Part] = []
    line = lexer.line
    while lexer.at < len(lexer.text):
        sign = lexer.text[lexer.at]
        if lexer.text.startswith(("\\\n", "\\\r\n"), lexer.at):
            following = lexer.text[lexer.at + 2 : lexer.at + 3]
            if not parts or not following or following in _BLANKS + "\n\r#":
                break
            lexer.advance(2 if lexer.text[lexer.at + 1] == "\n" else 3)  # a word that goes on in the next line
            continue
        if sign == "(" and parts and parts[-1].kind == "text" and parts[-1].text.endswith("=") and not parts[-1].quoted:
            return Word(parts=_merged(parts), line=line, array=_array(lexer))
        if sign in ends or (sign in "<>" and parts and ends == _ENDS):
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
    if lexer.text.startswith(("$'", '$"'), lexer.at):
        lexer.advance(1)
        sign = lexer.text[lexer.at]
    if sign == '"':
        return _double(lexer)
    if sign in "'\\":
        lexer.advance(1)
        text = lexer.until("'", "a quote") if sign == "'" else lexer.advance(1)
        return [Part(kind="text", text=text, line=line, quoted=True)]
    if sign in "$`":
        return [_expansion(lexer, quoted=False)]
    return [Part(kind="text", text=lexer.advance(1), line=line)]


def _double(lexer: _Lexer) -> list[Part]:
    """What stands in double quotes: text and expansions."""
    start = lexer.line
    lexer.advance(1)
    parts = [Part(kind="text", text="", line=start, quoted=True)]
    while lexer.at < len(lexer.text):
        if lexer.text[lexer.at] == '"':
            lexer.advance(1)
            return parts
        parts.append(_inside(lexer, '"\\$`\n'))
    raise ValueError(f"holds a quote in line {start} that never ends")


def _inside(lexer: _Lexer, escaped: str) -> Part:
    """One piece of text in which blanks and brackets mean nothing."""
    sign, line = lexer.text[lexer.at], lexer.line
    if sign in "$`":
        return _expansion(lexer, quoted=True)
    following = lexer.text[lexer.at + 1 : lexer.at + 2]
    if sign == "\\" and following and following in escaped:
        lexer.advance(1)
        taken = lexer.advance(1)
        return Part(kind="text", text=CONTINUED if taken == "\n" else taken, line=line, quoted=True)
    plain = re.compile(r'[^"\\$`]+').match(lexer.text, lexer.at)
    return Part(kind="text", text=lexer.advance(len(plain.group()) if plain else 1), line=line, quoted=True)


_EXPANSIONS: tuple[tuple[str, str, Literal["variable", "arithmetic", "command"], str], ...] = (
    ("`", "`", "command", "a command substitution"),
    ("$((", "))", "arithmetic", "a calculation"),
    ("$[", "]", "arithmetic", "a calculation"),  # the older way to write one
    ("$(", ")", "command", "a command substitution"),
    ("${", "}", "variable", "an expansion"),
)


def _expansion(lexer: _Lexer, *, quoted: bool) -> Part:
    line = lexer.line
    for opening, closing, kind, what in _EXPANSIONS:
        if lexer.text.startswith(opening, lexer.at):
            lexer.advance(len(opening))
            if opening == closing:
                return Part(kind=kind, text=lexer.until(closing, what).replace("\\`", "`"), line=line, quoted=quoted)
            if kind == "variable":
                text = _braced(lexer, what)
            else:
                text = lexer.balanced(opening[-1], closing[0], what, quotes="" if kind == "arithmetic" else "'\"")
            lexer.advance(len(closing) - 1)
            return Part(kind=kind, text=text, line=line, quoted=quoted)
    match = _VARIABLE.match(lexer.text, lexer.at)
    if match is None:
        return Part(kind="text", text=lexer.advance(1), line=line, quoted=quoted)
    name = match[1][:1] if match[1][:1].isdigit() else match[1]
    lexer.advance(len(name) + 1)
    return Part(kind="variable", text=name, line=line, quoted=quoted)


def _braced(lexer: _Lexer, what: str) -> str:
    """The inside of ${ … }: only expansions inside it open braces of their own."""
    start, line = lexer.at, lexer.line
    while lexer.at < len(lexer.text):
        sign = lexer.text[lexer.at]
        if sign == "}":
            lexer.advance(1)
            return lexer.text[start : lexer.at - 1]
        if sign == "$":
            _expansion(lexer, quoted=True)
        elif sign == '"':
            _double(lexer)
        else:
            lexer.advance(2 if sign == "\\" else 1)
    raise ValueError(f"holds {what} in line {line} that never ends")


def word_of(text: str, line: int) -> Word:
    """Text as one word in which quotes and expansions count, and blanks do not cut."""
    lexer = _Lexer(text, line)
    parts: list[Part] = []
    while lexer.at < len(text):
        parts += _piece(lexer, text[lexer.at])
    return Word(parts=_merged(parts), line=line)


def document_of(heredoc: Heredoc) -> Word:
    """A here-document as one word: expansions count in it, quotes do not."""
    if heredoc.literal:
        return Word(parts=(Part(kind="text", text=heredoc.text, line=heredoc.line, quoted=True),), line=heredoc.line)
    lexer = _Lexer(heredoc.text, heredoc.line)
    parts: list[Part] = []
    while lexer.at < len(lexer.text):
        parts.append(_inside(lexer, "\\$`\n"))
    return Word(parts=_merged(parts), line=heredoc.line)


def _merged(parts: list[Part]) -> tuple[Part, ...]:
    """Neighbouring texts of one kind as one."""
    texts: list[list[Part]] = []
    for part in parts:
        if texts and part.kind == "text" == texts[-1][0].kind and part.quoted == texts[-1][0].quoted:
            texts[-1].append(part)
        else:
            texts.append([part])
    return tuple(replace(group[0], text="".join(part.text for part in group)) for group in texts)


# --- commands ---------------------------------------------------------------------------------------------------------

_RESERVED = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}", "in"})


def parse_script(text: str, line: int = 1, marks: Sequence[tuple[int, int]] = ()) -> Chain:
    """The commands of a script. Raises ValueError for quotes and brackets that never close."""
    parser = _Parser(_Lexer(text, line, marks))
    items: list[tuple[str, Node]] = []
    while True:
        items += parser.chain(frozenset()).items
        if parser.lexer.at >= len(text):
            return Chain(items=tuple(items))
        parser.skip_one()  # a keyword or a bracket that closes nothing


class _Parser:
    """Commands by recursive descent; lenient where a script is broken, since nothing hangs on what it would do."""

    def __init__(self, lexer: _Lexer) -> None:
        self.lexer = lexer
        self.pending: list[Heredoc] = []
        self.depth = 0

    # what stands next

    def operator(self) -> str:
        self.lexer.blanks()
        found = _OPERATOR.match(self.lexer.text, self.lexer.at)
        return found.group() if found else ""

    def take(self, sign: str) -> None:
        self.lexer.advance(len(sign))
        if sign == "\n":
            for heredoc in self.pending:
                self.document(heredoc)
            self.pending = []

    def newlines(self) -> None:
        while self.operator() in ("\n", ";"):
            self.take(self.operator())

    def keyword(self) -> str:
        """The plain word that comes next, which stays."""
        self.lexer.blanks()
        found = re.compile(r"[^\s;&|()<>\"'$`\\]+").match(self.lexer.text, self.lexer.at)
        return found.group() if found else ""

    def skip_one(self) -> None:
        sign = self.operator()
        if sign:
            self.take(sign)
        else:
            _word(self.lexer)

    def accept(self, *words: str) -> str:
        """One of the keywords, passed over where it comes next."""
        self.newlines()
        found = self.keyword()
        if found in words:
            self.lexer.advance(len(found))
            return found
        return ""

    def document(self, heredoc: Heredoc) -> None:
        end = re.compile(rf"^{chr(92)}t*{re.escape(heredoc.end)}[ \t]*\r?$", re.MULTILINE).search(self.lexer.text, self.lexer.at)
        heredoc.line = self.lexer.line
        text = self.lexer.advance((end.start() if end else len(self.lexer.text)) - self.lexer.at)
        heredoc.text = re.sub(r"^\t+", "", text, flags=re.MULTILINE) if heredoc.tabs else text
        if end:
            self.lexer.advance(end.end() - end.start())

    # nodes

    def chain(self, ends: frozenset[str]) -> Chain:
        """Commands up to one of the keywords or operators in `ends`, which stays."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ValueError("holds commands inside commands too deeply")
        items: list[tuple[str, Node]] = []
        before = ";"
        while self.lexer.at < len(self.lexer.text):
            sign = self.operator()
            if sign in ends or (sign == ")" and not ends):
                break
            if sign and sign != "(":
                self.take(sign)
                before = before if sign == "\n" and before in ("&&", "||", "|") else sign
                continue
            if self.lexer.at >= len(self.lexer.text) or self.keyword() in (ends | _RESERVED):
                break
            node = self.node()
            if node is not None:
                items.append((before, node))
            before = ";"
        self.depth -= 1
        return Chain(items=tuple(items))

    def node(self) -> Node | None:
        word = self.keyword()
        if self.lexer.text.startswith("((", self.lexer.at):
            line = self.lexer.line
            self.lexer.advance(2)
            text = self.lexer.balanced("(", ")", "a calculation", quotes="")
            if self.lexer.text.startswith(")", self.lexer.at):
                self.lexer.advance(1)
            return Arithmetic(text=text, line=line)
        if self.operator() == "(":
            self.take("(")
            body = self.chain(frozenset({")"}))
            if self.operator() == ")":
                self.take(")")
            return self.redirected(Group(body=body, own=True))
        if word == "!":
            self.lexer.advance(1)
            body_ = self.node() if self.operator() in ("", "(") else None
            return None if body_ is None else Not(body=body_)
        readers: dict[str, Callable[[], Node]] = {"if": self.conditional, "for": self.loop, "select": self.loop, "case": self.case}
        reader = {**readers, "while": self.repeated, "until": self.repeated}.get(word)
        if reader is not None:
            self.lexer.advance(len(word))
            return self.redirected(reader())
        if word == "{":
            self.lexer.advance(1)
            body = self.chain(frozenset({"}"}))
            self.accept("}")
            return self.redirected(Group(body=body, own=False))
        return self.function(word) or self.simple()

    def redirected(self, node: Node) -> Node:
        """A compound command with the redirections behind it, which change nothing here."""
        while self.lexer.at < len(self.lexer.text) and not self.operator() and self.redirection([], [], []):
            pass
        return node

    def redirection(self, heredocs: list[Heredoc], strings: list[Word], targets: list[Word]) -> bool:
        """One redirection, put where it belongs; False where none comes next."""
        heredoc = _HEREDOC.match(self.lexer.text, self.lexer.at)
        found = _REDIRECT.match(self.lexer.text, self.lexer.at)
        if heredoc and not (found and found.group().endswith("<<<")):
            heredocs.append(Heredoc(end=heredoc["end"], literal=bool(heredoc["quote"]), tabs=bool(heredoc["dash"])))
            self.pending.append(heredocs[-1])
            self.lexer.advance(len(heredoc.group()))
        elif found:
            self.lexer.advance(len(found.group()))
            self.lexer.blanks()
            if self.lexer.at < len(self.lexer.text) and self.operator() in ("", "("):
                target = _word(self.lexer)
                if found.group().endswith("<<<"):
                    strings.append(target)
                elif ">" in found.group() and "&" not in found.group():
                    targets.append(target)
        return bool(heredoc or found)

    def function(self, word: str) -> Function | None:
        place = self.lexer.at
        if word == "function":
            self.lexer.advance(len(word))
            word = self.keyword()
        elif not re.compile(r"[\w:.-]+[ \t]*\([ \t]*\)").match(self.lexer.text, place):
            return None
        self.lexer.blanks()
        self.lexer.advance(len(word))
        if self.operator() == "(":
            self.take("(")
            if self.operator() == ")":
                self.take(")")
        self.newlines()
        body = self.node()
        return None if body is None else Function(name=word, body=body)

    def conditional(self) -> If:
        branches = [(self.chain(frozenset({"then"})), self.then())]
        otherwise: Chain | None = None
        while found := self.accept("elif", "else"):
            if found == "else":
                otherwise = self.chain(frozenset({"fi"}))
            else:
                branches.append((self.chain(frozenset({"then"})), self.then()))
        self.accept("fi")
        return If(branches=tuple(branches), otherwise=otherwise)

    def then(self) -> Chain:
        self.accept("then")
        return self.chain(frozenset({"elif", "else", "fi"}))

    def loop(self) -> For:
        words: list[Word] | None = None
        if self.lexer.text.startswith("((", self.lexer.at) or self.operator() == "(":
            self.node()
            name = ""
        else:
            name = self.keyword()
            self.lexer.advance(len(name))
            if self.accept("in"):
                words = []
                while self.lexer.at < len(self.lexer.text) and not self.operator():
                    words.append(_word(self.lexer))
        return For(name=name, words=None if words is None else tuple(words), body=self.done())

    def repeated(self) -> While:
        condition = self.chain(frozenset({"do"}))
        return While(condition=condition, body=self.done())

    def done(self) -> Chain:
        self.accept("do", "{")
        body = self.chain(frozenset({"done", "}"}))
        self.accept("done", "}")
        return body

    def case(self) -> Case:
        self.lexer.blanks()
        word = _word(self.lexer)
        self.accept("in")
        branches: list[tuple[tuple[Word, ...], Chain]] = []
        while self.lexer.at < len(self.lexer.text):
            self.newlines()
            if self.operator() == "(":
                self.take("(")
            if self.accept("esac") or self.lexer.at >= len(self.lexer.text):
                break
            patterns: list[Word] = []
            while self.lexer.at < len(self.lexer.text) and (sign := self.operator()) in ("", "|"):
                if sign:
                    self.take(sign)
                    self.lexer.blanks()
                patterns.append(_word(self.lexer))
            if self.operator() == ")":
                self.take(")")
            branches.append((tuple(patterns), self.chain(frozenset({";;", ";;&", ";&", "esac"}))))
            if self.operator() in (";;", ";;&", ";&"):
                self.take(self.operator())
        return Case(word=word, branches=tuple(branches))

    def simple(self) -> Simple:
        words: list[Word] = []
        heredocs: list[Heredoc] = []
        strings: list[Word] = []
        targets: list[Word] = []
        line = self.lexer.line
        while not self.operator() and self.lexer.at < len(self.lexer.text):  # the first skips blanks
            if not self.redirection(heredocs, strings, targets):
                words.append(_word(self.lexer))
                if words[-1].plain == "[[" and len(words) == 1:
                    self.tested(words)
        return Simple(
            words=tuple(words),
            line=words[0].line if words else line,
            heredocs=tuple(heredocs),
            strings=tuple(strings),
            targets=tuple(targets),
            cut=self.lexer.cut == self.lexer.at,
        )

    def tested(self, words: list[Word]) -> None:
        """The words of [[ … ]], in which operators are words too."""
        while self.lexer.at < len(self.lexer.text) and words[-1].plain != "]]":
            self.lexer.blanks()
            regex, line = words[-1].plain == "=~", self.lexer.line
            sign = _OPERATOR.match(self.lexer.text, self.lexer.at)
            if not sign or regex:
                words.append(_word(self.lexer, ends=_BLANKS + "\n" if regex else _ENDS))
            elif sign.group() in ("&&", "||", "(", ")"):
                words.append(Word(parts=(Part(kind="text", text=self.lexer.advance(len(sign.group())), line=line),), line=line))
            elif sign.group() == "\n":
                self.lexer.advance(1)
            else:
                return
