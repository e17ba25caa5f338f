"""What fusing chains of generic kernels could save at most."""

import polars as pl

from diagnose.measure.kernels import pointwise_chains

KINDS = ["elementwise", "dense_gemm", "memcpy"]


def saved(*rows: tuple[str, int, int], casts: tuple[int, ...] = (), attention: tuple[int, ...] = ()) -> list[int]:
    """Saved ns by step of operations (bucket, length, stream); a step holds ten rows, `casts` and `attention` are numbers of rows."""
    starts = [1_000 * place for place in range(len(rows))]
    frame = pl.DataFrame(
        {
            "index": [place // 10 for place in range(len(rows))],
            "start": starts,
            "end": [start + length for start, (_, length, _) in zip(starts, rows, strict=True)],
            "stream": [stream for *_, stream in rows],
            "kind": ["memcpy" if bucket == "memcpy" else "kernel" for bucket, *_ in rows],
            "bucket": [bucket for bucket, *_ in rows],
            "op": range(len(rows)),
        },
        schema_overrides={"bucket": pl.Enum(KINDS), "op": pl.UInt32},
    )
    of_other_kinds = (pl.Series(rows, dtype=pl.UInt32) for rows in (casts, attention))
    return pointwise_chains(frame, *of_other_kinds).sort("index")["pointwise_chain_ns"].to_list()


def test_the_longest_of_each_chain_remains() -> None:
    chain = [("elementwise", 30, 7), ("elementwise", 50, 7), ("elementwise", 20, 7)]
    assert saved(*chain) == [50]
    assert saved(*chain, ("dense_gemm", 900, 7), ("elementwise", 40, 7)) == [50], "one that stands alone saves nothing"
    assert saved(("elementwise", 30, 7), ("dense_gemm", 900, 8), ("elementwise", 50, 7)) == [30], "another stream breaks no chain"
    assert saved(("elementwise", 30, 7), ("dense_gemm", 900, 7), ("elementwise", 50, 7)) == [0]


def test_what_another_finding_claims_breaks_no_chain_and_does_not_count_nor_do_copies() -> None:
    assert saved(("elementwise", 30, 7), ("elementwise", 70, 7), ("elementwise", 50, 7), attention=(1,)) == [30]
    assert saved(("elementwise", 30, 7), ("memcpy", 70, 7), ("elementwise", 50, 7)) == [30]


def test_a_fused_chain_with_casts_moves_the_narrow_type() -> None:
    norm = [("elementwise", ns, 7) for ns in (60, 80, 40, 80, 60)]
    assert saved(*norm, casts=(0, 4)) == [320 - 40]
    assert saved(("elementwise", 60, 7), ("elementwise", 80, 7), ("elementwise", 60, 7), casts=(0, 2)) == [0], "nothing to fuse but casts"
