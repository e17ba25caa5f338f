"""What compares, bound to the rules that come with the program."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from diagnose.document.comparison import Comparison, decode
from diagnose.document.diagnosis import Diagnosis
from diagnose.document.encoding import encode
from diagnose.knowledge.comparison import load_comparison_rules
from diagnose.reason.compare import baselines
from diagnose.reason.compare import comparable as _comparable
from diagnose.reason.compare import metrics as _metrics
from diagnose.reason.compare import noise as _noise
from diagnose.reason.compare.delta import step_delta as _step_delta
from diagnose.reason.compare.kernels import family as _family
from diagnose.reason.compare.kernels import kernels as _kernels
from diagnose.reason.compare.kernels import match as _match
from diagnose.reason.compare.runs import Named, Runs, Terms
from diagnose.reason.compare.runs import compare as _compare

RULES = load_comparison_rules()
Side: TypeAlias = Diagnosis | Sequence[Named]
samples = partial(_metrics.samples, rules=RULES)
settings = partial(_comparable.settings, table=RULES.job)
decide = partial(_noise.decide, limits=RULES.limits.noise)
step_delta = partial(_step_delta, limits=RULES.limits.noise)
kernels = partial(_kernels, limits=RULES.limits)
match = partial(_match, limits=RULES.limits.kernels)
family = partial(_family, variants=RULES.limits.kernels.variants)
fingerprint = partial(baselines.fingerprint, rules=RULES)
describe = partial(baselines.describe, rules=RULES)
differing = partial(baselines.differing, rules=RULES)


def store(folder: Path) -> baselines.Store:
    """The baselines of a folder."""
    return baselines.Store(folder=folder, rules=RULES)


def compare(base: Side, new: Side, *, base_label: str, new_label: str, **terms: Any) -> Comparison:
    """Two documents, or several runs of a side, held against each other in the given terms."""
    sides = (
        Runs(label, [Named(label, one)] if isinstance(one, Diagnosis) else one) for label, one in ((base_label, base), (new_label, new))
    )
    return _compare(*sides, rules=RULES, terms=Terms(**terms))


def run(base: Diagnosis, new: Diagnosis, **options: Any) -> Comparison:
    """Two documents under the labels of their sides; what comes of it reads back as it was written."""
    found = compare(base, new, base_label="base", new_label="new", **options)
    assert decode(encode(found)) == found
    return found
