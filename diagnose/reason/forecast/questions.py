"""Questions of a user: fixes by id, and free ones in words, as changes of the step's graph."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from diagnose.document.diagnosis import Expected, Finding, Fix, PlanSetting, WallBound
from diagnose.document.forecast import Ingredient
from diagnose.document.forecast import Question as Asked
from diagnose.document.ranks import Ranks
from diagnose.errors import UsageError, meant
from diagnose.knowledge.buckets import Buckets
from diagnose.knowledge.effects import Transformation, select_problem
from diagnose.knowledge.forecast import ForecastRules
from diagnose.knowledge.rulebook import Rulebook
from diagnose.knowledge.walls import WallSpec
from diagnose.measure.ranks.meetings import Met
from diagnose.model.vocabulary import FixState
from diagnose.reason.context import Context
from diagnose.reason.findings import FixReader
from diagnose.reason.forecast.changes import Change, effect_of
from diagnose.reason.forecast.ranks import OfRanks, balanced, evened_all, faster_link, in_step, likes_of_late
from diagnose.reason.plan import settings
from diagnose.reason.walls import bounds as wall_bounds

_NOTHING = "Nothing was forecast."
_FACTOR = re.compile(r"(\d+(?:\.\d+)?)x?")
# `KIND:VALUE` on the command line: the column of a SELECT that the value is looked up in.
_COLUMNS = ("bucket", "cause", "comm", "exchange", "role", "phase", "operation", "backend", "name")


class Question(Struct, frozen=True, kw_only=True):
    """One change that is asked about. `changes`: its effect on the graph; empty where none can be told, and `refused` says why.

    `bounds`: of the findings that it answers, by id, ns per step: all that is told where no effect is known. `ceilings`: of the walls that
    it works on, by id, ns per step; no forecast goes beyond them all. A fix may do more than one finding asks for, so that its bound is no
    ceiling.
    """

    id: str
    title: str
    changes: tuple[Change, ...] = ()
    refused: str = ""
    next_step: str = ""
    fix: str | None = None
    state: FixState | None = None
    settings: tuple[PlanSetting, ...] = ()
    published: tuple[Expected, ...] = ()
    verify: str = ""
    cost: str = ""
    note: str = ""
    bounds: Mapping[str, int] = field(default_factory=dict)
    ceilings: Mapping[str, int] = field(default_factory=dict)
    of_ranks: OfRanks | None = None  # instead of changes: what all captured ranks do otherwise, and
    ingredients: tuple[Ingredient, ...] = ()  # what that rests on

    def asked(self) -> Asked:
        """As the document has it."""
        return Asked(
            id=self.id,
            title=self.title,
            fix=self.fix,
            state=self.state,
            changes=self.settings,
            published=self.published,
            verify=self.verify,
            cost=self.cost,
            note=self.note,
        )


class Free(Struct, frozen=True, kw_only=True):
    """Questions in words, as the command line takes them: removed, scaled (`SELECT=FACTOR`), detached, a faster link, no waiting, a GPU."""

    remove: tuple[str, ...] = ()
    scale: tuple[str, ...] = ()
    detach: tuple[str, ...] = ()
    link: str | None = None
    no_wait: bool = False
    gpu: str | None = None

    @property
    def any(self) -> bool:
        """Whether anything is asked."""
        return bool(self.remove or self.scale or self.detach or self.link or self.no_wait or self.gpu)


# --- fixes ------------------------------------------------------------------------------------------------------------


def fix_question(key: str, context: Context, findings: Sequence[Finding]) -> Question:
    """The question that a fix is, by id in any case. Raises UsageError for an id that there is not."""
    rulebook = context.rulebook
    spec = rulebook.fixes[known_fix(key, rulebook)]
    fix = next((one for finding in findings for one in finding.fixes if one.id == spec.id), None) or FixReader(context=context).fix(spec)
    effect = effect_of(spec, context)
    answered = [one for one in findings if one.bound_ns is not None and any(other.id == spec.id for other in one.fixes)]
    return Question(
        id=spec.id,
        title=spec.title,
        changes=() if isinstance(effect, str) else effect,
        refused=effect if isinstance(effect, str) else "",
        next_step=f"diagnose explain {spec.id} says what was published for it.",
        fix=spec.id,
        state=fix.state,
        settings=settings(fix.changes),
        published=fix.expected,
        verify=spec.verify,
        cost=spec.cost,
        note=note_of(fix),
        bounds={one.id: one.bound_ns for one in answered if one.bound_ns is not None},
        ceilings=_ceilings({*spec.walls, *(one.wall for one in answered)}, context),
    )


def _ceilings(walls: Collection[str], context: Context) -> Mapping[str, int]:
    """The bounds of these walls; none where one of them has no bound, as compute, which a fix may make faster, has none."""
    known = {
        one.wall: one.bound_ns for one in wall_bounds(context.facts, context.rulebook) if context.rulebook.walls.walls[one.wall].contender
    }
    found = {wall: ns for wall in walls if (ns := known.get(wall)) is not None}
    return found if len(found) == len(walls) else {}


def known_fix(key: str, rulebook: Rulebook) -> str:
    """The id of a fix as the rulebook spells it. Raises UsageError."""
    by_small = {one.lower(): one for one in rulebook.fixes}
    if key.lower() in by_small:
        return by_small[key.lower()]
    raise UsageError(
        f"--fix {key}: no fix has this id.{meant(key, rulebook.fixes)}", effect=_NOTHING, next_step="`diagnose rules` lists all fixes."
    )


def note_of(fix: Fix) -> str:
    """Why a fix is not to be had, or not any more; empty where it is."""
    if fix.state == "already_on":
        return "It is on already."
    if fix.state == "blocked":
        return f"It can't be had now: {' '.join(fix.blocked_by)}"
    return ""


# --- questions about several ranks ------------------------------------------------------------------------------------

LATE_RANK, EXPERT_IMBALANCE = "late_rank", "expert_imbalance"  # what `--remove` takes besides what one rank shows


def rank_questions(free: Free, met: Met | str, ranks: Ranks | None, buckets: Buckets) -> tuple[tuple[Question, ...], Free]:
    """The questions that are about several ranks, and what is left for each by itself. `met`: a sentence where ranks can't be replayed."""
    found: list[Question] = []
    removed = [text.removeprefix("cause:") for text in free.remove]
    if free.no_wait:
        found.append(_of_ranks("--no-wait", "all captured ranks in step", met, in_step))
    if LATE_RANK in removed:
        likes = partial(evened_all, likes=likes_of_late(ranks))
        found.append(_of_ranks(f"--remove {LATE_RANK}", "no rank slower than its peer ranks", met, likes))
    if EXPERT_IMBALANCE in removed:
        found.append(
            _of_ranks(f"--remove {EXPERT_IMBALANCE}", "experts with equal work on all ranks", met, partial(balanced, buckets=buckets))
        )
    rest = tuple(text for text in free.remove if text.removeprefix("cause:") not in {LATE_RANK, EXPERT_IMBALANCE})
    left = replace(free, no_wait=False, remove=rest)
    if free.link is not None:
        by = _times(free.link)
        between = _of_ranks(f"--link {free.link}", f"a link between hosts {by:g} times as fast", met, partial(faster_link, by=by))
        if not between.refused:
            return (*found, between), replace(left, link=None)
    return tuple(found), left


