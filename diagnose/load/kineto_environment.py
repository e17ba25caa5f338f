"""What a PyTorch profiler file tells about the world around the code; `diagnose.knowledge.environment` chooses what is passed on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from diagnose.knowledge.environment import EnvironmentRules, RawEnvironment, environment
from diagnose.model.environment import EnvironmentItem

_NAMING_KEYS = ("username", "user", "tw_user", "host_name", "hostname")


def environment_of(keys: Mapping[str, Any], used: Iterable[int], rules: EnvironmentRules) -> tuple[EnvironmentItem, ...]:
    """The items of one file; `used` are the devices with work. A file of this profiler holds no environment variables."""
    listed = keys.get("deviceProperties")
    devices = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    ordinals = set(used)
    own = [one for one in devices if one.get("id") in ordinals] or devices
    wanted = [(place, key) for item in rules.items for one in item.from_ for place, key in one.items()]
    told = RawEnvironment(
        values={
            "torch": {key: (_at(keys, key),) for place, key in wanted if place == "torch"},
            "device": {key: tuple(one.get(key) for one in own) for place, key in wanted if place == "device"},
            "listed": {"devices": (len(devices),)},
        },
        sources={"torch": "{}", "device": "deviceProperties, {}", "listed": "deviceProperties"},
        private=[word for key in _NAMING_KEYS if isinstance(name := keys.get(key), str) for word in {name, name.partition(".")[0]}],
    )
    return environment(told, rules)


def _at(keys: Mapping[str, Any], path: str) -> object:
    """The value at a key, or below it where a point goes one level down."""
    node: object = keys
    for part in path.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node
