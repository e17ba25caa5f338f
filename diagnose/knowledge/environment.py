"""What a capture tells about the world around the code, as far as trace_rules/environment.yaml allows it to be taken out.

Privacy: a value is shown only where it is plainly a number, a version or a list of words. Paths, addresses, long or odd texts, and whatever
holds the name of the capture's user or host are replaced by a digest, by which two captures can still be told apart. Variables that are not
on the list are not looked at.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec
from msgspec import Struct, field

from diagnose.knowledge.data import checked, contents
from diagnose.model.environment import EnvironmentItem

FILE = "environment.yaml"
Place = Literal["system", "export", "gpu", "machine", "torch", "device", "listed", "variable"]
Form = Literal["version", "folder", "driver", "cuda", "hip", "text", "count", "bytes", "bytes_per_s", "hertz", "megahertz"]
MAX_VARIABLES = 150  # that are listed one by one; containers for training set some dozens of them
MAX_LENGTH = 80  # of a value that is shown
MIN_PRIVATE = 3  # letters: shorter names would be found in everything
UNTOLD = frozenset({"", "unknown", "none", "n/a"})
SEVERAL = ", "

_NAME = re.compile(r"[A-Za-z_]\w{0,79}")
_VERSION = re.compile(r"v?\d[\w.+~-]{0,47}")
_ITEM = r"[\w.+%*-]{1,32}"
_WORDS = re.compile(rf"[\^=:-]{{0,2}}{_ITEM}(?:[ ,;:|=]{{1,2}}{_ITEM}){{0,63}}[,;:]?")
_TEXT = re.compile(r"[\w ().,+/#:;@×-]{1,80}")
_NUMERIC = re.compile(r"[+-]?v?\d+(?:\.\d+\w*)*(?:[+-]\w+(?:\.\d+)*)*%?")
# IPv4, IPv6 and hardware addresses, identifiers in hexadecimal, long numbers, paths, names at hosts.
_PRIVATE = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])|::|(?=[\d:]*[A-Fa-f])(?:[0-9A-Fa-f]{0,4}:){3,}|(?:\d{1,4}:){7}|[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-"
    r"|(?=\w*\d)(?=\w*[A-Fa-f])[0-9A-Fa-f]{12,}|\d{16,}|(?:[A-Za-z]:)?[/\\][^\s,;'\"]*[/\\]|^[/\\~.]|\S@\S"
)


_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?=[A-Za-z+=-]*\d)(?=[0-9+=-]*[A-Za-z])[A-Za-z0-9+=-]{16,}"
)  # letters and digits mixed, too long for a version


class Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing to look for; the fields are explained at the top of the YAML file."""

    name: str
    kind: Literal["version", "hardware", "clock"]
    form: Form
    from_: tuple[dict[Place, str], ...] = msgspec.field(name="from")


