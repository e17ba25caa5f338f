"""`diagnose explain` and `diagnose rules`: what the program knows."""

from __future__ import annotations

from pathlib import Path

import click

from diagnose.commands.options import PATH, Group, format_option, rules_option, takes
from diagnose.commands.output import print_document


class Explaining(Group):
    """The user's own knowledge beside ours, and how the answer looks."""

    rules: tuple[Path, ...] = rules_option("rules")
    format: str = format_option("explanation")


class Listing(Explaining):
    """What is listed, and how."""

    format: str = format_option("rules")


@click.command()
@click.argument("id_", metavar="ID")
@click.argument("diagnosis", type=PATH, required=False, metavar="[DIAGNOSIS.json]")
@takes(explaining=Explaining)
def explain(id_: str, diagnosis: Path | None, explaining: Explaining) -> int:
    """Explain a rule, fix, bucket, fact, job setting, platform, wall or ledger code; with a diagnosis, in its numbers.

    The name of a kind (rules, fixes, walls, buckets, families, contexts, groups, facts, settings, platforms, codes) lists all of it. Where
    several things have one name all are explained; `bucket:router` asks for one.
    """
    from diagnose.document.files import read_diagnosis  # noqa: PLC0415
    from diagnose.knowledge.load import load_rulebook  # noqa: PLC0415
    from diagnose.knowledge.taxonomy import load_taxonomy, own_bucket_files  # noqa: PLC0415
    from diagnose.render.reports.explanation import Explanation  # noqa: PLC0415

    taxonomy = load_taxonomy(extra=own_bucket_files(explaining.rules))
    document = None if diagnosis is None else read_diagnosis(diagnosis)
    print_document(Explanation(name=id_, book=load_rulebook(explaining.rules), taxonomy=taxonomy, diagnosis=document), explaining.format)
    return 0


@click.command("rules")
@takes(listing=Listing)
def list_rules(listing: Listing) -> int:
    """List all rules and fixes."""
    from diagnose.knowledge.load import load_rulebook  # noqa: PLC0415

    print_document(load_rulebook(listing.rules), listing.format)
    return 0
