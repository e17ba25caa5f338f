"""The answer on one screen: which run, the verdict, where the step goes, what to change, what to know before, and what next.

Every part is written as pieces of known worth. Where they do not fit on the screen the ones of least worth are left out, and the last line
says how to see them; nothing is cut in the middle.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text as Words

from diagnose.knowledge.templates import enumerated
from diagnose.model.names import visible
from diagnose.render import report as r
from diagnose.render import units
from diagnose.render.fitting import Piece, fitted

SCREENS = ((100, 45), (80, 60))  # columns, and the lines that an answer has at most from there on
NARROW = 80  # lines on a terminal with fewer columns
MOST_REASONS = 3
MOST_SETTINGS = 8  # lines of settings of one step
_EIGHTHS = " ▏▎▍▌▋▊▉"
_GLUE = "\ue000"  # keeps a number and its unit on one line: rich breaks at every kind of space
_WORD = re.compile(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+")  # of a shell, with what it quotes
_INDENT = 4
_MAIN_STEP = re.compile(r"step (\d+)")  # no alternative
_AMOUNT, _PERCENT = 9, 7  # columns of the bar's figures


def lines(contents: Sequence[r.Content], look: str, width: int, *, whole: bool) -> list[Words]:
    """The answer, wrapped to `width`. `look`: the style of the verdict; `whole`: nothing is left out, however long."""
    made = AnswerWriter(width=width, look=look, whole=whole)
    pieces = [piece for content in contents for piece in made.pieces(content)]
    most = next((most for columns, most in SCREENS if width >= columns), NARROW)
    if not whole:
        pieces = _on_a_screen(pieces, most)
    found = [line for piece in pieces for line in piece.lines]
    return [line for place, line in enumerate(found) if line.plain.strip() or (place and found[place - 1].plain.strip())]


def _on_a_screen(pieces: Sequence[Piece[Words]], most: int) -> list[Piece[Words]]:
    """The pieces that fit; where steps of the plan are left out, of which the forecast speaks, a line in their place says so."""
    kept = fitted(pieces, most)
    if not _main_steps(pieces, without=kept):
        return kept
    kept = fitted(pieces, most - 1)
    gone = _main_steps(pieces, without=kept)
    last = max((place for place, piece in enumerate(kept) if f"{piece.name}{piece.under}".startswith("step ")), default=len(kept) - 1)
    told = Words(f" {enumerated(gone)} with -v", style="dim")
    return [*kept[: last + 1], Piece(worth=0, lines=(told,)), *kept[last + 1 :]]


def _main_steps(pieces: Sequence[Piece[Words]], *, without: Sequence[Piece[Words]]) -> list[str]:
    """The numbers of the plan's steps, alternatives apart, that stand in `pieces` and not in `without`."""
    shown = {piece.name for piece in without}
    return [match[1] for piece in pieces if piece.name not in shown and (match := _MAIN_STEP.fullmatch(piece.name))]


