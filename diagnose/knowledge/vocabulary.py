"""How people read the words of the data: titles and colours of walls and buckets. What outputs need of the knowledge."""

from __future__ import annotations

from msgspec import Struct

from diagnose.knowledge.buckets import Buckets, load_buckets
from diagnose.knowledge.data import checked, contents
from diagnose.knowledge.templates import capitalised
from diagnose.knowledge.walls import Walls
from diagnose.model.vocabulary import CAPTURE, Topic, Wall

UNKNOWN_COLOUR = "#8c6d5a"  # of a bucket that has no row: a saved document may be of another version


class Vocabulary(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rows of buckets.yaml and walls.yaml. Words without a row (in a document of another version) are shown as they are.

    `step`: what a window of figures is called: an iteration where nothing trains, the capture where nothing cut it into steps.
    """

    buckets: Buckets
    walls: Walls
    step: str = "step"

    def wall(self, name: Topic) -> str:
        """The title of a wall, or of the capture, with a capital letter."""
        return capitalised(self.wall_in_text(name))

    def wall_in_text(self, name: Topic) -> str:
        """The title of a wall, or of the capture, inside a sentence."""
        known = name == CAPTURE or name in self.walls.walls
        return self.walls.topic(name).title if known else name.replace("_", " ")

    def bound_by(self, name: Wall) -> str:
        """What a run is whose step that wall takes most of: memory-bound, CPU-bound."""
        spec = self.walls.walls.get(name)
        return spec.verdict if spec is not None and spec.verdict else f"{self.wall(name)}-bound"

    def wall_style(self, name: Topic) -> str:
        """The colour of a wall, or of the capture, in a terminal."""
        return self.walls.topic(name).style if name == CAPTURE or name in self.walls.walls else "white"

    def is_ceiling(self, name: Wall) -> bool:
        """Whether a wall's bound is what could be won at most, and not what ran."""
        return name not in self.walls.walls or self.walls.walls[name].contender

    def bucket(self, name: str) -> str:
        """The title of a bucket."""
        return self.buckets[name].title if name in self.buckets else name.replace("_", " ")

    def colour(self, bucket: str) -> str:
        """The colour of a bucket in figures."""
        return self.buckets[bucket].colour if bucket in self.buckets else UNKNOWN_COLOUR


def load_vocabulary() -> Vocabulary:
    """The words as they come with the program. Raises RuleFileError."""
    with checked("walls.yaml", effect="Nothing can be shown.", next_step="Correct the file; trace_rules/README.md explains its fields."):
        walls = contents("walls.yaml", Walls)
    return Vocabulary(buckets=load_buckets(), walls=walls)
