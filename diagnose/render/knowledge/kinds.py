"""The kinds of entries; adding a kind is one entry in `KINDS`, and one in `pages.reference.SHELVES`."""

from __future__ import annotations

from diagnose.model.ledger import CODES
from diagnose.render.knowledge import kernels, numbers, rules
from diagnose.render.knowledge.entries import Kind

# In the order in which an id is looked up; the order inside a page of the reference is the same.
KINDS: tuple[Kind, ...] = (
    Kind(
        name="rule",
        plural="rules",
        ids=lambda know: sorted(know.book.rules, key=lambda key: (rules.topics(know.book).index(know.book.rules[key].wall), key)),
        entry=rules.rule,
        run=rules.rule_in_run,
    ),
    Kind(
        name="fix",
        plural="fixes",
        ids=rules.order,
        entry=rules.fix,
        run=rules.fix_in_run,
    ),
    Kind(
        name="check",
        plural="checks",
        ids=lambda know: tuple(know.book.checks),
        entry=rules.check,
    ),
    Kind(
        name="wall",
        plural="walls",
        ids=lambda know: tuple(know.book.walls.walls),
        entry=rules.wall,
        run=rules.wall_in_run,
    ),
    Kind(
        name="word",
        plural="words",
        ids=lambda know: tuple(know.words),
        entry=rules.word,
    ),
    Kind(
        name="bucket",
        plural="buckets",
        ids=lambda know: tuple(know.book.buckets),
        entry=kernels.bucket,
        run=kernels.bucket_in_run,
    ),
    Kind(
        name="family",
        plural="families",
        ids=lambda know: tuple(one.id for one in know.taxonomy.families),
        entry=kernels.family,
    ),
    Kind(
        name="context",
        plural="contexts",
        ids=lambda know: tuple(one.id for one in know.taxonomy.contexts),
        entry=kernels.context,
    ),
    Kind(
        name="group",
        plural="groups",
        ids=lambda know: tuple(one.id for one in know.taxonomy.groups),
        entry=kernels.group,
    ),
    Kind(
        name="fact",
        plural="facts",
        ids=lambda know: tuple(know.book.facts),
        entry=numbers.fact,
        run=numbers.fact_in_run,
    ),
    Kind(
        name="setting",
        plural="settings",
        ids=lambda know: tuple(know.book.settings),
        entry=numbers.setting,
        run=numbers.setting_in_run,
    ),
    Kind(
        name="platform",
        plural="platforms",
        ids=lambda know: tuple(know.book.platforms.platforms),
        entry=numbers.platform,
    ),
    Kind(
        name="code",
        plural="codes",
        ids=lambda _: tuple(CODES),
        entry=numbers.code,
        run=numbers.code_in_run,
    ),
)
