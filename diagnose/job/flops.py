"""Floating-point operations of a training step as Megatron counts them.

Three times the forward pass (forward, input gradients, weight gradients), two per multiply-add. Recomputed work, the router, norms and the
optimizer are not counted, and a frozen stack is counted as if it were trained. The terms are those of `num_floating_point_operations` in
Megatron-LM (megatron/training/training.py) and Megatron-Bridge (src/megatron/bridge/training/utils/flop_utils.py), read in 2026.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from msgspec import Struct

Getter = Callable[[str], object]
_TRAINING = 3 * 2  # forward and two backward products, two operations per multiply-add


class Latent(Struct, frozen=True, kw_only=True):
    """Dimensions of multi-latent attention. `q_rank` is None where queries are not compressed."""

    q_rank: int | None
    kv_rank: int
    qk_dim: int
    rope_dim: int
    v_dim: int


class DeltaNet(Struct, frozen=True, kw_only=True):
    """Dimensions of gated delta nets, and for each layer of the decoder whether it has one in place of attention."""

    layers: tuple[bool, ...]
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    second: bool  # GDN-2, whose gates have channels


class Shape(Struct, frozen=True, kw_only=True):
    """What the count needs of a transformer. `moe_layers` says for each layer whether it has experts."""

    layers: int
    hidden: int
    heads: int
    groups: int
    head_dim: int
    moe_layers: tuple[bool, ...]
    ffn: int
    moe_ffn: int
    topk: int
    shared_ffn: int
    latent_size: int | None
    gated: bool
    mtp_layers: int
    padded_vocab: int
    latent: Latent | None
    output_gate: bool = False
    delta: DeltaNet | None = None

    @property
    def moe_count(self) -> int:
        """Layers with experts, those of multi-token prediction included: they are of the last layer's kind."""
        return sum(self.moe_layers) + self.mtp_layers * self.moe_layers[-1]

    @property
    def delta_count(self) -> int:
        """Layers with a gated delta net, those of multi-token prediction included in the same way."""
        return sum(self.delta.layers) + self.mtp_layers * self.delta.layers[-1] if self.delta else 0


def per_token(shape: Shape, seq_length: int) -> dict[str, int]:
    """FLOP for one token of an unpacked sequence, by part of the model. The sum is the count."""
    attention_layers = shape.layers + shape.mtp_layers - shape.delta_count
    linear, core = _latent_attention(shape, shape.latent) if shape.latent else _grouped_attention(shape)
    hidden = shape.hidden
    return {
        "mlp": _TRAINING * _mlp(shape),
        "attention_linear": _TRAINING * (linear * attention_layers + _delta_net(shape) * shape.delta_count),
        "attention_core": _TRAINING * core * seq_length * attention_layers // 2,
        "mtp": _TRAINING * shape.mtp_layers * (3 * hidden + 2 * hidden * hidden),
        "logits": _TRAINING * hidden * shape.padded_vocab * (shape.mtp_layers + 1),
    }


def _mlp(shape: Shape) -> int:
    """Multiply-adds of dense and routed MLPs for one token."""
    factor = 3 if shape.gated else 2
    routed = shape.moe_ffn * shape.topk * factor
    if shape.latent_size is None:
        routed *= shape.hidden
    else:
        routed = routed * shape.latent_size + 2 * shape.hidden * shape.latent_size
    shared = shape.hidden * shape.shared_ffn * factor
    dense = shape.hidden * shape.ffn * factor * (shape.layers + shape.mtp_layers - shape.moe_count)
    return dense + (routed + shared) * shape.moe_count


def _grouped_attention(shape: Shape) -> tuple[int, int]:
    """Multiply-adds of one layer's projections for one token, and of its core for one token and one position, both halves of it."""
    query, key = shape.heads * shape.head_dim, shape.groups * shape.head_dim
    gate = query if shape.output_gate else 0
    return shape.hidden * (query + 2 * key + gate) + query * shape.hidden, 2 * query


