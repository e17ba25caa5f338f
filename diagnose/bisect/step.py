"""One step of `git bisect run`: is the checked-out commit good or bad, against captures of a good one."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from diagnose.bisect.log import Experiment, Line, SearchFolder
from diagnose.bisect.model import Noise, Numbers, pooled_noise, readings
from diagnose.bisect.sentences import VERDICTS, Judgement, Verdict, runs, step_sentence
from diagnose.bisect.trial import TraceOptions, Trials, UnusableError, same_work, values_of
from diagnose.document.comparison import Comparison
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.files import read_diagnosis
from diagnose.errors import InputError, OutputError
from diagnose.knowledge.comparison import ComparisonRules
from diagnose.model.statistics import median_with_error, t_quantile, transform_of
from diagnose.reason.compare.metrics import Samples, place_of
from diagnose.reason.compare.runs import Terms, compare, lone

GOOD, BAD, SKIP = 0, 1, 125
Say = Callable[[str], None]


def judge(
    good: Sequence[float], new: Sequence[float], *, limit: float, larger_is_worse: bool, counts: bool, error: float, numbers: Numbers
) -> Judgement:
    """Hold one value per capture of both against each other.

    bad: surely worse by more than the limit; good: surely not; open: more captures are needed.

    The question at every commit is the same: is its level beyond baseline × (1 + `limit`)? That line is one for all commits, wherever noise
    has put it, and repeats of one commit can't move it. So as long as it is placed well (its standard error is no more than a share of the
    limit) only the error of the new captures counts; beyond that a wrong line would turn good commits into bad ones, and its error counts
    too. Several baselines place it better. Noise between captures is what those of either side show, starting from what is usual; while no
    time was captured twice that is an assumption, and the margin is doubled. `error`: relative standard error of a value by the steps
    inside its capture.
    """
    transform = transform_of([*good, *new])
    usual = numbers.count_noise.value if counts else numbers.run_noise.value
    prior = Noise(scale=max(usual, error), freedom=numbers.noise_weight.value)
    base, there = readings(0, [transform.to(one) for one in good]), readings(1, [transform.to(one) for one in new])
    noise = pooled_noise((base, there), prior)
    sign = 1 if larger_is_worse else -1
    change = sign * (there.mean - base.mean)
    allowed = transform.relative(limit, base.mean) if larger_is_worse or not transform.logarithmic else -math.log1p(-min(limit, 0.99))
    line = noise.scale / math.sqrt(base.count)
    misplaced = line if line > numbers.line_error.value * allowed else 0.0
    assumed = 2 if base.count == there.count == 1 and not counts else 1
    reach = assumed * t_quantile(numbers.verdict_error.value, noise.freedom) * math.hypot(noise.scale / math.sqrt(there.count), misplaced)
    verdict: Verdict = "bad" if change - reach > allowed else "good" if change + reach < allowed else "open"

    def relative(number: float) -> float:
        if transform.logarithmic:
            return sign * math.expm1(sign * number)
        return number / (abs(base.mean) or 1.0)

    return Judgement(
        verdict=verdict, change=relative(change), low=relative(change - reach), high=relative(change + reach), noise=noise.scale
    )


class _Capture(Struct, frozen=True, kw_only=True):
    """A capture of the commit against the good ones: values, largest relative error by steps, comparison with the first good one."""

    value: float
    good: tuple[float, ...]
    error: float
    line: Line
    held: Comparison


class Step(Struct, frozen=True, kw_only=True):
    """One step of git's bisection.

    `baseline` gives captures of a good commit (label, document), once there is a diagnosis: which one of a name fits depends on it.
    `limit`: the regression that is allowed. `log`: where what the command printed last is kept.
    """

    experiment: Experiment
    options: TraceOptions
    baseline: Callable[[Diagnosis], Sequence[tuple[str, Diagnosis]]]
    limit: float
    repeats: int
    numbers: Numbers
    rules: ComparisonRules
    say: Say
    timeout: float | None = None
    anyway: bool = False
    log: Path | None = None

    def run(self, work: Path) -> int:
        """Run the command in `work` until the verdict is clear; git's exit code for it. Raises StopRequestedError and MetricError."""
        with tempfile.TemporaryDirectory(prefix="diagnose-step-", ignore_cleanup_errors=True) as name:
            folder = SearchFolder(Path(name))
            folder.make()
            with folder.locked(self.say) as lock:
                trials = Trials(
                    experiment=self.experiment,
                    folder=folder,
                    options=self.options,
                    rules=self.rules,
                    lock=lock,
                    work=work,
                    timeout=self.timeout,
                )
                return self._repeated(trials, folder)

    def _repeated(self, trials: Trials, folder: SearchFolder) -> int:
        captures: list[_Capture] = []
        for number in range(1, self.repeats + 1):
            try:
                line = trials.run(0, number)
            finally:
                self._keep(folder.path / "logs")
            capture = self._capture(line, folder, trials)
            if isinstance(capture, str) and not captures:
                return self._skip(capture)
            if isinstance(capture, str):
                self.say(f"run {number}: {capture}")
                continue
            captures.append(capture)
            verdict = self._verdict(captures)
            if verdict != "open":
                return GOOD if verdict == "good" else BAD
        return self._skip(f"after {runs(self.repeats)} the noise is still larger than the effect.")

    def _keep(self, logs: Path) -> None:
        last = max(logs.iterdir(), default=None)
        if self.log is None or last is None:
            return
        told = f"{self.log} could not be written"
        with OutputError.where_refused(told, effect="There is no verdict.", next_step="Name another file with --log."):
            shutil.copyfile(last, self.log)

    def _capture(self, line: Line, folder: SearchFolder, trials: Trials) -> _Capture | str:
        """One capture, or why it is none."""
        trial = line.trial
        if trial.state != "measured" or trial.document is None:
            return trial.text
        new = read_diagnosis(folder.documents / trial.document)
        try:
            goods = self.baseline(new)
        except InputError as fault:
            return f"It can't be compared: {fault.what}"
        held = compare(
            lone(Path(goods[0][0]).name, goods[0][1]),
            lone("this commit", new),
            rules=self.rules,
            terms=Terms(metric=self.experiment.metric, anyway=self.anyway, max_regression=self.limit),
        )
        if held.outcome.result == "refused":
            return held.outcome.sentence
        base = [self._samples(label, good, trials) for label, good in goods]
        try:
            scale, *of_goods = self._scales(goods, new, trials, line.unit)
        except UnusableError as fault:
            return str(fault)
        return _Capture(
            value=median_with_error(trial.values)[0] * scale,
            good=tuple(median_with_error(one.values)[0] * own for one, own in zip(base, of_goods, strict=True)),
            error=max(self._error(one, per_step=base[0].per_step) for one in (trial.values, *(good.values for good in base))),
            line=line,
            held=held,
        )

    def _scales(self, goods: Sequence[tuple[str, Diagnosis]], new: Diagnosis, trials: Trials, unit: str) -> list[float]:
        """What the values of the commit and of each good capture are multiplied by, to be of the first good one's work.

        Raises UnusableError.
        """
        if unit not in {"ns", "count"}:
            return [1.0] * (len(goods) + 1)
        first, place = goods[0][1], trials.place or place_of(new)
        return [float(same_work(first, one, place, self.rules)[0]) for one in (trials.first or new, *(good for _, good in goods))]

    def _error(self, values: Sequence[float], *, per_step: bool) -> float:
        """The relative standard error of a capture's median by its steps; of a single step what one is assumed to differ by."""
        return self.rules.limits.noise.single_step.value if per_step and len(values) == 1 else median_with_error(values)[1]

    def _samples(self, label: str, good: Diagnosis, trials: Trials) -> Samples:
        try:
            return values_of(good, self.experiment.metric, trials.place, self.rules)
        except UnusableError as fault:
            raise InputError(f"The baseline {label} can't be used: {fault}", effect="Git stops bisecting.") from fault

    def _verdict(self, captures: Sequence[_Capture]) -> Verdict:
        last = captures[-1]
        if not any(last.good):  # nothing is relative to nought
            beyond = {None if one.held.gate is None or one.held.gate.met is None else not one.held.gate.met for one in captures}
            verdict: Verdict = "open" if len(beyond) > 1 or None in beyond else "bad" if True in beyond else "good"
            self.say(f"{VERDICTS[verdict]}: {last.held.outcome.sentence}")
            return verdict
        new = [one.value for one in captures]
        judgement = judge(
            last.good,
            new,
            limit=self.limit,
            larger_is_worse=last.line.larger_is_worse,
            counts=last.line.unit == "count",
            error=max(one.error for one in captures),
            numbers=self.numbers,
        )
        moved = f". {last.held.outcome.moved}" if judgement.verdict == "bad" and last.held.outcome.moved else ""
        self.say(f"{step_sentence(judgement, self.experiment.metric, new, last.line, self.limit)}{moved}")
        return judgement.verdict

    def _skip(self, reason: str) -> int:
        self.say(f"skip: {reason}")
        return SKIP
