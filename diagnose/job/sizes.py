"""What follows from a job's settings: data parallelism, the two meshes of Parallel Folding, batches, FLOPs, and what does not fit together.

The meshes are Megatron-Core's: attention runs on TP × CP × DP × PP ranks, experts on ETP × EP × EDP × PP of the same ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from msgspec import Struct

from diagnose.document.diagnosis import JobProblem, JobSize
from diagnose.job import flops
from diagnose.job.derived import completed
from diagnose.job.layout import layers_of, stages_of
from diagnose.job.model import Job
from diagnose.model.vocabulary import UNKNOWN_KIND, CommKind

_Value = int | float | str | None
_MESH = {
    "TP": "tensor_model_parallel_size", "CP": "context_parallel_size", "PP": "pipeline_model_parallel_size",
    "EP": "expert_model_parallel_size", "ETP": "expert_tensor_parallel_size", "VPP": "virtual_pipeline_model_parallel_size",
    "world": "world_size", "GBS": "global_batch_size", "MBS": "micro_batch_size", "seq": "seq_length", "layers": "num_layers",
    "heads": "num_attention_heads", "experts": "num_moe_experts", "DP": "data_parallel_size", "EDP": "expert_data_parallel_size",
}  # fmt: skip

_RANKS_OF: Mapping[CommKind, tuple[str, ...]] = {  # an exchange of a kind needs several ranks in one of these
    "expert": (_MESH["EP"], _MESH["ETP"]),
    "tensor": (_MESH["TP"], _MESH["ETP"]),
    "pipeline": (_MESH["PP"],),
    "context": (_MESH["CP"],),
}
_SHARDED = ("optim", "optim_grads", "optim_grads_params")


class Sizes(Struct, frozen=True, kw_only=True):
    """Derived sizes in order, and what does not fit."""

    derived: tuple[JobSize, ...]
    problems: tuple[JobProblem, ...]


def absent_kinds(job: Job) -> frozenset[CommKind]:
    """Kinds of exchange that the job's settings rule out: each size that they need is 1.

    "other": ZeRO has no purpose of its own for the group of all ranks, which is its data-parallel group.
    """
    alone = frozenset(kind for kind, names in _RANKS_OF.items() if all(job.get(name) == 1 for name in names))
    return alone | {UNKNOWN_KIND} if job.get("data_parallel_sharding_strategy") in _SHARDED else alone


def sizes(job: Job, *, world_size: int | None = None) -> Sizes:
    """Everything that follows from the settings; `world_size` is what the trace tells, used where the job file does not say."""
    whole = completed(job, world_size=world_size)
    told = {short: value for short, name in _MESH.items() if isinstance(value := whole.get(name), int) and not isinstance(value, bool)}
    one = _View(job=whole, numbers={short: value for short, value in told.items() if value > 0}, traced=world_size)
    problems = [
        JobProblem(id="not-positive", text=f"{_MESH[short]} is {value}, but must be at least 1.")
        for short, value in told.items()
        if value < 1
    ]
    return Sizes(derived=tuple(_derived(one)), problems=(*problems, *_problems(one)))


class _View(Struct, frozen=True, kw_only=True):
    """The numbers of a job by their short names; those that are unknown or not positive are absent."""

    job: Job
    numbers: dict[str, int]
    traced: int | None

    def product(self, *names: str) -> int | None:
        """The product of some numbers; None where one is unknown."""
        return math.prod(self.numbers[name] for name in names) if all(name in self.numbers for name in names) else None

    def shown(self, *names: str, sign: str = " × ") -> str:
        """The numbers with their names: TP 2 × PP 4."""
        return sign.join(f"{name} {self.numbers[name]}" for name in names)

    def missing(self, *names: str) -> str:
        """What of these is unknown, in a sentence's words."""
        lacking = [_MESH[name] for name in names if name not in self.numbers]
        return f"not known: needs {', '.join(lacking)}"


# --- sizes ------------------------------------------------------------------------------------------------------------