def _latent_attention(shape: Shape, dims: Latent) -> tuple[int, int]:
    """The same for multi-latent attention; the ones are its two norms."""
    query_dim = dims.qk_dim + dims.rope_dim
    whole = shape.heads * query_dim
    query = shape.hidden * whole if dims.q_rank is None else dims.q_rank * (shape.hidden + whole + 1)
    key_value = dims.kv_rank * (shape.hidden + shape.heads * (dims.qk_dim + dims.v_dim) + 1)
    output = shape.heads * dims.v_dim * shape.hidden
    return query + key_value + shape.hidden * dims.rope_dim + output, shape.heads * (query_dim + dims.v_dim)


def _delta_net(shape: Shape) -> int:
    """Multiply-adds of one layer's gated delta net for one token: its projections, convolution and recurrence."""
    if (delta := shape.delta) is None:
        return 0
    keys, values = delta.key_heads * delta.key_dim, delta.value_heads * delta.value_dim
    into = 4 * keys + 3 * values if delta.second else 2 * keys + 2 * values + 2 * delta.value_heads
    recurrence = 4 * delta.value_heads * delta.value_dim**2
    return shape.hidden * (into + values) + delta.kernel * (2 * keys + values) + recurrence


def padded_vocab(vocab: int, divisible_by: int, tensor_parallel: int) -> int:
    """The vocabulary rounded up to a multiple of `divisible_by` times the tensor-parallel ranks."""
    multiple = divisible_by * tensor_parallel
    return math.ceil(vocab / multiple) * multiple


# --- from a job's settings ----------------------------------------------------------------------------------------------


class NotCountedError(ValueError):
    """The count can't be given for this job; the message says why."""


def shape_of(get: Getter, *, nulls_are_told: bool) -> Shape:
    """What settings describe (`nulls_are_told`: an absent one is off). Raises NotCountedError for what is missing or has its own terms."""
    _refuse_variants(get)
    layers, hidden, heads = (needed(get, name) for name in ("num_layers", "hidden_size", "num_attention_heads"))
    moe = moe_layers(get, layers)
    latent = _latent(get, nulls_are_told=nulls_are_told) if get("multi_latent_attention") is True else None
    groups = heads if get("group_query_attention") is False else _int(get, "num_query_groups") or heads
    mtp = _int(get, "mtp_num_layers") or 0
    all_moe, any_moe = all(moe), any(moe)
    gated = get("gated_linear_unit")
    if gated is None and nulls_are_told:
        gated = False
    if not isinstance(gated, bool):
        raise NotCountedError("gated_linear_unit is not known")
    return Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        groups=groups,
        head_dim=_int(get, "kv_channels") or hidden // heads,
        moe_layers=moe,
        ffn=0 if all_moe else needed(get, "ffn_hidden_size"),
        moe_ffn=(_int(get, "moe_ffn_hidden_size") or needed(get, "ffn_hidden_size")) if any_moe else 0,
        topk=needed(get, "moe_router_topk") if any_moe else 0,
        shared_ffn=(_int(get, "moe_shared_expert_intermediate_size") or 0) if any_moe else 0,
        latent_size=_int(get, "moe_latent_size"),
        gated=gated,
        mtp_layers=mtp,
        padded_vocab=vocabulary(get),
        latent=latent,
        output_gate=get("attention_output_gate") is True,
        delta=_delta(get, layers),
    )


def vocabulary(get: Getter) -> int:
    """The padded vocabulary. Raises NotCountedError where it is not known."""
    told = _int(get, "padded_vocab_size")
    if told is not None:
        return told
    vocab = _int(get, "vocab_size")
    if vocab is None:
        raise NotCountedError("vocab_size is not known (a tokenizer may decide it)")
    return padded_vocab(vocab, _int(get, "make_vocab_size_divisible_by") or 128, needed(get, "tensor_model_parallel_size"))


