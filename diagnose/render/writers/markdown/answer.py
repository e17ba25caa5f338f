"""The answer as the visible part of a comment.

Which run, the verdict, where the step goes, what to change with settings to copy, what next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from diagnose.render import report as r
from diagnose.render.fitting import Piece, fitted

MOST_LINES = 38  # visible ones that are not empty; two more say what was left out and which version wrote this
MOST_SETTINGS = 10  # lines of settings of one step
MOST_REMARKS = 3

Said = Callable[[str], str]


def lines(contents: Sequence[r.Content], text: Said, code: Said) -> str:
    """The answer in at most `MOST_LINES` visible lines. `text` makes prose harmless, `code` a code span."""
    made = _Written(text, code)
    pieces = [piece for content in contents for piece in made.pieces(content)]
    shown = [line for piece in fitted(pieces, MOST_LINES) for line in piece.lines]
    return "\n".join(line.removesuffix("\n") for line in shown).strip("\n")


class _Written:
    """Writes the parts of an answer as pieces; a line that begins or ends with a line feed has an empty one there."""

    def __init__(self, text: Said, code: Said) -> None:
        self.text, self.code = text, code

    def pieces(self, content: r.Content) -> Iterator[Piece[str]]:
        """One part of the answer."""
        match content:
            case r.Masthead() as masthead:
                yield Piece(worth=100, lines=(f"**{self.text(' · '.join(masthead.run))}**  ", f"{self.text(' · '.join(masthead.speed))}  "))
                if masthead.note:
                    yield Piece(worth=60, lines=(f"<sub>{self.text(masthead.note)}</sub>",))
            case r.Panel() as panel:
                phrases = "".join(f" · {self.text(phrase.text)}" for phrase in panel.phrases)
                yield Piece(worth=100, lines=(f"\n### {self.text(panel.headline)}{phrases}\n", f"\n{self.text(panel.sentence)}"))
                if panel.reasons:
                    yield Piece(worth=90, lines=(f"\nBecause {self.text('; '.join(panel.reasons))}.",))
            case r.Bar() as bar:
                yield from self._bar(bar)
            case r.Plan() as plan:
                yield from self._plan(plan)
            case r.Remarks() as remarks:
                yield from self._remarks(remarks)
            case r.Commands() as commands:
                said = (f"{command}  # {label}" for label, command in commands.rows if command.startswith("diagnose "))
                shown = tuple(line.replace("`", "'") for line in said)
                if shown:
                    yield Piece(worth=84, lines=("\n```sh", *shown, "```"))
                if commands.closing:
                    yield Piece(worth=50, lines=(f"\n<sub>{self.text(commands.closing)}</sub>",))

    def _bar(self, bar: r.Bar) -> Iterator[Piece[str]]:
        if not bar.parts:
            yield Piece(worth=90, lines=(f"\n{self.text(bar.title)}: {self.text(bar.empty)}",))
            return
        head = (f"\n| {self.text(bar.title)} | {self.text(bar.unit)} | % |", "|---|---:|---:|")
        yield Piece(worth=95, lines=(*head, *(f"| {self.text(one.label)} | {one.amount} | {one.percent} |" for one in bar.parts)))

    def _plan(self, plan: r.Plan) -> Iterator[Piece[str]]:
        yield Piece(worth=97, lines=(f"\n**{self.text(plan.title)}**\n",))
        if plan.forecast:
            yield Piece(worth=96, lines=(f"{self.text(plan.forecast)}\n",))
        if plan.empty:
            yield Piece(worth=97, lines=(self.text(plan.empty),))
        for step, main, others in plan.ranked:
            yield from [self._other(step, 84 - 5 * main - 9 * others)] if step.instead else self._step(step, 94 - 5 * (main - 1))
        if plan.ask:
            yield Piece(worth=89, lines=(f"\n{self.text(plan.ask)}",))
        if plan.unanswered:
            yield Piece(worth=84, lines=(f"\n{self.text(plan.unanswered)}",))
        if plan.not_worth:
            yield Piece(worth=58, lines=(f"\n<sub>Little to win here: {self.text(plan.not_worth)}</sub>",))

    def _step(self, step: r.Step, worth: int) -> Iterator[Piece[str]]:
        gain = ", ".join(part for part in (f"at most {step.bound}" if step.bound else "", step.faster) if part)
        called = "".join(f" ({part})" for part in (self.code(step.id) if step.id else "", step.instead) if part)
        head = f"- **{step.number}** {self.text(step.title)}{called}{f': {gain}' if gain else ''}"
        inside: list[str] = []
        for written in step.settings:
            if written.language == "words":
                inside += [f"  - {self.text(f'{written.where}: {line}' if written.where else line)}" for line in written.lines]
            else:
                shown = (line.replace("`", "'") for line in written.lines[:MOST_SETTINGS])
                comment = (f"  # {written.where}",) if written.where else ()
                inside += [f"  ```{written.language}", *comment, *(f"  {line}" for line in shown), "  ```"]
        name = f"step {step.number}"
        yield Piece(worth=worth, lines=(head, *inside), name=name)
        for less, label, said in step.details:
            yield Piece(worth=worth - less, lines=(f"  - {label}: {self.text(said)}",), under=name)

    def _other(self, step: r.Step, worth: int) -> Piece[str]:
        """What could be had instead, in one line, with what it needs."""
        likely = f": likely {self.text(step.forecast)}" if step.forecast else ""
        set_ = ", ".join(self.code(line) for written in step.settings if written.language != "words" for line in written.lines)
        return Piece(
            worth=worth,
            lines=(
                f"- **{step.number}** {self.text(step.title)} ({self.code(step.id)}, {step.instead}{likely}){f': {set_}' if set_ else ''}",
                *(f"  - {label}: {self.text(said)}" for _, label, said in step.details if label == r.CHECK_FIRST),
            ),
        )

    def _remarks(self, remarks: r.Remarks) -> Iterator[Piece[str]]:
        if remarks.texts:
            yield Piece(worth=86, lines=(f"\n**{self.text(remarks.title)}**\n",), name="remarks")
            for place, said in enumerate(remarks.texts[:MOST_REMARKS]):
                yield Piece(worth=85 - 9 * place, lines=(f"- {self.text(said)}",), under="remarks")
