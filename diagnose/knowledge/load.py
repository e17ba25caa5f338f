"""Everything that the program knows, read once from trace_rules/ and the user's own files, and handed down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from diagnose.knowledge.buckets import Buckets, load_buckets
from diagnose.knowledge.catalogue import UNIT_TYPES, CheckSpec, FactSpec, FixSpec, Rule
from diagnose.knowledge.data import OWN_TABLES, own_table, own_text
from diagnose.knowledge.environment import EnvironmentRules, load_environment_rules
from diagnose.knowledge.exchanges import ExchangeNames, load_exchange_names
from diagnose.knowledge.features import Features, load_features
from diagnose.knowledge.forecast import ForecastRules, load_forecast_rules
from diagnose.knowledge.platforms import Platforms
from diagnose.knowledge.relevance import Relevance
from diagnose.knowledge.rule_checks import check_walls, checked
from diagnose.knowledge.rule_files import CHECKS, Later, RuleFile, collect, digest_of, ids_in, own_rule_files, packaged_rule_files, parse
from diagnose.knowledge.rulebook import OnDemand, Rulebook, Wording
from diagnose.knowledge.settings import load_job_settings
from diagnose.knowledge.taxonomy import HostRules, Taxonomy, load_host_rules, load_taxonomy, own_bucket_files
from diagnose.knowledge.walls import VERDICT_COLUMNS, Walls


class Knowledge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All rules in use: facts, rules and fixes; what kernels, ranges, host calls and exchanges are; names that prove a feature.

    What may be told of the environment.
    """

    rulebook: Rulebook
    taxonomy: Taxonomy
    hosts: HostRules
    features: Features
    exchanges: ExchangeNames
    environment: EnvironmentRules
    forecast: ForecastRules

    @property
    def buckets(self) -> Buckets:
        """The rows of buckets.yaml, in the order of the vocabulary."""
        return self.taxonomy.buckets


def load_rulebook(extra: Sequence[Path] = (), *, check: bool = False) -> Rulebook:
    """The built-in rules and those in `extra`: folders laid out like trace_rules, or single files with one rule or one fix.

    What has the id of a built-in rule or fix replaces it. Names, templates and expressions of all are checked where there are own ones, or
    with `check`; without, expressions, fixes and checks are read when they are first asked for. Raises RuleFileError.
    """
    return read_rulebook(tuple(source for path in extra for source in own_rule_files(path)), check=check or bool(extra))


def read_rulebook(extra: tuple[RuleFile, ...], *, check: bool) -> Rulebook:
    """The rulebook of the program's own files and those in `extra`; with `check` all of it is read and checked. Raises RuleFileError."""
    built_in = packaged_rule_files()
    by_label = {source.label: source for source in (*built_in, *(source for source in extra if source.label in OWN_TABLES))}
    facts = parse(by_label["facts.yaml"], dict[str, FactSpec])
    walls = parse(by_label["walls.yaml"], Walls)
    check_walls(walls)
    relevance = parse(by_label["relevance.yaml"], Relevance)
    buckets = load_buckets(by_label["buckets.yaml"].data)
    job = load_job_settings()
    schema = {name: UNIT_TYPES[spec.unit] for name, spec in facts.items()} | dict(job.schema)
    rules = collect(built_in, "rules/", Rule) | collect(extra, "rules/", Rule)
    book = Rulebook(
        facts=facts,
        job=job,
        rules={key: rule for key, (_, rule) in sorted(rules.items())},
        fixes=Later(dict(sorted(ids_in(built_in, "playbook/"))), FixSpec),
        checks=Later(dict(ids_in(built_in, CHECKS)), CheckSpec),
        walls=walls,
        relevance=relevance,
        buckets=buckets,
        platforms=parse(by_label["platforms.yaml"], Platforms),
        wordings=parse(by_label["wordings.yaml"], dict[str, Wording]),
        schema=schema,
        expressions=OnDemand({**schema, **VERDICT_COLUMNS}),
        sha256=digest_of(built_in + extra),
    )
    if not check:
        return book
    fixes = collect(built_in, "playbook/", FixSpec) | collect(extra, "playbook/", FixSpec)
    checks = collect(built_in, CHECKS, CheckSpec) | collect(extra, CHECKS, CheckSpec)
    book = replace(
        book,
        fixes={key: fix for key, (_, fix) in sorted(fixes.items())},
        checks={key: one for key, (_, one) in checks.items()},
    )
    return checked(book, rules, fixes, checks, {source.label: source.data for source in (*built_in, *extra)})


def load_knowledge(rules: Sequence[Path] = ()) -> Knowledge:
    """The built-in knowledge with the user's own at `rules`: folders (of some tables with their own) and files. Raises RuleFileError."""
    rulebook = load_rulebook(rules)
    return Knowledge(
        rulebook=rulebook,
        taxonomy=load_taxonomy(extra=own_bucket_files(rules), buckets=rulebook.buckets),
        hosts=load_host_rules(own_table("hosts.yaml", rules)),
        features=load_features(own_text("features.yaml", rules)),
        exchanges=load_exchange_names(own_text("exchanges.yaml", rules)),
        environment=load_environment_rules(own_text("environment.yaml", rules)),
        forecast=load_forecast_rules(own_text("forecast.yaml", rules)),
    )
