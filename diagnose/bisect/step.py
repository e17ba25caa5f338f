"""One step of `git bisect run`: is the checked-out commit good or bad, against captures of a good one."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diagnose.bisect import measure
from diagnose.bisect.folder import Folder
from diagnose.bisect.journal import Asked
from diagnose.bisect.measure import How
from diagnose.bisect.numbers import Numbers
from diagnose.bisect.runs import Runs
from diagnose.bisect.scale import scale_of
from diagnose.bisect.spread import Noise, Prior, noise, readings, t_quantile
from diagnose.diagnosis import Diagnosis
from diagnose.reason.compare import compare
from diagnose.reason.compare.metrics import Samples
from diagnose.render import units
from diagnose.render.bisection import words
from diagnose.render.comparison.story import value

GOOD, BAD, SKIP = 0, 1, 125
_UNUSABLE = 2  # captures without a value after which a commit is skipped
Verdict = Literal["good", "bad", "open"]
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A verdict with how far the new captures are from the good ones: relative, worse is positive; `low` and `high` the interval that the verdict goes by."""

    verdict: Verdict
    change: float
    low: float
    high: float
    noise: float


def judge(
    good: Sequence[float], new: Sequence[float], *, limit: float, larger_is_worse: bool, counts: bool, error: float, numbers: Numbers
) -> Judged:
    """Hold one value per capture of both against each other. bad: worse by more than the limit beyond noise; good: surely not; open: more captures are needed.

    `error`: relative standard error of a value by the steps inside its capture. Noise between captures is what captures of either side show, starting from what is usual.
    """
    scale = scale_of([*good, *new])
    usual = numbers.count_noise.value if counts else numbers.run_noise.value
    prior = Prior(scale=max(usual, error), freedom=numbers.noise_weight.value)
    base, there = readings(0, [scale.to(one) for one in good]), readings(1, [scale.to(one) for one in new])
    found: Noise = noise((base, there), prior)
    sign = 1 if larger_is_worse else -1
    reach = t_quantile(numbers.verdict_error.value, found.freedom) * found.scale * math.sqrt(1 / base.count + 1 / there.count)
    change = sign * (there.mean - base.mean)
    allowed = scale.relative(limit, base.mean) if larger_is_worse or not scale.logarithmic else -math.log1p(-min(limit, 0.99))
    verdict: Verdict = "bad" if change - reach > allowed else "good" if change + reach < allowed else "open"

    def relative(number: float) -> float:
        if scale.logarithmic:
            return sign * math.expm1(sign * number)
        return number / (abs(base.mean) or 1.0)

    return Judged(verdict=verdict, change=relative(change), low=relative(change - reach), high=relative(change + reach), noise=found.scale)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of git's bisection. `baseline` gives captures of a good commit (label, document), once there is a first diagnosis: which one of a name fits depends on it. `limit`: the regression that is allowed."""

    asked: Asked
    how: How
    baseline: Callable[[Diagnosis], Sequence[tuple[str, Diagnosis]]]
    limit: float
    repeats: int
    numbers: Numbers
    say: Say
    timeout: float | None = None
    anyway: bool = False

    def run(self, work: Path) -> int:
        """Run the command in `work` until the verdict is clear; git's exit code for it. Raises AskedToStopError, and MetricError for a metric that there is not."""
        with tempfile.TemporaryDirectory(prefix="diagnose-") as name:
            folder = Folder(Path(name))
            folder.make()
            with folder.locked(self.say) as lock:
                runs = Runs(asked=self.asked, folder=folder, how=self.how, lock=lock, work=work, timeout=self.timeout)
                return self._repeated(runs, folder)

    def _repeated(self, runs: Runs, folder: Folder) -> int:
        good: list[Samples] = []
        new: list[float] = []
        errors, unusable = [0.0], 0
        for number in range(1, self.repeats + _UNUSABLE):
            line = runs(0, number)
            trial = line.trial
            unusable += trial.state == "unusable"
            if trial.state == "failed" or unusable == _UNUSABLE or len(new) == self.repeats:
                return self._skip(trial.text)
            if trial.state == "unusable" or trial.document is None:
                self.say(f"unusable, so it is run once more: {trial.text}")
                continue
            if not good:
                document = measure.read(folder.documents / trial.document)
                goods = self.baseline(document)
                refusal = "" if self.anyway else _refusal(goods[0], document, self.asked.metric)
                if refusal:
                    return self._skip(refusal)
                good = [measure.values_of(one, self.asked.metric, runs.where) for _, one in goods]
                errors += [measure.summary(one.values)[1] for one in good]
            middle, error = measure.summary(trial.values)
            new.append(middle)
            errors.append(error)
            found = judge(
                [measure.summary(one.values)[0] for one in good],
                new,
                limit=self.limit,
                larger_is_worse=line.larger_is_worse,
                counts=line.unit == "count",
                error=max(errors),
                numbers=self.numbers,
            )
            self.say(_said(found, self.asked.metric, new, line.unit, self.limit))
            if found.verdict != "open":
                return GOOD if found.verdict == "good" else BAD
        return self._skip(f"after {units.plural(self.repeats, 'run')} the noise is still larger than the effect")

    def _skip(self, reason: str) -> int:
        self.say(f"skipped: {reason}")
        return SKIP


def _refusal(good: tuple[str, Diagnosis], new: Diagnosis, metric: str) -> str:
    """Why the two are not the same work; empty where they may be compared."""
    found = compare(good[1], new, base_label=good[0], new_label="this commit", metric=metric)
    return found.outcome.sentence if found.outcome.result == "refused" else ""


def _said(found: Judged, metric: str, new: Sequence[float], unit: str, limit: float) -> str:
    word = {"good": "good", "bad": "bad", "open": "not clear yet"}[found.verdict]
    middle = sorted(new)[len(new) // 2]
    return (
        f"{word}: {words.metric(metric)} {value(middle, unit)}, worse than the baseline by {units.signed_percent(found.change)} "
        f"({units.signed_percent(found.low)} to {units.signed_percent(found.high)}); {units.percent(limit)} is allowed, "
        f"noise {units.percent(found.noise)}, {units.plural(len(new), 'run')}"
    )
