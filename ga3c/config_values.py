"""Text to values, by the type of the knob they are for; used by config.py."""

import difflib
import math
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin


def convert(text: str, kind: Any, bounds: Mapping[str, Any]) -> Any:
    """Text to a value of the annotated type; ValueError says what would be right."""
    if get_origin(kind) is Literal:
        if text in get_args(kind):
            return text
        choices = [str(choice) for choice in get_args(kind)]
        raise ValueError(f"expected one of {', '.join(choices)}{closest(text, choices)}")
    if kind is NoneType:
        if text.lower() in ("none", "null", "~"):
            return None
        raise ValueError("expected none")
    if options := get_args(kind):
        expected = []
        for option in sorted(options, key=lambda option: option in (int, float)):
            try:
                return convert(text, option, bounds)
            except ValueError as error:
                expected.append(str(error).removeprefix("expected "))
        raise ValueError(f"expected {', or '.join(expected)}")
    if kind is bool:
        if text.lower() in ("true", "yes", "on"):
            return True
        if text.lower() in ("false", "no", "off"):
            return False
        raise ValueError("expected true or false")
    if kind is str:
        if text:
            return text
        raise ValueError("expected a text that is not empty")
    return _number(text, kind, bounds)


def _number(text: str, kind: type[int] | type[float], bounds: Mapping[str, Any]) -> int | float:
    low, high = bounds["low"], bounds["high"]
    ranges = {
        (True, True): f" from {low} to {high}",
        (True, False): f" of at least {low}",
        (False, True): f" of at most {high}",
        (False, False): "",
    }
    expected = f"expected {'a whole number' if kind is int else 'a number'}"
    expected += ranges[low is not None, high is not None]
    try:
        value = _whole(text) if kind is int else float(text)
    except ValueError:
        raise ValueError(expected) from None
    if not math.isfinite(value):
        raise ValueError(expected)
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(expected)
    return value


def _whole(text: str) -> int:
    """Read 80, 80_000 or 8e4."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():
            raise
        return int(value)


def closest(word: str, known: Iterable[str]) -> str:
    """The end of an error message: the known key most like a word, by its whole or its last part."""
    known = list(known)
    tails = {key.rsplit(".", 1)[-1]: key for key in known}
    match = difflib.get_close_matches(word, known, n=1)
    if not match:
        match = [tails[tail] for tail in difflib.get_close_matches(word.rsplit(".", 1)[-1], tails, n=1)]
    return f" (did you mean '{match[0]}'?)" if match else ""
