"""Shell scripts as far as they are literal: the commands they run, with variables and arrays put in, and what they export.

Nothing is run and nothing is guessed. Of a condition that is known its branch is read; where it is not, all are, and what they do not
agree on is unresolved. Functions, here-documents, scripts inside commands and files beside the script are read where they are used.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from diagnose.document.diagnosis import ScriptDefault
from diagnose.job import launch
from diagnose.job.beside import named
from diagnose.job.shell_syntax import (
    CONTINUED,
    Arithmetic,
    Case,
    Chain,
    For,
    Function,
    Group,
    If,
    Node,
    Not,
    Simple,
    While,
    Word,
    document_of,
    parse_script,
)
from diagnose.job.shell_values import (
    MAX_WORDS,
    Piece,
    Scope,
    Token,
    Value,
    Variable,
    calculated,
    expanded,
    forget,
    forget_counted,
    joined,
    known,
    matches,
    merged,
    plain,
    tested,
    token,
    unknown,
    words_of,
)

__all__ = ["Run", "Script", "Token", "read_script"]

_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<index>\[[^\]]*\])?(?P<plus>\+)?=")
_LOCAL = frozenset({"declare", "local", "typeset"})  # to the function in which they stand
_DECLARING = _LOCAL | {"export", "readonly"}
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_SUBMITTING = frozenset({"sbatch", "qsub", "bsub", "flux"})
_LAUNCHING = frozenset({"srun", "mpirun", "mpiexec"})
_MAX_LEVEL = 8  # of scripts inside commands, functions and files
_MAX_STEPS = 20_000
_MAX_TURNS = 32  # of a loop over words
_ENVIRONMENTS = re.compile(r"activate|\.?(bash|zsh)rc|\.?(bash_)?profile|conda\.sh|setvars\.sh|set_env\.sh|modules?\.sh")

Status = Literal["yes", "no", "unknown", "assumed"]
Flow = Literal["exit", "return", "break"] | None


class Run(Struct, frozen=True, kw_only=True):
    """One simple command with the environment that it sees."""

    tokens: tuple[Token, ...]
    environment: Mapping[str, Token]
    conditional: bool = False
    outer: tuple[Token, ...] = ()  # the words of commands that hold it, such as srun bash -c "…"


class Script(Struct, frozen=True, kw_only=True):
    """The commands of a script in order, what its variables hold at its end, and what had to be noted."""

    runs: tuple[Run, ...]
    variables: Mapping[str, tuple[Token, ...]]
    notes: tuple[str, ...]
    defaults: tuple[ScriptDefault, ...]
    files: Mapping[str, str] = {}  # that it writes itself, by the name it calls them, where all of them is known


def read_script(text: str, *, path: Path | None = None) -> Script:
    """What a script would run; `path` says where it lies. Raises ValueError with a sentence's end."""
    reader = _Reader(path)
    reader.schedule(launch.scheduled(text), reader.scope)
    reader.chain(parse_script(text), reader.scope)
    variables = {
        name: tuple(token(value, 1) for value in held.values) if held.array else words_of(held.values)
        for name, held in reader.scope.variables.items()
        if "[" not in name
    }
    notes, defaults = tuple(dict.fromkeys(reader.scope.notes)), tuple(dict.fromkeys(reader.scope.defaults))
    files = {name: whole for name, value in reader.files.items() if (whole := known(value)) is not None}
    return Script(runs=tuple(reader.runs), variables=variables, notes=notes, defaults=defaults, files=files)