def _derived(one: _View) -> Iterator[JobSize]:
    world = one.job.settings.get("world_size")
    if "world" in one.numbers and world is not None:
        yield _size("world_size", one.numbers["world"], "ranks", "the trace" if world.source == "trace" else world.shown)
    else:
        yield _size("world_size", None, "ranks", "not known: neither the job file nor the trace says it (world_size: N in the job file)")
    yield _of_world(one, "data_parallel_size", ("TP", "CP", "PP"))
    moe = one.job.get("num_moe_experts") is not None or one.numbers.get("EP", 1) > 1
    if moe:
        yield _of_world(one, "expert_data_parallel_size", ("ETP", "EP", "PP"))
    yield _mesh(one, "attention_mesh", ("TP", "CP", "DP", "PP"))
    if moe:
        yield _mesh(one, "expert_mesh", ("ETP", "EP", "EDP", "PP"))
    yield _minimum(one)
    if {"GBS", "MBS", "DP"} <= one.numbers.keys():
        value = one.job.get("num_microbatches")
        yield _size(
            "num_microbatches",
            value if isinstance(value, int) else None,
            "micro-batches",
            f"{one.shown('GBS')} / ({one.shown('MBS', 'DP')})" + ("" if isinstance(value, int) else " is not whole"),
        )
    else:
        yield _size("num_microbatches", None, "micro-batches", one.missing("GBS", "MBS", "DP"))
    tokens = _tokens(one)
    yield tokens
    yield from _flops(one, tokens.value if isinstance(tokens.value, int) else None)


def _tokens(one: _View) -> JobSize:
    """The tokens of a step over all ranks: of the global batch, or of the micro-batches where their tokens are told (torchtitan)."""
    of_batch = one.product("GBS", "seq")
    each, times, replicas = (one.job.get(name) for name in ("tokens_per_micro_batch", "num_microbatches", "data_parallel_size"))
    if of_batch is None and isinstance(each, int) and isinstance(times, int) and isinstance(replicas, int):
        how = f"{each} tokens of a micro-batch × {times} × {one.shown('DP')}"
        return _size("tokens_per_step", each * times * replicas, "tokens", how)
    return _size("tokens_per_step", of_batch, "tokens", one.shown("GBS", "seq") if of_batch else one.missing("GBS", "seq"))


def _size(name: str, value: _Value, unit: str, how: str) -> JobSize:
    if isinstance(value, int) and abs(value) > 2**53:
        value = float(value)  # JSON's readers hold no larger whole number
    return JobSize(name=name, value=value, unit=unit, from_=how)


