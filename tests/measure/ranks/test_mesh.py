"""Which ranks share a stage and a group, against Megatron-Core's order counted out rank by rank."""

from __future__ import annotations

from itertools import product

import pytest

from diagnose.job import overridden_job
from diagnose.measure.ranks.members import Mesh, mesh_of

SIZES = [(16, 2, 1, 2, 4, 1), (16, 1, 2, 4, 2, 1), (32, 2, 2, 2, 4, 2), (8, 1, 1, 1, 8, 1), (24, 2, 1, 3, 2, 1)]


def job(world: int, tensor: int, context: int, pipeline: int, expert: int, expert_tensor: int, **more: str) -> Mesh | None:
    settings = {
        "world_size": world,
        "model.tensor_model_parallel_size": tensor,
        "model.context_parallel_size": context,
        "model.pipeline_model_parallel_size": pipeline,
        "model.expert_model_parallel_size": expert,
        "model.expert_tensor_parallel_size": expert_tensor,
    }
    return mesh_of(
        overridden_job([*(f"{key}={value}" for key, value in settings.items()), *(f"{key}={value}" for key, value in more.items())])
    )


@pytest.mark.parametrize("sizes", SIZES)
def test_groups_of_the_attention_mesh(sizes: tuple[int, ...]) -> None:
    world, tensor, context, pipeline, *_ = sizes
    mesh = job(*sizes)
    assert mesh is not None
    data = world // (tensor * context * pipeline)
    # order tp-cp-ep-dp-pp: tensor counts fastest, the pipeline slowest
    places = {rank: (t, c, d, p) for rank, (p, d, c, t) in enumerate(product(range(pipeline), range(data), range(context), range(tensor)))}
    for a, b in product(range(world), repeat=2):
        (ta, ca, da, pa), (tb, cb, db, pb) = places[a], places[b]
        assert mesh.stage(a) == pa
        assert (mesh.group("tensor", a) == mesh.group("tensor", b)) == ((ca, da, pa) == (cb, db, pb))
        assert (mesh.group("context", a) == mesh.group("context", b)) == ((ta, da, pa) == (tb, db, pb))
        assert (mesh.group("pipeline", a) == mesh.group("pipeline", b)) == ((ta, ca, da) == (tb, cb, db))


@pytest.mark.parametrize("sizes", SIZES)
def test_groups_of_the_expert_mesh(sizes: tuple[int, ...]) -> None:
    world, _, _, pipeline, expert, expert_tensor = sizes
    mesh = job(*sizes)
    assert mesh is not None
    replicas = world // (pipeline * expert * expert_tensor)
    places = {
        rank: (t, e, d, p)
        for rank, (p, d, e, t) in enumerate(product(range(pipeline), range(replicas), range(expert), range(expert_tensor)))
    }
    for a, b in product(range(world), repeat=2):
        (ta, _, da, pa), (tb, _, db, pb) = places[a], places[b]
        assert (mesh.group("expert", a) == mesh.group("expert", b)) == ((ta, da, pa) == (tb, db, pb))


def test_the_pipeline_before_data() -> None:
    mesh = job(8, 2, 1, 2, 1, 1, **{"dist.use_tp_pp_dp_mapping": "true"})
    assert mesh is not None
    assert [mesh.stage(rank) for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_sizes_that_do_not_fit_make_no_mesh() -> None:
    assert job(10, 4, 1, 1, 1, 1) is None
    assert mesh_of(None) is None
    assert mesh_of(overridden_job(["model.tensor_model_parallel_size=2"])) is None
