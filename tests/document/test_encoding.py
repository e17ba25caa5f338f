"""Documents as JSON."""

import json

from diagnose.document.encoding import encode


def test_signs_that_steer_a_terminal_or_turn_the_reading_direction_are_escaped() -> None:
    text = "a\x9b31m\u202eb\u2066c é 中 µ ×"
    written = encode({"text": text}).decode()
    assert json.loads(written) == {"text": text}
    assert [sign for sign in "\x9b\u202e\u2066" if sign in written] == []
    assert all(sign in written for sign in "é中µ×"), "what people read stays as it is"


def test_bytes_of_a_name_that_are_no_utf_8_are_no_fault() -> None:
    assert json.loads(encode({"file": "bad\udcff.sqlite", "ranks": ({"file": "\udc80"}, 3)})) == {
        "file": "bad?.sqlite",
        "ranks": [{"file": "?"}, 3],
    }