def _of_world(one: _View, name: str, parts: tuple[str, ...]) -> JobSize:
    divisor, dividend = one.product(*parts), one.numbers.get("world")
    if divisor is None or dividend is None:
        return _size(name, None, "ranks", one.missing("world", *parts))
    how = f"{one.shown('world')} / ({one.shown(*parts)})"
    return _size(name, None if dividend % divisor else dividend // divisor, "ranks", how + (" is not whole" if dividend % divisor else ""))


def _mesh(one: _View, name: str, parts: tuple[str, ...]) -> JobSize:
    ranks = one.product(*parts)
    if ranks is None:
        return _size(name, None, "ranks", one.missing(*parts))
    return _size(name, one.shown(*parts), "ranks", f"{ranks} ranks, the pipeline outermost")


def minimum_gpus(*, tp: int, cp: int, pp: int, ep: int, etp: int) -> int:
    """The fewest ranks on which both meshes fit: PP · max(TP·CP, EP·ETP) where one divides the other."""
    return pp * math.lcm(tp * cp, ep * etp)


def _minimum(one: _View) -> JobSize:
    names = ("TP", "CP", "PP", "EP", "ETP")
    if one.product(*names) is None:
        return _size("minimum_gpus", None, "ranks", one.missing(*names))
    value = minimum_gpus(**{name.lower(): one.numbers[name] for name in names})
    return _size(
        "minimum_gpus",
        value,
        "ranks",
        f"{one.shown('PP')} × the least common multiple of {one.shown('TP', 'CP')} and {one.shown('EP', 'ETP')}",
    )


def _flops(one: _View, tokens: int | None) -> Iterator[JobSize]:
    try:
        shape = flops.shape_of(one.job.get, nulls_are_told=one.job.table.formats[one.job.format].whole)
        parts = flops.per_token(shape, flops.needed(one.job.get, "seq_length"))
    except flops.NotCountedError as why:
        yield _size("flop_per_token", None, "FLOP", f"not counted: {why}")
        yield _size("flop_per_step", None, "FLOP", f"not counted: {why}")
        yield from _least_flops(one, tokens)
        return
    total = sum(parts.values())
    how = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in parts.items() if value)
    yield _size("padded_vocab_size", shape.padded_vocab, "tokens", "the output layer's rows")
    yield _size(
        "moe_layers", shape.moe_count, "layers", f"of {shape.layers + shape.mtp_layers}, {shape.mtp_layers} for multi-token prediction"
    )
    yield _size("flop_per_token", total, "FLOP", "; ".join([f"as Megatron counts: {how}", *_caveats(one.job)]))
    if tokens is None:
        yield _size("flop_per_step", None, "FLOP", one.missing("GBS", "seq"))
    else:
        yield _size("flop_per_step", float(total * tokens), "FLOP", f"{tokens} tokens × {total:.5g}")


_LEAST = {"padded_vocab_size": 1, "gated_linear_unit": False}  # what makes the count lowest where the job file does not say


def _least_flops(one: _View, tokens: int | None) -> Iterator[JobSize]:
    """What a step computes at least, where the job file lacks what makes the count complete."""

    def get(name: str) -> object:
        told = one.job.get(name)
        return _LEAST.get(name) if told is None and one.job.get("vocab_size" if "vocab" in name else name) is None else told

    try:
        parts = flops.per_token(flops.shape_of(get, nulls_are_told=True), flops.needed(get, "seq_length"))
    except flops.NotCountedError:
        return
    if tokens is not None:
        how = f"{tokens} tokens × {sum(parts.values()):.5g}, without what the job file does not say of the output layer and of gates"
        yield _size("flop_per_step_at_least", float(sum(parts.values()) * tokens), "FLOP", how)


def _caveats(job: Job) -> Iterator[str]:
    """What the count leaves out or counts too much in this job."""
    frozen = [name for name in ("freeze_language_model", "freeze_vision_model", "freeze_vision_projection") if job.get(name) is True]
    if frozen:
        yield f"frozen parts are counted as if they were trained ({', '.join(frozen)}), so a utilisation made from it is too high"
    if job.get("peft_type") is not None:
        yield "weights that fine-tuning does not train are counted as if it did"
    if job.get("enable_mhc_connections") is True:
        yield "what hyper-connections compute is not in it"
    if job.get("vision_depth") is not None:
        yield "the vision tower is not in it: the sizes of the images are in no job file"


# --- what does not fit ------------------------------------------------------------------------------------------------


def _problems(one: _View) -> Iterator[JobProblem]:
    yield from _worlds(one)
    yield from _batches(one)
    yield from _layers(one)
    number = one.numbers
    if number.get("CP", 1) > 1 and number.get("seq", 0) % (2 * number["CP"]):
        yield _problem("sequence", f"seq_length {number['seq']} is not divisible by 2 × {one.shown('CP')} = {2 * number['CP']}")
    if "experts" in number and number["experts"] % number.get("EP", 1):
        yield _problem("experts", f"num_moe_experts {number['experts']} is not divisible by {one.shown('EP')}")
    if "heads" in number and number["heads"] % number.get("TP", 1):
        yield _problem("heads", f"num_attention_heads {number['heads']} is not divisible by {one.shown('TP')}")


def _problem(kind: str, text: str) -> JobProblem:
    return JobProblem(id=kind, text=f"{text}.")


