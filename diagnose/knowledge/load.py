"""Everything that the program knows, read once from trace_rules/ and the user's own files, and handed down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from diagnose.knowledge.buckets import Buckets
from diagnose.knowledge.data import own_table, own_text
from diagnose.knowledge.environment import EnvironmentRules, load_environment_rules
from diagnose.knowledge.exchanges import ExchangeNames, load_exchange_names
from diagnose.knowledge.features import Features, load_features
from diagnose.knowledge.forecast import ForecastRules, load_forecast_rules
from diagnose.knowledge.rulebook import Rulebook, load_rulebook
from diagnose.knowledge.taxonomy import HostRules, Taxonomy, load_host_rules, load_taxonomy, own_bucket_files


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