@dataclass(eq=False)
class _Reader:
    """Goes through a script once; `conditional` counts the conditions around that are not known."""

    path: Path | None
    scope: Scope = field(init=False)
    runs: list[Run] = field(default_factory=list)
    functions: dict[str, tuple[Node, str]] = field(default_factory=dict)  # body, and the file that it stands in
    files: dict[str, Value] = field(default_factory=dict)  # that the script wrote itself
    conditional: int = 0
    outer: tuple[Token, ...] = ()
    scheduled: dict[str, Token] = field(default_factory=dict)
    steps: int = 0
    words: int = 0
    level: int = 0
    local: list[dict[str, Variable | None]] = field(default_factory=list)
    cut: bool = False  # whether the command before ends at a comment behind a line that goes on

    def __post_init__(self) -> None:
        self.scope = Scope(path=self.path)

    # --- nodes ---

    def chain(self, chain: Chain, scope: Scope) -> tuple[Status, Flow]:
        status: Status = "assumed"
        for before, node in chain.items:
            if (before, status) in (("&&", "no"), ("||", "yes")):
                continue
            if (before, status) in (("&&", "unknown"), ("||", "unknown"), ("||", "assumed")):
                self.maybe([node], scope, skipped=True)
                status = "unknown"
                continue
            taken, started = scope.copy(), len(self.runs)
            found, flow = self.node(node, taken)
            if before in ("&&", "||") and flow == "exit" and not self.starts(started):
                place = _line(node.body) if isinstance(node, Group) else getattr(node, "line", 1)
                scope.note(place, "the script ends here with what it gives its variables itself, so the run had other values")
                continue
            status, scope.variables, scope.exported = found, taken.variables, taken.exported
            if flow is not None:
                return status, flow
        return status, None

    def starts(self, since: int) -> bool:
        """Whether a program was started since so many commands. A script that ends without one only complains: the run went another way."""
        return any(_STARTS.fullmatch(one.text) for run in self.runs[since:] for one in run.tokens[:8])

    def node(self, node: Node | Chain, scope: Scope) -> tuple[Status, Flow]:
        if isinstance(node, Chain):
            return self.chain(node, scope)
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise ValueError(f"unfolds to more than {_MAX_STEPS} commands")
        match node:
            case Simple():
                return self.simple(node, scope)
            case Not():
                status, flow = self.node(node.body, scope)
                turned: dict[Status, Status] = {"yes": "no", "no": "yes"}
                return turned.get(status, "unknown"), flow
            case If():
                return "assumed", self.branches(node.branches, node.otherwise, scope)
            case For():
                return "assumed", self.loop(node, scope)
            case While():
                return "assumed", self.repeated(node, scope)
            case Case():
                return "assumed", self.case(node, scope)
            case Group():
                return self.chain(node.body, scope.copy() if node.own else scope)
            case Function():
                self.functions[node.name] = node.body, scope.source
                return "assumed", None
            case Arithmetic():
                number = calculated(node.text, node.line, scope)
                forget_counted(node.text, node.line, scope)
                return "unknown" if number is None else "yes" if number else "no", None

    def branches(self, branches: Sequence[tuple[Chain, Chain]], otherwise: Chain | None, scope: Scope) -> Flow:
        open_: list[Chain] = []
        for condition, body in branches:
            status = self.chain(condition, scope)[0]
            if status == "yes" and not open_:
                taken, before = scope.copy(), len(self.runs)
                flow = self.chain(body, taken)[1]
                if flow == "exit" and not self.starts(before):
                    continue
                scope.variables, scope.exported = taken.variables, taken.exported
                return flow
            if status != "no":
                open_.append(body)
            if status == "yes":
                return self.maybe(open_, scope, skipped=False)
        if not open_:
            return None if otherwise is None else self.chain(otherwise, scope)[1]
        return self.maybe([*open_, *filter(None, [otherwise])], scope, skipped=otherwise is None)

    def maybe(self, bodies: Sequence[Node | Chain], scope: Scope, *, skipped: bool) -> Flow:
        """Branches of which one is taken, nobody knows which; `skipped`: perhaps none. A branch that ends the script leaves no trace."""
        before = dict(scope.variables)
        left: list[Scope] = [scope.copy()] if skipped else []
        self.conditional += 1
        flows: list[Flow] = []
        for body in bodies:
            one = scope.copy()
            flows.append(self.node(body, one)[1])
            if flows[-1] in (None, "break"):
                left.append(one)
        self.conditional -= 1
        if not left:
            return flows[0]
        names = list(dict.fromkeys(name for one in left for name in one.variables))
        found = merged([one.variables for one in left], names)
        for name, held in found.items():
            if held != before.get(name) and any(one.variables.get(name) != left[0].variables.get(name) for one in left[1:]):
                line = next((piece.line for value in reversed(held.values) for piece in reversed(value) if piece.unresolved), 1)
                scope.note(line, f"{name} is set under a condition, so what it holds is not known")
        scope.variables = found
        scope.exported = set().union(*(one.exported for one in left))
        return None

    def loop(self, node: For, scope: Scope) -> Flow:
        if scope.variables.get("@") is None and [part.text for word in node.words or () for part in word.parts] in (["@"], ["*"]):
            self.without_arguments(node.body, scope)
            return None
        words = None if node.words is None else [one for word in node.words for one in expanded(word, scope)]
        if not words or len(words) > _MAX_TURNS or any(one.unresolved or re.search(r"[*?{]", one.text) for one in words):
            return self.unknown_loop(node, scope)
        before, start = len(self.runs), scope.copy()
        flow: Flow = None
        for word in words:
            scope.variables[node.name] = Variable(values=(word.pieces or plain(word.text, word.line),))
            flow = self.chain(node.body, scope)[1]
            if flow is not None:
                break
        turns = self.runs[before:]
        places = [run.tokens[0].line for run in turns]
        if len(set(places)) < len(places):  # the same command in several turns: what differs is the loop's
            del self.runs[before:]
            self.unknown_loop(node, start)
        return flow if flow in ("exit", "return") else None

    def unknown_loop(self, node: For, scope: Scope) -> Flow:
        if node.name:
            scope.variables[node.name] = Variable(values=(unknown(node.name, 1, scope),))
        return self.maybe([node.body], scope, skipped=True)

    def without_arguments(self, body: Chain, scope: Scope) -> None:
        """A loop over the script's arguments, read as if there were none: what it alone would set is not set."""
        scope.note(_line(body), "the loop over the script's arguments is read as if there were none")
        taken, runs, notes = scope.copy(), len(self.runs), len(scope.notes)
        self.chain(body, taken)
        del self.runs[runs:], scope.notes[notes:]
        scope.not_given |= taken.variables.keys() - scope.variables.keys()

    def repeated(self, node: While, scope: Scope) -> Flow:
        if scope.variables.get("#") is None and _over_arguments(node.condition):
            self.without_arguments(node.body, scope)
            return None
        status, _ = self.chain(node.condition, scope)
        if status == "no":
            return None
        return self.maybe([node.body], scope, skipped=True)

    def case(self, node: Case, scope: Scope) -> Flow:
        text = known(joined(node.word, scope))
        open_: list[Chain] = []
        closed = False
        for patterns, body in node.branches:
            any_ = any(pattern.plain == "*" for pattern in patterns)
            fits = [True] if any_ else [None if text is None else matches(text, pattern, scope) for pattern in patterns]
            closed = True in fits
            if closed and not open_ and (text is not None or len(node.branches) == 1):
                return self.chain(body, scope)[1]
            if closed or None in fits:
                open_.append(body)
            if closed:
                break
        if not open_:
            return None
        return self.maybe(open_, scope, skipped=not closed)

    # --- simple commands ---

    def simple(self, command: Simple, scope: Scope) -> tuple[Status, Flow]:
        rest = self.assigned(command.words, scope)
        if rest is None:
            return "yes", None
        words, prefix = rest
        name = words[0].plain
        if self.cut and _ARGUMENT.match(words[0].leading):
            shown = words[0].leading.partition("=")[0]
            scope.note(command.line, f"{shown} begins a command of its own: the comment before it ends the one above")
        self.cut = command.cut
        if name in ("[", "[[", "test"):
            found = tested(words, scope)
            return "unknown" if found is None else "yes" if found else "no", None
        own = self.built_in(name, words, command, scope)
        if own is not None:
            return own
        tokens = tuple(one for word in words for one in expanded(word, scope))
        self.words += len(tokens)
        if self.words > MAX_WORDS:
            raise ValueError(f"unfolds to more than {MAX_WORDS} words")
        if not tokens:
            return "assumed", None
        if tokens[0].text in self.functions and not tokens[0].unresolved:
            return "assumed", self.call(tokens[0].text, tokens[1:], scope)
        if self.inside(tokens, command, scope, prefix):
            return "assumed", None
        self.kept(tokens, command, scope)
        seen = {one: token(scope.variables[one].values[0], command.line) for one in scope.exported if self.plain_variable(one, scope)}
        asked = {f"#SBATCH {name}": one for name, one in self.scheduled.items()}
        self.runs.append(Run(tokens=tokens, environment=asked | seen | prefix, conditional=self.conditional > 0, outer=self.outer))
        return "assumed", None

    @staticmethod
    def plain_variable(name: str, scope: Scope) -> bool:
        held = scope.variables.get(name)
        return held is not None and not held.array and bool(held.values)

    def built_in(self, name: str, words: tuple[Word, ...], command: Simple, scope: Scope) -> tuple[Status, Flow] | None:
        """Commands that the shell itself carries out; None for others."""
        match name:
            case "true" | ":":
                for word in words[1:]:  # : "${TP:=2}" gives a variable its value
                    expanded(word, scope)
                return "yes", None
            case "false":
                return "no", None
            case "exit" | "return" | "break" | "continue":
                flows: dict[str, Flow] = {"exit": "exit", "return": "return"}
                return "assumed", flows.get(name, "break")
            case "source" | ".":
                tokens = [one for word in words[1:] for one in expanded(word, scope)]
                if tokens:
                    self.included(tokens[0], scope)
            case "read":
                self.read(words, command, scope)
            case "mapfile" | "readarray":
                forget([words[-1].plain], command.line, scope, array=True)
            case "unset":
                for word in words[1:]:
                    scope.variables.pop(word.plain, None)
            case "set" if len(words) > 1 and words[1].plain == "--":
                _forget_arguments(scope)
            case "shift":
                self.shifted("1" if len(words) == 1 else known(joined(words[1], scope)), command.line, scope)
            case "let":
                forget_counted("".join(f"{part.text} " for word in words[1:] for part in word.parts), command.line, scope)
            case "printf" if len(words) > 2 and words[1].plain == "-v":
                forget([words[2].plain], command.line, scope)
            case _:
                return None
        return "assumed", None

    def shifted(self, places: str | None, line: int, scope: Scope) -> None:
        """The arguments behind so many; none is known where that is not."""
        held = scope.variables.get("@")
        if places is None or not places.isdecimal():
            _forget_arguments(scope)
        elif held is not None and int(places) <= len(held.values):
            self.arguments(tuple(token(value, line) for value in held.values[int(places) :]), scope)

    def assigned(self, words: tuple[Word, ...], scope: Scope) -> tuple[tuple[Word, ...], dict[str, Token]] | None:
        """Take the assignments in front of a command into account: its words and its own variables; None where there is nothing else."""
        declaring = bool(words) and words[0].plain in _DECLARING
        export = declaring and (words[0].plain == "export" or any(word.plain == "-x" for word in words[1:]))
        items = words[1:] if declaring else words
        own = declaring and words[0].plain in _LOCAL and bool(self.local) and not any(word.plain == "-g" for word in words)
        ahead = [_ASSIGNMENT.match(word.leading) for word in items]
        count = next((place for place, match in enumerate(ahead) if match is None), len(items))
        if not declaring and count < len(items):
            prefix = {
                match["name"]: token(_right_side(word, match.end(), scope), word.line)
                for word, match in zip(items, ahead[:count], strict=False)
                if match
            }
            return items[count:], prefix
        for word, match in zip(items, ahead, strict=True):
            if own:
                name = word.plain if match is None else match["name"]
                self.local[-1].setdefault(name, scope.variables.get(name))
            if match is not None:
                _store(scope, word, match)
            if export:
                scope.exported.add(word.plain if match is None else match["name"])
        return None

    # --- what stands inside a command ---

    def call(self, name: str, arguments: Sequence[Token], scope: Scope) -> Flow:
        """A function's body, with its arguments in the place of the script's."""
        body, own_source = self.functions[name]
        if not self.deeper():
            return None
        kept = {key: held for key, held in scope.variables.items() if _is_argument(key)}
        source, scope.source = scope.source, own_source
        self.arguments(tuple(arguments), scope)
        self.local.append({})
        flow = self.node(body, scope)[1]
        outside = self.local.pop()
        scope.variables = {key: one for key, one in scope.variables.items() if key not in outside}
        scope.variables |= {key: one for key, one in outside.items() if one is not None}
        _forget_arguments(scope)
        scope.variables |= kept
        scope.source = source
        self.level -= 1
        return "exit" if flow == "exit" else None

    def deeper(self) -> bool:
        if self.level >= _MAX_LEVEL:
            return False
        self.level += 1
        return True

    @staticmethod
    def arguments(tokens: tuple[Token, ...], scope: Scope) -> None:
        _forget_arguments(scope)
        values = tuple(one.pieces or plain(one.text, one.line) for one in tokens)
        scope.variables |= {str(place): Variable(values=(value,)) for place, value in enumerate(values, 1)}
        scope.variables["@"] = scope.variables["*"] = Variable(values=values, array=True)
        if not any(one.several for one in tokens):
            scope.variables["#"] = Variable(values=(plain(str(len(values)), 1),))

    def inside(self, tokens: tuple[Token, ...], command: Simple, scope: Scope, prefix: Mapping[str, Token]) -> bool:
        """Read the script that a command holds: behind `-c`, in a here-document, in a file beside the script. False where it holds none.

        It sees the variables that stand before the command.
        """
        found = self.script_in(tokens, command, scope)
        if found is None:
            return False
        value, arguments = found
        if not self.deeper():
            raise ValueError("holds commands inside commands too deeply")
        inner = scope.copy()
        inner.variables |= {name: Variable(values=(one.pieces or plain(one.text, one.line, one.source),)) for name, one in prefix.items()}
        inner.exported |= set(prefix)
        if arguments is not None:
            self.arguments(arguments, inner)
        before, kept = self.outer, dict(self.scheduled)
        self.outer = (*before, *tokens)
        self.inner(value, inner, launch.asked(tokens) if tokens[0].text == "sbatch" else {})
        self.outer, self.scheduled = before, kept
        if tokens[0].text == "eval":  # no process of its own
            scope.variables, scope.exported = inner.variables, inner.exported
        self.level -= 1
        return True

    def schedule(self, given: Mapping[str, Token], scope: Scope) -> None:
        """What Slurm is asked for, and the variables that it sets in the job, but for those that the script sets by itself."""
        self.scheduled |= given
        for name, one in launch.variables(self.scheduled):
            scope.variables[name] = Variable(values=(plain(one.text, one.line, one.source),))

    def inner(self, value: Value, scope: Scope, asked: Mapping[str, Token] | None = None) -> None:
        """A value read as a script, each piece with its line; what is unresolved in it stays what the script called it."""
        text, marks = "", []
        gaps = {name: Variable(values=((piece,),)) for piece in value if (name := piece.unresolved.removeprefix("$")) in scope.variables}
        held = {name: scope.variables[name] for name in gaps}
        scope.variables |= gaps  # the text around a gap says what is known of the variable
        for piece in value:
            marks.append((len(text), piece.line))
            text += piece.unresolved or piece.text.replace(CONTINUED, "\\\n")
        source = next((piece.source for piece in value), scope.source)
        before, scope.source = scope.source, source
        given = {**launch.scheduled(text, value[0].line if value else 1), **(asked or {})}
        if given:
            self.schedule({name: dataclasses.replace(one, source=one.source or source) for name, one in given.items()}, scope)
        self.chain(parse_script(text, value[0].line if value else 1, marks), scope)
        scope.source = before
        scope.variables |= {name: one for name, one in held.items() if scope.variables.get(name) == gaps[name]}

    def script_in(self, tokens: tuple[Token, ...], command: Simple, scope: Scope) -> tuple[Value, tuple[Token, ...] | None] | None:
        if tokens[0].text == "eval" and len(tokens) > 1:
            return tuple(piece for one in tokens[1:] for piece in (*one.pieces, Piece(text=" ", line=one.line))), None
        for place, one in enumerate(tokens):
            name = one.text.rpartition("/")[2]
            if name not in _SHELLS and not (name in _SUBMITTING and place == 0):
                continue
            behind = tokens[place + 1 :]
            files = [at for at, after in enumerate(behind) if not after.text.startswith("-")]
            if name in _SHELLS and files and any(re.fullmatch(r"-\w*c", after.text) for after in behind[: min(files[0], 6)]):
                return behind[files[0]].pieces, None
            if command.heredocs and (not files or name in _SUBMITTING or behind[files[0]].text == "-s"):
                return joined(document_of(command.heredocs[-1]), scope), None
            for at in files[:4]:
                script = self.file(behind[at])
                if script is not None:
                    return script, behind[at + 1 :]
                if name in _SHELLS:
                    return None
        if tokens[0].text == "ssh" and len(tokens) > 2 and " " in tokens[-1].text:
            return tokens[-1].pieces, None
        for place, one in enumerate(tokens):
            script = self.file(one) if re.fullmatch(r".*/[\w.-]+\.sh" if place == 0 else r"(.*/)?[\w.-]+\.sh", one.text) else None
            if script is not None:
                return script, tokens[place + 1 :]
            if tokens[0].text not in _LAUNCHING or (place > 0 and _STARTS.fullmatch(one.text)):
                return None  # what follows are the program's own arguments
        return None

    def kept(self, tokens: tuple[Token, ...], command: Simple, scope: Scope) -> None:
        """A here-document, or a text that the script speaks, that is written to a file, to be read where that file is used."""
        target = joined(command.targets[-1], scope) if command.targets else tokens[-1].pieces if tokens[0].text == "tee" else None
        path = None if target is None else token(target, command.line).text  # as the script calls it, where part of it is not known
        if path and command.heredocs and tokens[0].text in ("cat", "tee"):
            self.files[path] = joined(document_of(command.heredocs[-1]), scope)
        elif path and command.targets and tokens[0].text == "echo" and len(tokens) == 2 and "\n" in tokens[1].text:
            self.files[path] = tokens[1].pieces

    # --- files beside the script ---

    def included(self, name: Token, scope: Scope) -> None:
        value = self.file(name)
        if value is None:
            shown = name.text.rpartition("/")[2]
            if not _ENVIRONMENTS.search(shown):
                scope.note(name.line, f"{shown or 'a file'} is not beside the script, so what it sets is not known")
        elif self.deeper():
            self.inner(value, scope)
            self.level -= 1

    def file(self, name: Token) -> Value | None:
        """A file that the script wrote itself, or one beside it; None where there is none, or its name is not known."""
        if name.text in self.files:
            return self.files[name.text]
        if self.path is None or (name.unresolved and not re.search(r"/[\w.+-]+$", name.text)):
            return None
        folder = self.path.parent
        known_tail = name.pieces[-1].text.lstrip("/") if name.unresolved and not name.pieces[-1].unresolved else name.text
        tries = [known_tail] if not name.unresolved else [known_tail, known_tail.rpartition("/")[2]]
        for one in tries:
            found = named(one, folder) if one else None
            if found is not None and found[0] == self.path.resolve():
                return None  # it submits itself: what it does then is what is read here
            if found is not None:
                shown = str(found[0].relative_to(folder)) if found[0].is_relative_to(folder) else found[0].name
                return plain(found[1], 1, shown)
        return None

    def read(self, words: tuple[Word, ...], command: Simple, scope: Scope) -> None:
        """`read` of names from the script itself, words between blanks or IFS; of anything else that it reads nothing is known."""
        array = any(re.fullmatch(r"-\w*a", word.plain) for word in words)
        names = [word.plain for word in words[1:] if re.fullmatch(r"[A-Za-z_]\w*", word.plain)]
        forget(names, command.line, scope, array=array)
        sources = (*command.strings, *map(document_of, command.heredocs))
        value = joined(sources[0], scope) if sources and not array else ()
        text = known(value)
        if len(names) == 1 and value:
            scope.variables[names[0]] = Variable(values=(value,))
        elif value and text is not None:
            separator = next((known(_right_side(word, 4, scope)) for word in command.words if word.leading.startswith("IFS=")), None)
            parts = [*text.split(separator or None, len(names) - 1), *("" for _ in names)]
            given = zip(names, parts, strict=False)
            scope.variables |= {name: Variable(values=(plain(part, value[0].line, scope.source),)) for name, part in given}