def _of_ranks(key: str, title: str, met: Met | str, how: OfRanks) -> Question:
    variant = met if isinstance(met, str) else how(met)
    if isinstance(variant, str):
        more = "Give the traces of all ranks of a node or of an expert-parallel group." if isinstance(met, str) else ""
        return Question(id=key, title=title, refused=variant, next_step=more)
    rests = Ingredient(question=key, text=variant.why, basis=variant.basis, source=variant.source)
    return Question(id=key, title=title, of_ranks=how, ingredients=(rests,))


# --- free questions ---------------------------------------------------------------------------------------------------


def free_questions(free: Free, context: Context, rules: ForecastRules, walls: Sequence[WallBound] = ()) -> tuple[Question, ...]:
    """Each free question with its change. Raises UsageError for what can't be understood.

    What is removed and is a wall has that wall's bound as its ceiling.
    """
    ceilings = {one.wall: one.bound_ns for one in walls if one.bound_ns is not None and context.rulebook.walls.walls[one.wall].contender}
    known = context.rulebook.walls.walls
    found = [_wall(text, known[text], ceilings.get(text)) if text in known else _removal(text, rules, known) for text in free.remove]
    found += [_scaling(text, rules) for text in free.scale]
    found += [_question("detach", text, rules, why="asked: what waits for it may run beside it") for text in free.detach]
    if free.link is not None:
        found.append(_link(free.link))
    if free.gpu is not None:
        found.append(_gpu(free.gpu, context, rules))
    return tuple(found)