def moe_layers(get: Getter, layers: int) -> tuple[bool, ...]:
    """For each layer whether it has experts. Raises NotCountedError where the pattern is not known or does not fit."""
    if layers > 100_000:
        raise NotCountedError(f"num_layers is {layers}")
    if get("num_moe_experts") is None:
        if get("moe_ffn_hidden_size") is not None:
            raise NotCountedError("num_moe_experts is not known, though the experts' size is given")
        return (False,) * layers
    return _of_layers(get, "moe_layer_freq", layers, lambda place, every: place % every == 0)


def _of_layers(get: Getter, name: str, layers: int, chosen: Callable[[int, int], bool]) -> tuple[bool, ...]:
    """For each layer whether a setting chooses it: a list of 0 and 1, or one number from which `chosen` tells it by the layer's place."""
    pattern = get(name)
    if not isinstance(pattern, tuple):
        raise NotCountedError(f"{name} is not known")
    numbers = [int(item) for item in pattern]
    if len(numbers) == 1 and layers > 1:
        if numbers[0] < 1:
            raise NotCountedError(f"{name} is {numbers[0]}")
        return tuple(chosen(place, numbers[0]) for place in range(layers))
    if len(numbers) != layers or not set(numbers) <= {0, 1}:
        raise NotCountedError(f"{name} lists {len(numbers)} layers, num_layers says {layers}")
    return tuple(bool(number) for number in numbers)


_DELTA_NETS = ("gdn", "gdn2")
_VARIANTS: Mapping[str, str] = {
    "kimi_kda_layers": "Kimi Delta Attention has terms of its own",
    "is_hybrid_model": "a hybrid model's Mamba or delta-net layers have terms of their own",
    "hybrid_layer_pattern": "a hybrid model's Mamba or delta-net layers have terms of their own",
    "window_size": "sliding-window attention has a term of its own",
    "enable_offline_packing": "sequences are packed, and the attention of a pack depends on the lengths in it",
    "enable_in_batch_packing": "sequences are packed, and the attention of a pack depends on the lengths in it",
    "packing_buffer_size": "sequences are packed, and the attention of a pack depends on the lengths in it",
    "packed_sequence_size": "sequences are packed, and the attention of a pack depends on the lengths in it",
}


def _refuse_variants(get: Getter) -> None:
    variant = get("experimental_attention_variant")
    if variant not in (None, "none", *_DELTA_NETS):
        raise NotCountedError(f"attention of the variant {variant} has terms of its own")
    for name, why in _VARIANTS.items():
        if get(name) not in (None, False, 0, ()):
            raise NotCountedError(why)


def _latent(get: Getter, *, nulls_are_told: bool) -> Latent:
    rank = _int(get, "q_lora_rank")
    if rank is None and not nulls_are_told:
        raise NotCountedError("q_lora_rank is not known")
    names = ("kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
    kv_rank, qk_dim, rope_dim, v_dim = (needed(get, name) for name in names)
    return Latent(q_rank=rank or None, kv_rank=kv_rank, qk_dim=qk_dim, rope_dim=rope_dim, v_dim=v_dim)


def _delta(get: Getter, layers: int) -> DeltaNet | None:
    variant = get("experimental_attention_variant")
    if variant not in _DELTA_NETS:
        return None
    names = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim")
    key_heads, value_heads, key_dim, value_dim, kernel = (needed(get, name) for name in names)
    return DeltaNet(
        layers=_of_layers(get, "linear_attention_freq", layers, lambda place, every: (place + 1) % every != 0),  # all but every n-th
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        kernel=kernel,
        second=variant == "gdn2",
    )


_MAY_BE_ZERO = ("mtp_num_layers", "q_lora_rank", "qk_pos_emb_head_dim", "moe_shared_expert_intermediate_size")


def _int(get: Getter, name: str) -> int | None:
    value = get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
        raise NotCountedError(f"{name} is {value}")
    return value


def needed(get: Getter, name: str) -> int:
    """A size that the count can't do without. Raises NotCountedError."""
    value = _int(get, name)
    if value is None:
        raise NotCountedError(f"{name} is not known")
    return value
