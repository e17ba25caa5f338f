"""A shell script cut into commands and words, with quotes, comments, continued lines, arrays and expansions told apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
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


def _expansion(lexer: _Lexer, *, quoted: bool) -> Part:
    line, rest = lexer.line, lexer.text[lexer.at : lexer.at + 3]
    if rest.startswith("`"):
        lexer.advance(1)
        return Part(kind="command", text=lexer.until("`", "a command substitution"), line=line, quoted=quoted)
    if rest == "$((":
        lexer.advance(3)
        text = lexer.balanced("(", ")", "a calculation")
        lexer.advance(1)
        return Part(kind="arithmetic", text=text, line=line, quoted=quoted)
    if rest.startswith("$("):
        lexer.advance(2)
        return Part(kind="command", text=lexer.balanced("(", ")", "a command substitution"), line=line, quoted=quoted)
    if rest.startswith("${"):
        lexer.advance(2)
        return Part(kind="variable", text=lexer.balanced("{", "}", "an expansion"), line=line, quoted=quoted)
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