def select_of(text: str, rules: ForecastRules, option: str, also: Iterable[str] = ()) -> tuple[str, str]:
    """SELECT and title of what stands on the command line: a word, KIND:VALUE, or a SELECT. Raises UsageError."""
    word = rules.words.get(text)
    if word is not None:
        return word.select, word.title
    kind, colon, value = text.partition(":")
    if colon and kind == "cause" and value in rules.words:
        return rules.words[value].select, rules.words[value].title
    if colon and kind in _COLUMNS:
        quoted = value.replace("'", "''")
        return f"{kind} = '{quoted}'", f"{kind} {value}"
    wrong = select_problem(text)
    if wrong is None:
        return text, text
    words = (*also, *rules.words)
    raise UsageError(
        f"{option} {text}: {wrong}.{meant(text, words)}",
        effect=_NOTHING,
        next_step=f"Name one of {', '.join(words)}, a KIND:VALUE ({', '.join(f'{one}:' for one in _COLUMNS)}), or a condition over them.",
    )


def _question(
    transformation: Transformation, text: str, rules: ForecastRules, *, why: str, by: float | None = None, also: Iterable[str] = ()
) -> Question:
    select, title = select_of(text, rules, f"--{transformation}", also)
    word = rules.words.get(text.removeprefix("cause:"))
    change = Change(
        transformation=transformation,
        select=select,
        by=None if by is None else (by, by, by),
        with_host=transformation == "remove" and word is not None and word.with_host,
        basis="assumed",
        why=why,
        source="the command line",
    )
    said = f"without {title}" if transformation == "remove" else f"{title} beside what follows it" if by is None else f"{title} × {by:g}"
    return Question(id=f"--{transformation} {text}{'' if by is None else f'={by:g}'}", title=said, changes=(change,))


def _wall(key: str, wall: WallSpec, bound: int | None) -> Question:
    """A wall taken away: what walls.yaml counts to it."""
    asked = Question(id=f"--remove {key}", title=f"without any {wall.title}")
    if wall.frees is None and wall.omits is None:
        return replace(
            asked, refused=f"What would be left without {wall.title} is not told.", next_step="Scale it: --scale role:compute=0.5."
        )
    selects = " OR ".join(f"({text})" for text in (wall.frees, wall.omits) if text is not None)
    change = Change(
        transformation="remove",
        select=selects,
        basis="assumed",
        why="asked: what counts to this wall takes no time at all",
        source="trace_rules/walls.yaml",
        wall=wall,
    )
    ceilings = {} if bound is None else {key: bound}
    return replace(asked, changes=(change,), ceilings=ceilings)


def _removal(text: str, rules: ForecastRules, walls: Iterable[str] = ()) -> Question:
    return _question("remove", text, rules, why="asked: it takes no time at all", also=walls)