def _over_arguments(condition: Chain) -> bool:
    """Whether a loop goes on while there are arguments: it counts them, or asks for the next one and for nothing else."""
    shown = repr(condition)
    if "'#'" in shown or "getopts" in shown:
        return True
    words = [word for _, node in condition.items if isinstance(node, Simple) for word in node.words]
    asked = {part.text for word in words for part in word.parts if part.kind != "text"}
    return bool(asked) and all(re.fullmatch(r"1(:?-)?", one) for one in asked)


_ARGUMENT = re.compile(r"--?[A-Za-z]|[+~]{0,2}\w+(\.\w+)+=")  # of a command, which no command's name is
_STARTS = re.compile(r"(.*/)?(python[\d.]*|torchrun|srun|mpirun|deepspeed|accelerate)")


def _is_argument(name: str) -> bool:
    return name in ("@", "*", "#") or name.isdigit()


def _forget_arguments(scope: Scope) -> None:
    scope.variables = {name: one for name, one in scope.variables.items() if not _is_argument(name)}


def _line(chain: Chain) -> int:
    """The line of the first command, or of the word that the first `case` looks at."""
    first = next((node for _, node in chain.items), None)
    match first:
        case Case():
            return first.word.line
        case If():
            return _line(first.branches[0][0])
        case While():
            return _line(first.condition)
        case Group():
            return _line(first.body)
    return getattr(first, "line", 1)