class Variables(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which environment variables are listed, and which of them only as a digest."""

    prefixes: tuple[str, ...]
    names: tuple[str, ...]
    hidden: str
    never: str


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    items: tuple[Item, ...]
    variables: Variables


class EnvironmentRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole list, with its expressions compiled."""

    items: tuple[Item, ...]
    prefixes: tuple[str, ...]
    names: frozenset[str]
    hidden: re.Pattern[str]
    never: re.Pattern[str]

    @property
    def used(self) -> frozenset[str]:
        """Variables that items are read from."""
        return frozenset(one["variable"] for item in self.items for one in item.from_ if "variable" in one)


def load_environment_rules(data: bytes | None = None) -> EnvironmentRules:
    """The list of what may be taken out, of a file's bytes (the program's own file by default). Raises RuleFileError."""
    with checked(FILE, effect="Nothing was analysed, because it could not be told what may be taken out of a capture."):
        found = contents(FILE, _File, data)
        return EnvironmentRules(
            items=found.items,
            prefixes=found.variables.prefixes,
            names=frozenset(found.variables.names),
            hidden=re.compile(found.variables.hidden),
            never=re.compile(found.variables.never),
        )


class RawEnvironment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a capture tells of what is around the code, before anything is chosen.

    Values by place and key, how each place is called in the document ({} stands for the key), and names of users and hosts.
    """

    values: Mapping[Place, Mapping[str, tuple[object, ...]]]
    sources: Mapping[Place, str]
    private: Iterable[str] = field(default=())


def environment(told: RawEnvironment, rules: EnvironmentRules) -> tuple[EnvironmentItem, ...]:
    """The items of one capture: in the order of the list, then variables by name."""
    names = frozenset(word.lower() for word in told.private if len(word) >= MIN_PRIVATE)
    found = [one for item in rules.items if (one := _item(item, told, names)) is not None]
    return (*found, *_variables(told, rules, names))


def _item(item: Item, told: RawEnvironment, private: frozenset[str]) -> EnvironmentItem | None:
    """One thing of the list, from the first place that tells it; of several devices all values."""
    for place, key in ((place, key) for one in item.from_ for place, key in one.items()):
        values = {shown for raw in told.values.get(place, {}).get(key, ()) if (shown := _formed(raw, item.form, private)) is not None}
        if values:
            return EnvironmentItem(
                name=item.name, kind=item.kind, value=SEVERAL.join(sorted(values)), source=told.sources[place].format(key)
            )
    return None


def _variables(told: RawEnvironment, rules: EnvironmentRules, private: frozenset[str]) -> list[EnvironmentItem]:
    """The listed variables by name; of more than MAX_VARIABLES the rest as a number and one digest."""
    given = told.values.get("variable", {})
    wanted = {name: SEVERAL.join(dict.fromkeys(str(value) for value in given[name])) for name in sorted(given) if _is_listed(name, rules)}
    source = told.sources.get("variable", "")

    def item(name: str, value: str) -> EnvironmentItem:
        return EnvironmentItem(name=name, kind="variable", value=value, source=source)

    shown = [
        item(name, digest(value) if rules.hidden.search(name) else shown_value(value, private))
        for name, value in list(wanted.items())[:MAX_VARIABLES]
    ]
    rest = list(wanted.items())[MAX_VARIABLES:]
    return [*shown, item("further variables", f"{len(rest)}, {digest(repr(rest))}")] if rest else shown


def _is_listed(name: str, rules: EnvironmentRules) -> bool:
    known = name.startswith(rules.prefixes) or name in rules.names
    return known and name not in rules.used and _NAME.fullmatch(name) is not None and rules.never.search(name) is None


# --- values -----------------------------------------------------------------------------------------------------------


def digest(value: str) -> str:
    """What stands for a value that is not shown."""
    return f"digest {hashlib.sha256(value.encode(errors='replace')).hexdigest()[:10]}"


def shown_value(value: str, private: frozenset[str] = frozenset()) -> str:
    """A variable's value where it is plainly numbers, versions or words, else its digest."""
    text = value.strip()
    if not text:
        return "(empty)"
    words = re.split(r"[ ,;:|=^]+", text)
    # A point makes a name of a host, unless what it stands in is a number or a version.
    plain = _WORDS.fullmatch(text) is not None and all("." not in word or _NUMERIC.fullmatch(word) for word in words)
    return text if plain and _is_public(text, private) else digest(text)


def _is_public(text: str, private: frozenset[str]) -> bool:
    lowered = text.lower()
    return len(text) <= MAX_LENGTH and not (_PRIVATE.search(text) or _KEY.search(text)) and not any(word in lowered for word in private)


def without_private(message: str, names: Iterable[str]) -> str:
    """A message in one line, in which whatever may be private (a path, an address, a name of `names`, what looks like a key) reads "…"."""
    private = frozenset(name.lower() for name in names if len(name) >= MIN_PRIVATE)
    words = (
        "…" if _PRIVATE.search(word) or _KEY.search(word) or any(name in word.lower() for name in private) else word
        for word in message.split()
    )
    return re.sub(r"…(?: …)+", "…", " ".join(words))


def _formed(raw: object, form: Form, private: frozenset[str]) -> str | None:
    """The value of an item as it is shown; None where it tells nothing."""
    text = str(raw).strip() if isinstance(raw, str | int | float) and not isinstance(raw, bool) else ""
    return None if text.lower() in UNTOLD else _FORMS[form](text, private)


def _version(text: str, private: frozenset[str]) -> str | None:
    if not re.search(r"\d", text):
        return None
    lowered = text.lower()
    return text if _VERSION.fullmatch(text) and not any(word in lowered for word in private) else digest(text)


def _folder(text: str, _: frozenset[str]) -> str | None:
    found = re.search(r"nsight-?systems(?:-cli)?[-/\\ ](\d{4}\.\d{1,2}\.\d{1,2})(?![\w.])", text, re.IGNORECASE)
    return found[1] if found else None


def _driver(text: str, private: frozenset[str]) -> str | None:
    packed = re.fullmatch(r"(\d{3})(\d{2,3}?)(\d{2})?", text)
    return ".".join(part for part in packed.groups() if part) if packed else _version(text, private)


def _text(text: str, private: frozenset[str]) -> str:
    return text if _TEXT.fullmatch(text) and _is_public(text, private) else digest(text)


def _number(text: str, scale: float, unit: str, places: int = 0) -> str | None:
    """A positive number in another unit; None for what is no number."""
    if not re.fullmatch(r"\d{1,18}(\.\d{1,20})?", text) or float(text) <= 0:
        return None
    return f"{float(text) / scale:.{places}f}{unit}"


def _packed(*factors: int) -> Callable[[str, frozenset[str]], str | None]:
    """A version packed into one number: each part is what is left, divided by its factor."""

    def unpacked(text: str, _: frozenset[str]) -> str | None:
        if not re.fullmatch(r"\d{1,10}", text):
            return None
        rest, parts = int(text), []
        for factor in factors:
            parts.append(str(rest // factor))
            rest %= factor
        return ".".join(parts)

    return unpacked


_FORMS: Mapping[Form, Callable[[str, frozenset[str]], str | None]] = {
    "version": _version,
    "folder": _folder,
    "driver": _driver,
    "cuda": _packed(1000, 10),
    "hip": _packed(10_000_000, 100_000, 1),
    "text": _text,
    "count": lambda text, _: _number(text, 1, ""),
    "bytes": lambda text, _: _number(text, 1 << 30, " GiB", 1),
    "bytes_per_s": lambda text, _: _number(text, 1e9, " GB/s"),
    "hertz": lambda text, _: _number(text, 1e6, " MHz"),
    "megahertz": lambda text, _: _number(text, 1, " MHz"),
}