def _scaling(text: str, rules: ForecastRules) -> Question:
    select, equals, factor = text.rpartition("=")
    found = _FACTOR.fullmatch(factor.strip()) if equals else None
    if found is None:
        raise UsageError(
            f"--scale {text}: there is no factor.",
            effect=_NOTHING,
            next_step="Write SELECT=FACTOR, such as --scale bucket:expert_gemm=0.7.",
        )
    return _question("scale", select.strip(), rules, why="asked: its durations times this factor", by=float(found[1]))


def _times(text: str) -> float:
    """How many times as fast. Raises UsageError."""
    found = _FACTOR.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise UsageError(f"--link {text} is no factor.", effect=_NOTHING, next_step="Write how many times as fast, such as --link 2x.")
    return float(found[1])


def _link(text: str) -> Question:
    times = _times(text)
    by = 1 / times
    change = Change(
        transformation="scale",
        select="role = 'transport'",
        by=(by, by, 1.0 if by < 1 else by),
        basis="assumed",
        why="asked: transfers take this share of their time; at worst none is gained, where waiting for other ranks or start-up costs are what takes the time",
        source="the command line",
    )
    return Question(id=f"--link {text}", title=f"a link {times:g} times as fast", changes=(change,))


def _gpu(name: str, context: Context, rules: ForecastRules) -> Question:
    """Products scaled by the dense peak of the precision that ran, all other compute by memory bandwidth, transport by the link."""
    table = context.rulebook.platforms.platforms
    key, there = name.lower(), table.get(name.lower())
    if there is None:
        raise UsageError(
            f"--gpu {name}: no such platform.{meant(key, table)}", effect=_NOTHING, next_step=f"Name one of {', '.join(table)}."
        )
    of_trace = context.values.get("platform")
    here = table.get(of_trace) if isinstance(of_trace, str) else None
    asked = Question(id=f"--gpu {key}", title=f"on {key.upper()}")
    if here is None:
        return replace(asked, refused="It is not known which GPU the trace ran on.", next_step="Set platform in the job file.")
    if here.architecture != there.architecture:
        refused = f"From {here.architecture} to {there.architecture} kernels are others, and peaks tell little of them."
        return replace(asked, refused=refused, next_step="Scale what you know: --scale bucket:NAME=FACTOR.")
    precision = next((one for one in ("bf16", *here.peak_tflops) if one in here.peak_tflops and one in there.peak_tflops), None)
    pairs = (
        (
            rules.gpu.products,
            precision and here.peak_tflops[precision],
            precision and there.peak_tflops[precision],
            f"dense {precision} peak",
        ),
        (rules.gpu.memory, here.memory_tb_per_s, there.memory_tb_per_s, "memory bandwidth"),
        (rules.gpu.link, here.nvlink_gb_per_s, there.nvlink_gb_per_s, "NVLink bandwidth"),
    )
    unknown = [what for _, before, after, what in pairs if not before or not after]
    if unknown:
        return replace(
            asked, refused=f"Not known of both GPUs: {', '.join(unknown)}.", next_step="Scale what you know: --scale bucket:NAME=FACTOR."
        )
    changes = tuple(_by_peak(select, before / after, what) for select, before, after, what in pairs if before and after and before != after)
    return replace(
        asked, changes=changes, refused="" if changes else "Peak, memory bandwidth and link are the same: nothing here would change."
    )


def _by_peak(select: str, by: float, what: str) -> Change:
    """Durations scaled by a peak: at the best in full, at the worst not at all; likely half way: it is not known what holds a kernel."""
    low, high = sorted((by, 1.0))
    return Change(
        transformation="scale",
        select=select,
        by=(low, (low + high) / 2, high),
        basis="assumed",
        why=f"scaled by the {what}, at best in full; likely half of that: what holds a kernel is not known one by one",
        source="trace_rules/platforms.yaml",
    )
