"""One test over many cases."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest


def for_each(names: str, *cases: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `pytest.mark.parametrize`, but all cases are one test: it goes on after a case that fails, and in the end names each of them.

    A case finds `tmp_path` empty and nothing in `capsys`, and what it sets with `monkeypatch` is undone after it; all other fixtures are
    the same for all cases. No case at all would pass whatever the code does: that is an error when tests are collected.
    """
    if not cases:
        raise ValueError(f"{names}: there is no case")
    wanted = names.split(", ")
    rows = [dict(zip(wanted, case if len(wanted) > 1 else (case,), strict=True)) for case in cases]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def over_all(**fixtures: Any) -> None:
            failed: list[Exception] = []
            for place, row in enumerate(rows):
                own: dict[str, Any] = {}
                if "tmp_path" in fixtures:
                    own["tmp_path"] = fixtures["tmp_path"] / str(place)
                    own["tmp_path"].mkdir()
                if "capsys" in fixtures:
                    fixtures["capsys"].readouterr()
                try:
                    with pytest.MonkeyPatch.context() as monkeypatch:
                        own |= {"monkeypatch": monkeypatch} if "monkeypatch" in fixtures else {}
                        test(**{**fixtures, **own, **row})
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever it is, it is raised below
                    wrong = error if isinstance(error, Exception) else AssertionError(str(error))
                    wrong.add_note(f"in case {place + 1}: {row!r:.600}")
                    failed.append(wrong)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(rows)} cases", failed)

        signature = inspect.signature(test)
        over_all.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[parameter for name, parameter in signature.parameters.items() if name not in wanted]
        )
        return over_all

    return decorate
