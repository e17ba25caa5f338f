"""What is private is taken out of texts that leave the house: secrets, paths, names of hosts and users.

The same value gets the same stand-in everywhere.

Two sorts of text: a *job* text (a job file, a command line) is read by its keys too, and anything doubtful goes; a *document's* texts lose
what was found in job texts, and what can be told by its form alone. Forms of tokens are those that their issuers publish: GitHub ("Behind
GitHub's new authentication token formats"), Hugging Face, AWS ("IAM identifiers"), Slack, GitLab, NVIDIA NGC, Google, OpenAI, Weights &
Biases, JSON Web Tokens (RFC 7519), PEM (RFC 7468).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

Kind = Literal["secret", "path", "host", "user"]
Record = TypeVar("Record")

# --- forms ------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:hf|api_org)_[A-Za-z0-9]{16,}\b|\bgh[opusr]_[A-Za-z0-9]{20,}\b|\bgithub_pat_\w{20,}\b|\bglpat-[\w-]{16,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bxox[abeoprs]-[\w-]{10,}|\bnvapi-[\w-]{20,}|\bAIza[\w-]{30,}|\bsk-[\w-]{20,}|\bpypi-[\w-]{20,}"
    r"|\bwandb_v\d_\w{20,}|\blocal-[0-9a-f]{40}\b|\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*",
    re.DOTALL,
)
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@\"']+(?=@)")  # scheme://user:password@host
_SIGNATURE = re.compile(r"(?<=[?&])((?:sig|signature|token|key|x-amz-[a-z-]+|se|sp|sv)=)([^&\s\"']+)", re.IGNORECASE)
_HEX = re.compile(r"(?<![0-9A-Za-z_])(?:[0-9a-f]{32}|[0-9a-f]{40})(?![0-9A-Za-z_])")  # keys of W&B, MD5 of anything
_DENSE = re.compile(r"(?<![\w.+-])(?:[A-Za-z0-9+]{20,}|[\w-]{32,})={0,2}(?![\w.+-])")
_REVISION = re.compile(
    r"(?:commit|revision|rev|sha\d*|hash|digest|checksum|branch|tag|ref)[\"']?(?:\s*(?::-|[:=])\s*|\s+|@)[\"']?$", re.IGNORECASE
)  # before a hexadecimal number that names a state of code
_MAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]++@[\w-]+(?:\.[\w-]+)+")
_SEAT = re.compile(r"\b([a-z_][\w.-]{1,31})@([\w.-]+)")  # user@host
_URL_PATH = re.compile(r"\b(?:s3|gs|gcs|hdfs|abfss?|wasbs?|msc|file|nfs|lustre|azure|oss|cos|swift|ssh|scp|rsync)://[^\s\"'<>|;,)\]}]+")
_ROOTED = r"(?:(?<![\w.~/\\<>$}@%+-])~?/(?!/)|\$(?:\w+|\{[^}\n]*\})/|(?<![\w.~/\\])\.{1,2}/)"
_PATH = re.compile(rf"{_ROOTED}(?:[\w.@%+~^-]|\\ |\$\w+|\$\{{[^}}\n]*\}})+(?:/(?:[\w.@%+~*^-]|\\ |\$\w+|\$\{{[^}}\n]*\}})*)+")
_HOME = re.compile(
    r"(?:(?<![\w.~/\\])/(?:home|root|data|mnt|scratch|lustre|gpfs|fsx|nfs|workspace|users|Users|work|opt|srv|checkpoints|ckpt)\b(?!/)|~[a-z]\w+|(?<![\w.~/\\])(?:~|\$HOME|\$\{HOME\})/[\w.+-]+)"
)
_ONE = re.compile(r"(?:(?<=[\s=:\"'])|^)/[\w.-]{2,}(?=[\s\"',;)\]}]|$)", re.MULTILINE)
_QUOTED_PATH = re.compile(r"(?<=[\"'])(?:~|\$\{?\w+\}?|\.{1,2})?/(?!/)[^\"'\n]*(?=[\"'])")
_WINDOWS = re.compile(r"(?:\b[A-Za-z]:\\|\\\\)[^\s\"'<>|,;]+")
_RELATIVE = re.compile(r"(?<![\w./$}:~-])[\w.+-]+(?:/[\w.+-]+){2,}|(?<![\w./$}:~-])[\w.+-]+(?:/[\w.+-]+)*/[\w+-]+\.[a-z]\w{0,9}\b")
_HARMLESS = re.compile(r"(?:/dev/\w+|/(?:usr/)?bin/(?:env|bash|sh|python3?|zsh))")
_IP = re.compile(r"(?<![\w.])(?!127\.0\.0\.1|0\.0\.0\.0)(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.])")
_IP6 = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}(?::?[0-9a-fA-F]{1,4})+(?![\w:])|(?<![\w:])fe80::[0-9a-fA-F:]+")
_DOMAIN = re.compile(
    r"(?<![\w.@-])(?<![\w.]/)(?:[A-Za-z0-9](?:[\w-]{0,62}[A-Za-z0-9])?\.){1,8}(?:com|net|org|io|ai|dev|local|internal|lan|corp|intra|cloud|cluster|svc|edu|gov|mil|eu|de|fr|uk|cn|jp|kr|in|ch|us)\b(?![\w(])"
)
_PUBLIC = (
    "apache.org", "python.org", "readthedocs.io", "schedmd.com", "github.com", "huggingface.co", "nvcr.io", "docker.io", "wandb.ai",
    "pytorch.org", "arxiv.org", "nvidia.com", "ghcr.io",
)  # fmt: skip
_OWNED = re.compile(
    r"/(?:home|Users|users|u|scratch|fsx|lustre|gpfs|work|data/home|mnt/home|fsx/home|lustre/home|scratch/users|lustre/users|data/users)/([A-Za-z_][\w.-]{2,31})(?=[/\s\"':;,)]|$)",
    re.MULTILINE,
)

# --- keys -------------------------------------------------------------------------------------------------------------

_SECRET_PART = re.compile(
    r"secrets?|passwords?|passwd|pwd|passphrase|passcode|apikey|credentials?|creds?|auth|authorization|bearer|cookie|webhook|dsn|pat"
    r"|signature"
)
_KEY_BEFORE = re.compile(
    r"api|access|private|secret|ssh|wandb|ngc|license|encryption|signing|account|storage|sas|master|service|deploy|gpg|pgp|comet"
    r"|neptune|mlflow|hf|openai"
)
_TOKEN_BESIDE = re.compile(  # `…_token` of a tokenizer or a router is no secret
    r"(?:eos|bos|pad|unk|mask|sep|cls|end|start|special|per|image|video|audio|extra|num|max|min|n|moe|drop|type|id|ids|count|budget|limit"
    r"|length|size|micro|global|train|total|seq|by|each)|(?:dispatch|embed).*"
)
_HOST_KEYS = re.compile(
    r"(?:^|[_.-])(?:host|hosts|hostname|hostnames|hostlist|hostfile|nodelist|nodelists|nodename|node_name|master_addr|master_address|master_ip|rdzv_endpoint|endpoint|server|servers|proxy|http_proxy|https_proxy|gateway|exclude_nodes|bind_addr|base_url|tracking_uri)$"
)
_USER_KEYS = re.compile(
    r"(?:^|[_.-])(?:user|username|user_name|logname|login|entity|mail_user|owner|author|authors|email|account|uid_name|team|project_owner)$"
)
_NO_USER = re.compile(
    r"root|user|users|admin|home|data|work|scratch|shared|public|none|null|true|false|ubuntu|nobody|default|diagnose|python|train"
    r"|training|model|models|local|test|latest"
)
_NOTHING = frozenset(("", "null", "None", "none", "true", "false", "True", "False", "0", "1"))
_LINE_KEY = re.compile(
    r"(?P<lead>(?:^|[\s;&|({,\[?])(?:export\s+|set\s+|setenv\s+|env\s+|ENV\s+|-e\s+|-D|--env[= ])?)(?P<quote>[\"']?)(?P<dash>-{0,2}|\+{1,2}|~)(?P<key>[A-Za-z_][\w.\-/]*)(?P=quote)"
    r"(?P<sep>\s*(?::=|\+=|\?=|=>|[=:])\s*|[ \t]+)(?P<value>\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|\$\{[^}\n]*\}[^\s,;&|)}\]]*|(?![{\[(])[^\s,;&|)}\]]+)",
    re.MULTILINE,
)
_NAMED_VALUE = re.compile(
    r"(?P<head>\bname\s*[\"']?\s*[:=]\s*[\"']?(?P<key>[\w.-]+)[\"']?\s*,?\s*(?:\n\s*)?[\"']?value[\"']?\s*[:=]\s*)(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s,}]+)"
)
_SPOKEN = re.compile(
    r"(?P<head>\b(?:wandb\s+login(?:\s+--\S+)*\s+|sshpass\s+-p\s*|docker\s+login\b[^\n]*?\s-p\s+|curl\b[^\n]*?\s(?:-u|--user)\s+|mysql\b[^\n]*?\s-p|(?:Bearer|Basic)\s+|(?<=\s)(?:password|passwd)\s+))(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s\"']+)"
)


_CONTINUED = re.compile(r"(?P<head>-{1,2}(?P<key>[A-Za-z][\w.-]*)[ \t]*\\\r?\n[ \t]*)(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s\\-][^\s\\]*)")
_LISTED = re.compile(
    r"(?P<head>(?<![\w.])(?P<key>[A-Za-z_][\w.-]{0,80}+)(?:\s*[=:]\s*|[ \t]+)[\"']?)(?P<value>[A-Za-z][\w.-]*(?:\[[\d,-]+\])?(?::\d+)?(?:,[\w.-]+(?:\[[\d,-]+\])?(?::\d+)?)+)"
)


def is_secret(key: str) -> bool:
    """Whether a setting or variable of this name holds a secret."""
    parts = [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", key)]
    for place, part in enumerate(parts):
        before = parts[place - 1] if place else ""
        if part in ("key", "keys") and (_KEY_BEFORE.fullmatch(before) or (place == 0 and len(parts) == 1 and key.isupper())):
            return True
        if part in ("token", "tokens", "tokenid"):
            beside = {*parts[:place], *parts[place + 1 : place + 2]}
            if not any(map(_TOKEN_BESIDE.fullmatch, beside)) and (part == "token" or place):
                return True
        elif _SECRET_PART.fullmatch(part) and not (
            part in ("pat", "auth", "signature") and len(parts) > 2 and not _KEY_BEFORE.fullmatch(before)
        ):
            return True
    return "".join(parts).endswith(("apikey", "accesskey", "secretkey", "privatekey", "authtoken", "accesstoken"))


class StandIn(NamedTuple):
    """One value that was taken out: its kind, what stands for it, how often, and beside which keys."""

    kind: Kind
    stand_in: str
    times: int
    keys: tuple[str, ...]


class Redactor:
    """Takes private values out of texts, and remembers them: what one text tells is taken out of the next too."""

    def __init__(self, users: Iterable[str] = (), hosts: Iterable[str] = ()) -> None:
        self._stand_ins: dict[tuple[Kind, str], str] = {}
        self._counts: dict[str, int] = {}
        self._keys: dict[str, dict[str, None]] = {}
        for user in users:
            self._learn_user(user)
        for host in hosts:
            if len(host) > 2 and host != "localhost":
                self._stand_in("host", host, count=0)

    @property
    def stand_ins(self) -> tuple[StandIn, ...]:
        """What was taken out, in the order of first mention."""
        kinds = {stand_in: kind for (kind, _), stand_in in self._stand_ins.items()}
        return tuple(
            StandIn(kind, stand_in, self._counts[stand_in], tuple(self._keys.get(stand_in, ())))
            for stand_in, kind in kinds.items()
            if self._counts[stand_in]
        )

    def job(self, text: str) -> str:
        """A job file's text, or a command line, without what is private. Line breaks stay, so that lines keep their numbers."""
        for user in _OWNED.findall(text):
            self._learn_user(user)
        text = _TOKEN.sub(self._with("secret"), text)
        text = _CREDENTIALS.sub(self._with("secret"), text)
        text = _SIGNATURE.sub(lambda match: match[1] + self._stand_in("secret", match[2]), text)
        text = self._blocks(text)
        text = _CONTINUED.sub(self._keyed, _NAMED_VALUE.sub(self._keyed, text))
        text = _LISTED.sub(self._keyed, text)
        text = _SPOKEN.sub(lambda match: match["head"] + self._value("secret", match["value"], ""), text)
        text = "".join(self._line(line) for line in text.splitlines(keepends=True))
        text = _MAIL.sub(self._with("user"), text)
        text = _SEAT.sub(lambda match: f"{self._stand_in('user', match[1])}@{self._stand_in('host', match[2])}", text)
        for pattern in (_IP, _IP6):
            text = pattern.sub(self._with("host"), text)
        for pattern in (_QUOTED_PATH, _URL_PATH, _WINDOWS, _PATH, _HOME, _ONE, _RELATIVE):
            text = pattern.sub(self._path, text)
        text = _DOMAIN.sub(lambda match: match[0] if match[0].lower().endswith(_PUBLIC) else self._stand_in("host", match[0]), text)
        text = _HEX.sub(self._hexadecimal, text)
        text = _DENSE.sub(lambda match: self._stand_in("secret", match[0]) if _is_dense(match[0]) else match[0], text)
        return self._learned(text)

    def text(self, text: str) -> str:
        """A text of a document without what is private by its form, or was found elsewhere."""
        text = _CREDENTIALS.sub(self._with("secret"), _TOKEN.sub(self._with("secret"), text))
        text = self._learned(_MAIL.sub(self._with("user"), text))
        for pattern in (_URL_PATH, _WINDOWS, _PATH, _HOME):
            text = pattern.sub(self._path, text)
        return text

    def record(self, record: Record) -> Record:
        """The same record with every text of it redacted; a value beside the name of a secret goes whole."""
        import msgspec  # noqa: PLC0415 - so that the command line starts quickly

        plain = msgspec.to_builtins(record)
        try:
            return msgspec.convert(self._redacted(plain, exact=True), type(record))
        except msgspec.ValidationError:  # a word of a closed vocabulary may be a user's name too: then it stays
            return msgspec.convert(self._redacted(plain, exact=False), type(record))

    def _redacted(self, value: Any, *, exact: bool) -> Any:
        if isinstance(value, str):
            return value if not exact and re.fullmatch(r"\w+", value) else self.text(value)
        if isinstance(value, list | tuple):
            return [self._redacted(one, exact=exact) for one in value]
        if not isinstance(value, dict):
            return value
        names = [value[key] for key in ("name", "key") if isinstance(value.get(key), str)]
        made = {key: self._redacted(one, exact=exact) for key, one in value.items()}
        if isinstance(value.get("value"), str) and any(map(is_secret, names)):
            made["value"] = self._value("secret", value["value"], names[0])
        return made

    # --- parts --------------------------------------------------------------------------------------------------------

    def _line(self, line: str) -> str:
        """A line whose keys tell that a value is private. A secret in a mapping reaches to the line's end: it may hold spaces."""
        mapped = re.match(
            r"^(?P<head>\s*(?:-\s+)?[\"']?(?P<key>[A-Za-z_][\w.-]*)[\"']?\s*:\s+)(?P<value>[^\s#\"'|>&*\[{][^#\n]*?)(?P<tail>\s*(?:#.*)?\n?)$",
            line,
        )
        if mapped is not None and is_secret(mapped["key"]):
            return f"{mapped['head']}{self._value('secret', mapped['value'], mapped['key'])}{_LINE_KEY.sub(self._assigned, mapped['tail'])}"
        return _LINE_KEY.sub(self._assigned, line)

    def _assigned(self, match: re.Match[str], depth: int = 0) -> str:
        key, value = match["key"], match["value"]
        head = match[0][: match.start("value") - match.start()]
        if match["sep"].strip() == "" and not match["dash"]:  # two words of a sentence, or a word before `key=value`
            return head + self._inner(value, depth)
        plain = key.lower().replace("-", "_").replace("/", ".")
        if value.strip("\"'") in _NOTHING or value.startswith(("redacted-", "--", "\\")):
            return match[0]
        if is_secret(key):
            return head + self._value("secret", value, key)
        if _HOST_KEYS.search(plain):
            return head + self._hosts(value, key)
        if _USER_KEYS.search(plain) and not value.strip("\"'").isdigit():
            return head + self._value("user", value, key)
        return head + self._inner(value, depth)

    def _inner(self, value: str, depth: int) -> str:
        """A value that may hold keys and values itself: `env=A_TOKEN=x`, `--args "--api-key x"`."""
        if depth > 2 or not ({"=", ":", " "} & set(value)):
            return value
        quote = value[0] if value[0] in "\"'" and value[-1] == value[0] and len(value) > 1 else ""
        inner = value[len(quote) : len(value) - len(quote)]
        made = _LINE_KEY.sub(lambda match: self._assigned(match, depth + 1), f" {inner}")[1:]
        return f"{quote}{made}{quote}"

    def _keyed(self, match: re.Match[str]) -> str:
        key, value = match["key"], match["value"]
        if is_secret(key):
            return match["head"] + self._value("secret", value, key)
        return match["head"] + (self._hosts(value, key) if _HOST_KEYS.search(key.lower().replace("-", "_")) else value)

    def _blocks(self, text: str) -> str:
        """What is indented below the name of a secret."""
        lines, made, depth = text.split("\n"), [], None
        for line in lines:
            indent = len(line) - len(line.lstrip())
            if depth is not None and line.strip() and indent > depth:
                made.append(line[:indent] + self._stand_in("secret", line.strip()))
                continue
            depth = depth if depth is not None and not line.strip() else None
            opened = re.match(r"^\s*(?:-\s+)?[\"']?([A-Za-z_][\w.-]*)[\"']?\s*:\s*(?:[|>][+-]?\d?)?\s*(?:#.*)?$", line)
            if opened is not None and is_secret(opened[1]):
                depth = indent
            made.append(line)
        return "\n".join(made)

    def _hosts(self, value: str, key: str) -> str:
        """Names of hosts among their ports, counts and signs; what stands for no host, or is looked up when it runs, stays."""
        if "$(" in value or "`" in value:
            return value

        def name(match: re.Match[str]) -> str:
            return (
                match[0]
                if match[0].lower() in ("localhost", "http", "https", "tcp", "static", "c10d")
                else self._stand_in("host", match[0], key)
            )

        return re.sub(r"(?<![\w$}{.-])[A-Za-z][\w.-]*(?:\[[\d,-]+\])?(?![\w}(])", name, value) if "$" not in value else value

    def _value(self, kind: Kind, value: str, key: str) -> str:
        """The stand-in in the value's quotes; a variable that is only mentioned stays."""
        quote = value[0] if value[:1] in ("'", '"') and value[-1:] == value[:1] and len(value) > 1 else ""
        inner = value[len(quote) : len(value) - len(quote)]
        given = re.fullmatch(r"(\$\{\w+:?[-=?])([^}]+)\}", inner)
        if given is not None:  # a variable with what stands for it
            return f"{quote}{given[1]}{self._stand_in(kind, given[2], key)}}}{quote}"
        if not inner or re.fullmatch(r"\$\w+|\$\{\w+(?::?[-=?])?\}|redacted-[a-z]+-\d+", inner):
            return value
        return f"{quote}{self._stand_in(kind, inner, key)}{quote}"

    def _with(self, kind: Kind) -> Callable[[re.Match[str]], str]:
        """A replacement that keeps the line breaks of what it takes out."""
        return lambda match: self._stand_in(kind, match[0]) + "\n" * match[0].count("\n")

    def _hexadecimal(self, match: re.Match[str]) -> str:
        before = match.string[max(0, match.start() - 24) : match.start()]
        return match[0] if _REVISION.search(before) else self._stand_in("secret", match[0])

    def _path(self, match: re.Match[str]) -> str:
        """A path's stand-in keeps the ending of a file, which tells what kind of file it is."""
        found = match[0]
        if _HARMLESS.fullmatch(found) or found.lower().startswith(tuple(f"{name}/" for name in _PUBLIC)):
            return found
        ending = re.search(r"\.(?:py|sh|yaml|yml|toml|json|jsonl|txt|bin|idx|pt|sqlite|nsys-rep)$", found)
        return self._stand_in("path", found) + (ending[0] if ending else "")

    def _learn_user(self, name: str) -> None:
        if len(name) > 2 and not _NO_USER.fullmatch(name.lower()) and not name.isdigit():
            self._stand_in("user", name, count=0)

    def _learned(self, text: str) -> str:
        """A text without the values that were found before, as whole words."""
        for (kind, value), stand_in in sorted(self._stand_ins.items(), key=lambda item: -len(item[0][1])):
            if kind == "path" or len(value) < (6 if kind == "secret" else 3) or value not in text or _NO_USER.fullmatch(value.lower()):
                continue
            text, count = re.subn(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])", stand_in, text)
            self._counts[stand_in] += count
        return text

    def _stand_in(self, kind: Kind, value: str, key: str = "", count: int = 1) -> str:
        if re.fullmatch(r"redacted-[a-z]+-\d+", value):
            return value
        known = self._stand_ins.get((kind, value))
        if known is None:
            number = 1 + len({one for (other, _), one in self._stand_ins.items() if other == kind})
            known = self._stand_ins[kind, value] = f"redacted-{kind}-{number}"
            self._counts[known] = 0
            short = value.partition(".")[0]
            if (
                kind == "host" and len(short) > 3 and not short.isalpha() and short[0].isalpha()
            ):  # its name without the domain; no plain word
                self._stand_ins.setdefault((kind, short), known)
        self._counts[known] += count
        if key:
            self._keys.setdefault(known, {})[key] = None
        return known


def _is_dense(word: str) -> bool:
    """Whether a word looks drawn by lot: digits among letters of both cases, changing all the time.

    Names with hyphens change often, too.
    """
    kinds = ["d" if sign.isdigit() else "u" if sign.isupper() else "l" if sign.islower() else "s" for sign in word]
    changes = sum(one != other for one, other in pairwise(kinds))
    return {"d", "u", "l"} <= set(kinds) and kinds.count("d") > 1 and changes >= (0.52 if "s" in kinds else 0.35) * len(word)


def listing(found: Iterable[StandIn]) -> Iterator[str]:
    """What was taken out, as lines for a reader: no value is among them."""
    words: Mapping[Kind, str] = {"secret": "secrets", "path": "paths", "host": "names of hosts", "user": "names of users"}
    every = list(found)
    for kind, title in words.items():
        of_kind = [one for one in every if one.kind == kind]
        if of_kind:
            yield f"{title}: {len(of_kind)}"
            for one in of_kind:
                yield f"  {one.stand_in}  {one.times}×{'  beside ' + ', '.join(one.keys) if one.keys else ''}"