class AnswerWriter:
    """Writes the parts of an answer as pieces."""

    def __init__(self, *, width: int, look: str, whole: bool) -> None:
        self.width, self.look, self.whole = width, look, whole
        self.decided = True
        self.console = Console(width=width, file=None, _environ={}, force_jupyter=False)

    def pieces(self, content: r.Content) -> Iterator[Piece[Words]]:
        """One part of the answer."""
        match content:
            case r.Masthead() as masthead:
                yield from self._masthead(masthead)
            case r.Panel() as panel:
                yield from self._verdict(panel)
            case r.Bar() as bar:
                yield Piece(worth=95, lines=tuple(self._bar(bar)))
            case r.Plan() as plan:
                self.decided = plan.decided  # without a job file nothing is, which is said once
                yield from self._plan(plan)
            case r.Remarks() as remarks:
                yield from self._remarks(remarks)
            case r.Commands() as commands:
                yield from self._commands(commands)

    def _wrapped(self, *spans: tuple[str, str], left: int = 0, hang: int = 0) -> tuple[Words, ...]:
        """Spans as lines, indented by `left`, from the second on by `hang` more."""
        text = Words.assemble(*((units.glued(visible(said), _GLUE), style) for said, style in spans))
        room = max(self.width - left - hang, 20)
        wrapped = text.wrap(self.console, room)
        return tuple(Words(" " * (left + (hang if place else 0))).append_text(line) for place, line in enumerate(_trimmed(wrapped)))

    # --- which run, and the verdict -----------------------------------------------------------------------------------

    def _masthead(self, masthead: r.Masthead) -> Iterator[Piece[Words]]:
        yield Piece(worth=100, lines=self._wrapped((" · ".join(masthead.run), "bold")))
        yield Piece(worth=100, lines=self._wrapped(("   ".join(masthead.speed), "")))
        if masthead.note:
            yield Piece(worth=52, lines=self._wrapped((masthead.note, "dim")))

    def _verdict(self, panel: r.Panel) -> Iterator[Piece[Words]]:
        spans = [(panel.headline.upper(), f"bold {self.look}"), (f"  {' · '.join(phrase.text for phrase in panel.phrases)}", "dim")]
        yield Piece(worth=100, lines=(Words(), *self._wrapped(*spans), *self._wrapped((panel.sentence, "bold"))))
        if panel.reasons:
            shown = panel.reasons if self.whole else panel.reasons[:MOST_REASONS]
            more = len(panel.reasons) - len(shown)
            told = f"because {'; '.join(shown)}{f'; {more} more with -v' if more else ''}"
            yield Piece(worth=94, lines=self._wrapped((told, "dim"), left=2, hang=2))

    # --- where the step goes ------------------------------------------------------------------------------------------

    def _bar(self, bar: r.Bar) -> Iterator[Words]:
        yield Words()
        if not bar.parts:
            yield from self._wrapped((f"{bar.title}: {bar.empty}", "dim"))
            return
        wide = max(len(part.label) for part in bar.parts) + 3
        room = max(self.width - wide - _AMOUNT - _PERCENT - 1, 8)
        yield Words.assemble((f"{bar.title:<{wide + room}}", "bold"), (f"{bar.unit:>{_AMOUNT}}{'%':>{_PERCENT}}", "dim"))
        longest = max(part.share for part in bar.parts)
        for part in bar.parts:
            drawn = _drawn(part.share / longest, room)
            label = f"  {part.label:<{wide - 2}}"
            yield Words.assemble(label, (f"{drawn:<{room}}", part.colour), f"{part.amount:>{_AMOUNT}}{part.percent:>{_PERCENT}}")

    # --- what to change -----------------------------------------------------------------------------------------------

    def _plan(self, plan: r.Plan) -> Iterator[Piece[Words]]:
        most = "at most" if plan.steps else ""
        yield Piece(worth=99, lines=(Words(), Words.assemble((f"{plan.title:<{max(self.width - len(most), 0)}}", "bold"), (most, "dim"))))
        if plan.forecast:
            yield Piece(worth=93, lines=self._wrapped((plan.forecast, ""), left=1))
        if plan.empty:
            yield Piece(worth=99, lines=self._wrapped((plan.empty, ""), left=1))
        for step, main, others in plan.ranked:
            yield from self._step(step, 92 - 4 * (main - 1) - (8 + 12 * others if step.instead else 0))
        if plan.ask:
            yield Piece(worth=88, lines=self._wrapped((plan.ask, ""), left=1, hang=1))
        if plan.unanswered:
            yield Piece(worth=86, lines=self._wrapped((plan.unanswered, ""), left=1, hang=1))
        if plan.not_worth:
            yield Piece(worth=66, lines=self._wrapped((f"Little to win here: {plan.not_worth}", "dim"), left=1, hang=1))
        for place, text in enumerate(plan.blocked[:3]):
            yield Piece(worth=32 - place, lines=self._wrapped((f"blocked: {text}", "dim"), left=1, hang=3))

    def _step(self, step: r.Step, worth: int) -> Iterator[Piece[Words]]:
        """The step with its settings stands together: half of the settings are no fix."""
        inside = [line for written in step.settings for line in self.settings(written)]
        if len(inside) > MOST_SETTINGS:
            more = f"… and {len(inside) - MOST_SETTINGS + 1} more lines: diagnose explain {step.id}"
            inside = [*inside[: MOST_SETTINGS - 1], *self._wrapped((more, "dim"), left=_INDENT)]
        name = f"step {step.number}"
        yield Piece(worth=worth, lines=(*self._head(step), *inside), name=name)
        for less, label, text in step.details:
            spans = (f"{label}: ", "dim"), (text, "" if label == r.CHECK_FIRST else "dim")
            yield Piece(worth=worth - less, lines=self._wrapped(*spans, left=_INDENT, hang=2), under=name)

    def _head(self, step: r.Step) -> tuple[Words, ...]:
        right = "  ".join(part for part in (step.bound, step.faster) if part)
        sign = "" if step.state == "applicable" or not self.decided else "? "
        name = f" {step.number:<2} "
        likely = f": likely {step.forecast}" if step.forecast else ""  # what stands in order is told in the plan's sentence
        tail = "".join(f"  {part}" for part in (step.id, f"({step.instead}{likely})" if step.instead else "") if part)
        room = self.width - len(right) - 2
        title = f"{sign}{step.title}"
        if len(name) + len(title) + len(tail) <= room:
            left = Words.assemble((name, "bold"), (visible(title), "" if step.instead else "bold"), (tail, "dim"))
            return (left.append(" " * (self.width - left.cell_len - len(right))).append(right, "" if step.instead else "bold"),)
        wrapped = self._wrapped((f"{title}{tail}", "" if step.instead else "bold"), left=len(name))
        first = Words(name, style="bold").append_text(wrapped[0][len(name) :])
        last = wrapped[-1] if len(wrapped) > 1 else first
        if last.cell_len + len(right) + 2 <= self.width:
            last.append(" " * (self.width - last.cell_len - len(right))).append(right)
            return (first, *wrapped[1:])
        return (first, *wrapped[1:], Words(right.rjust(self.width)))

    def settings(self, written: r.Written) -> Iterator[Words]:
        """Settings to copy: several on a line where they fit, none broken unless it is longer than a line."""
        where = f"{written.where}: " if written.where else ""
        style = "" if written.language == "words" else "cyan"
        line, first = "", True
        for text in [*map(visible, written.lines), None]:
            joined = text if not line else f"{line}   {text}"
            if text is not None and _INDENT + 2 + (len(where) if first else 2) + len(joined or "") <= self.width:  # 2: hangs when wrapped
                line = joined or ""
                continue
            if line:
                yield from self._wrapped((where if first else "  ", "dim"), (line, style), left=_INDENT, hang=2)
                first = False
            line = text or ""
            if text is None:
                break

    # --- before and after ---------------------------------------------------------------------------------------------

    def _remarks(self, remarks: r.Remarks) -> Iterator[Piece[Words]]:
        if not remarks.texts:
            return
        texts = [self._wrapped((f"· {text}", ""), left=1, hang=2) for text in remarks.texts]
        yield Piece(worth=89, lines=(Words(), Words(remarks.title, style="bold"), *texts[0]), name="remarks")
        for place, lines in enumerate(texts[1:], 1):
            yield Piece(worth=max(86 - 9 * place, 20), lines=lines, under="remarks")

    def _commands(self, commands: r.Commands) -> Iterator[Piece[Words]]:
        yield Piece(worth=98, lines=(Words(), Words(commands.title, style="bold")))
        for place, ((label, bare), (_, command)) in enumerate(zip(commands.rows, commands.typed, strict=True)):
            worth = 96 if place in (0, len(commands.rows) - 1) else 70 - place
            room = len(self._command(label, bare))  # what fits on the screen hangs on nobody's folders
            yield Piece(worth=worth, lines=self._command(label, command), room=room)
        if commands.closing:
            yield Piece(worth=68, lines=self._wrapped((commands.closing, "dim"), left=1))

    def _command(self, label: str, command: str) -> tuple[Words, ...]:
        if command.startswith("diagnose "):
            return tuple(self._typed(f" {label:<8}", command))
        return self._wrapped((f"{label:<8}", "dim"), (command, "cyan"), left=1, hang=8)

    def _typed(self, head: str, command: str) -> Iterator[Words]:
        """A command that can be copied.

        Lines that go on end in the shell's sign for that, which a line inside a word follows from the first column on.
        """
        room = max(self.width - len(head) - 2, 20)
        lines = [head]
        for word in _WORD.findall(visible(command)):
            used = len(lines[-1]) - len(head) if lines[-1].startswith((head, " " * len(head))) else len(lines[-1])
            for place, part in enumerate(_chunks(word, room)):
                if place:
                    lines[-1] += "\\"
                    lines.append(part)
                elif used and used + 1 + cell_len(part) > room:
                    lines[-1] += " \\"
                    lines.append(" " * len(head) + part)
                else:
                    lines[-1] += f" {part}" if used else part
        for place, line in enumerate(lines):
            yield Words(head, style="dim").append(line[len(head) :], style="not dim cyan") if not place else Words(line, style="cyan")


def _chunks(word: str, room: int) -> list[str]:
    """A word of a shell in parts that fit; more than one only where it has to be, each quoted by itself."""
    if cell_len(word) <= room:
        return [word]
    plain = "".join(shlex.split(word))
    size = room - 2 if plain.isascii() and "'" not in plain else room // 8  # a quote takes five signs, another sign up to two columns
    return [shlex.quote(plain[start : start + size]) for start in range(0, len(plain), size)]


def _trimmed(lines: Iterable[Words]) -> Iterator[Words]:
    for line in lines:
        line.rstrip()
        yield line


def _drawn(share: float, room: int) -> str:
    """A bar of up to `room` signs, in eighths of one; what is above zero shows."""
    eighths = max(round(share * room * 8), 1)
    whole, part = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")
