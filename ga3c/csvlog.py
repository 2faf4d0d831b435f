"""The form of a run's CSV files: the server writes them through CsvLog, plots.py reads them.

Cells are numbers, or empty for nan; those of the column ``reason`` are text. A crash leaves at most one
torn line, which nobody reads.
"""

import os
from collections.abc import Iterable, Sequence
from math import isnan, nan
from pathlib import Path

import numpy as np

from ga3c.config import ConfigError

_TEXT = "reason"


class CsvLog:
    """A CSV file that grows by whole lines and can be read while it grows.

    An existing file is continued: a torn last line and the rows beyond ``keep_frames`` are dropped,
    since a resumed run plays those frames again. Raises ConfigError when its columns are others.
    """

    def __init__(self, path: Path, columns: Sequence[str], keep_frames: int | None = None) -> None:
        header, rows = _whole_rows(path) if path.exists() else ([], [])
        if header and header != list(columns):
            raise ConfigError([f"{path}: columns are {','.join(header)}; expected {','.join(columns)}"])
        if keep_frames is not None:
            frames = columns.index("frames")
            rows = [row for row in rows if _number(row[frames]) <= keep_frames]
        temporary = path.with_name(f"{path.name}.tmp")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(_lines([columns, *rows]))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self._file = path.open("a", encoding="utf-8")

    def write(self, rows: Iterable[Sequence[float | str]]) -> None:
        """Append rows; they are in the file when this returns."""
        self._file.write(_lines([_cell(value) for value in row] for row in rows))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """The columns of a file that a CsvLog wrote, or is writing: float64 [rows], nan where empty; or text."""
    header, rows = _whole_rows(path)
    columns = {}
    for index, name in enumerate(header):
        cells = [row[index] for row in rows]
        columns[name] = np.array(cells) if name == _TEXT else np.array([_number(cell) for cell in cells])
    return columns


def _whole_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows, without a torn last line and without rows that a crash left incomplete."""
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = [line.split(",") for line in text.split("\n")[:-1]]
    header = lines[0] if lines else []
    return header, [row for row in lines[1:] if len(row) == len(header) and _is_row(header, row)]


def _is_row(header: list[str], row: list[str]) -> bool:
    return all(name == _TEXT or _is_cell(cell) for name, cell in zip(header, row, strict=True))


def _lines(rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"{','.join(row)}\n" for row in rows)


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value.replace(",", ";").replace("\n", " ")
    if isinstance(value, int):
        return str(value)
    return "" if isnan(value) else f"{value:.8g}"


def _number(cell: str) -> float:
    return float(cell) if cell else nan


def _is_cell(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True