def _store(scope: Scope, word: Word, match: re.Match[str]) -> None:
    name = match["name"]
    before = scope.variables.get(name)
    if match["index"]:
        key = calculated(match["index"][1:-1], word.line, scope)
        text = match["index"][1:-1].strip("\"'") if key is None else str(key)
        scope.variables[f"{name}[{text}]"] = Variable(values=(_right_side(word, match.end(), scope),))
        return
    if word.array is not None:
        for item in word.array:  # declare -A NAME=([key]=value)
            member = re.match(r"\[([^\]]*)\]=", item.leading)
            if member:
                scope.variables[f"{name}[{member[1]}]"] = Variable(values=(_right_side(item, member.end(), scope),))
        values = tuple(one.pieces or plain(one.text, one.line) for item in word.array for one in expanded(item, scope))
        values = (*(before.values if before and match["plus"] else ()), *values)
        scope.variables[name] = Variable(values=values, array=True)
        return
    value = _right_side(word, match.end(), scope)
    if match["plus"] and before is not None:  # behind a text, or the first member of an array
        first, *more = before.values or ((),)
        scope.variables[name] = replace(before, values=((*first, *value), *more))
    else:
        scope.variables[name] = Variable(values=(value,))


def _right_side(word: Word, skip: int, scope: Scope) -> Value:
    """What stands behind the sign of equality."""
    return joined(replace(word, parts=(replace(word.parts[0], text=word.parts[0].text[skip:]), *word.parts[1:])), scope)