def _worlds(one: _View) -> Iterator[JobProblem]:
    world = one.numbers.get("world")
    if world is None:
        return
    if one.traced is not None and one.traced != world:
        yield _problem("world-size", f"the job file says {world} ranks, the trace {one.traced}: they may belong to different runs")
    minimum = _minimum(one).value
    if isinstance(minimum, int) and world < minimum:
        yield _problem("minimum-gpus", f"world_size {world} is below the fewest ranks that both meshes fit on, {minimum}")
    for name, kind, parts in (("attention", "attention-mesh", ("TP", "CP", "PP")), ("expert", "expert-mesh", ("ETP", "EP", "PP"))):
        divisor = one.product(*parts)
        if divisor is not None and world % divisor:
            yield _problem(kind, f"world_size {world} is not divisible by the {name} mesh's {one.shown(*parts)} = {divisor}")


def _batches(one: _View) -> Iterator[JobProblem]:
    batch, divisor = one.numbers.get("GBS"), one.product("MBS", "DP")
    if batch is None or divisor is None:
        return
    if batch < divisor:
        yield _problem(
            "batch", f"global_batch_size {batch} is below {one.shown('MBS', 'DP')} = {divisor}: some ranks would have nothing to do"
        )
    elif batch % divisor:
        yield _problem("batch", f"global_batch_size {batch} is not divisible by {one.shown('MBS', 'DP')} = {divisor}")


def _layers(one: _View) -> Iterator[JobProblem]:
    layers, stages = one.numbers.get("layers"), one.numbers.get("PP")
    if layers is None or stages is None:
        return
    try:
        flops.moe_layers(one.job.get, layers)
    except flops.NotCountedError as why:
        if isinstance(one.job.get("moe_layer_freq"), tuple) and one.job.get("num_moe_experts") is not None:
            yield _problem("moe-layers", str(why))
    layout = one.job.get("pipeline_model_parallel_layout")
    if isinstance(layout, str):
        yield from _layout(one, layout, layers, stages)
    elif stages > 1:
        yield from _even(one, layers, stages)


def _layout(one: _View, layout: str, layers: int, ranks: int) -> Iterator[JobProblem]:
    stages = stages_of(layout)
    if stages is None:
        return
    if layers_of(stages) != layers:
        yield _problem("layout", f"pipeline_model_parallel_layout places {layers_of(stages)} layers, num_layers says {layers}")
    told = one.job.settings.get("virtual_pipeline_model_parallel_size")
    virtual = one.numbers.get("VPP") if told is not None and told.source == "read" else None
    wanted = ranks * virtual if virtual else None
    if wanted is not None and len(stages) != wanted:
        yield _problem("layout", f"pipeline_model_parallel_layout has {len(stages)} stages, but {one.shown('PP', 'VPP')} makes {wanted}")
    elif len(stages) % ranks:
        yield _problem("layout", f"pipeline_model_parallel_layout has {len(stages)} stages, not divisible by {one.shown('PP')}")


def _even(one: _View, layers: int, ranks: int) -> Iterator[JobProblem]:
    """Layers cut evenly, but for a first and a last stage of their own size."""
    ends = [one.job.get(f"num_layers_in_{end}_pipeline_stage") for end in ("first", "last")]
    fixed = [end for end in ends if isinstance(end, int)]
    counted = sum(one.job.get(f"account_for_{what}_in_pipeline_split") is True for what in ("embedding", "loss"))
    left, over = layers + counted - sum(fixed), ranks - len(fixed)
    virtual = one.numbers.get("VPP", 1)
    said = f"num_layers {layers}" + (f" + {counted}" if counted else "") + "".join(f" − {end}" for end in fixed)
    if over < 1 or left < over or left % over:
        yield _problem("layers", f"{said} can't be cut evenly over {over} of {one.shown('PP')} stages")
        return
    for count in {left // over, *fixed}:
        if count % virtual:
            yield _problem("layers", f"a stage's {count} layers are not divisible by {one.shown('VPP')}")
            return
