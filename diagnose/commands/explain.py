"""`diagnose explain` and `diagnose rules`: what the program knows."""

from __future__ import annotations

from pathlib import Path

import click

from diagnose.commands.deliver import write_stdout
from diagnose.commands.shared import PATH, read_diagnosis


@click.command()
@click.argument("id_", metavar="ID")
@click.argument("diagnosis", type=PATH, required=False, metavar="[DIAGNOSIS.json]")
@click.option("--rules", type=PATH, multiple=True, help="Folder or file of your own rules. Repeatable.")
def explain(id_: str, diagnosis: Path | None, rules: tuple[Path, ...]) -> int:
    """Explain a rule, fix, bucket, fact, job setting, platform, wall or ledger code; with a diagnosis, in its numbers.

    The name of a kind (rules, fixes, walls, buckets, families, contexts, groups, facts, settings, platforms, codes) lists all of it. Where
    several things have one name all are explained; `bucket:router` asks for one.
    """
    from diagnose.knowledge.rulebook import load_rulebook  # noqa: PLC0415
    from diagnose.knowledge.taxonomy import load_taxonomy, own_bucket_files  # noqa: PLC0415
    from diagnose.render.explain import explain as explained  # noqa: PLC0415

    taxonomy = load_taxonomy(extra=own_bucket_files(rules))
    write_stdout(explained(load_rulebook(rules), id_, None if diagnosis is None else read_diagnosis(diagnosis), taxonomy))
    return 0


@click.command("rules")
@click.option("--rules", type=PATH, multiple=True, help="Folder or file of your own rules. Repeatable.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", help="[default: text]")
def list_rules(rules: tuple[Path, ...], format_: str) -> int:
    """List all rules and fixes."""
    from diagnose.knowledge.rulebook import load_rulebook  # noqa: PLC0415
    from diagnose.render.explain import listing, listing_json  # noqa: PLC0415

    book = load_rulebook(rules)
    write_stdout(listing(book) if format_ == "text" else listing_json(book), utf8=format_ == "json")
    return 0
