"""What stands for the pipeline where the command line is tested."""

from pathlib import Path
from typing import Any


class StandIn:
    """Keeps what it was asked; answers by the name of the first input, or all alike, with a document or by raising."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.answers: dict[str, Any] = {}
        self.calls: list[tuple[tuple[str, ...], dict[str, Any]]] = []

    def __call__(self, inputs: tuple[str, ...], **options: Any) -> Any:
        self.calls.append((tuple(inputs), options))
        answer = self.answers.get(Path(inputs[0]).name, self.answer)
        assert answer is not None, inputs
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def inputs(self) -> tuple[str, ...]:
        """Those of the last call; none before the first."""
        return self.calls[-1][0] if self.calls else ()

    @property
    def options(self) -> dict[str, Any]:
        """Those of the last call; none before the first."""
        return self.calls[-1][1] if self.calls else {}
