"""Gaussian-process regression of a rate over N_A, N_P and N_T: noisy measurements in, beliefs out.

The logarithm of the rate is a smooth function of the counts' logarithms, plus a slow drift of the game
and the machine, plus noise (Rasmussen and Williams, *Gaussian Processes for Machine Learning*, 2006,
sections 2.2 and 5.4.1). So every measurement tells something of the counts around its own, and of two
measurements of one setting the later one counts for more.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from ga3c.config import Counts

_SCALE = 4.0  # standard deviation of the function's logarithm: hardly any prior opinion
_OCTAVES = 3.0  # over which it is smooth
_NOISE = (0.03, 0.1, 0.3)  # standard deviation of one measurement; the likeliest is taken
_DRIFT = 0.15  # standard deviation of the drift
_DRIFT_TIME = 25.0  # measurements after which it is forgotten
_LEVEL = 2.0  # standard deviation of the mean that the measurements have in common


class Measured(NamedTuple):
    """One measurement: ``rate`` > 0, at ``time``, in measurements."""

    counts: Counts
    time: float
    rate: float


class Belief(NamedTuple):
    """Mean [n] and covariance [n, n] of the logarithm of the rate, less a common constant, without drift."""

    mean: np.ndarray
    covariance: np.ndarray


def believe(measured: Collection[Measured], counts: Sequence[tuple[float, ...]]) -> Belief:
    """What the measurements, at least one, say of n counts; the noise is what makes them most likely."""
    places, asked = octaves([each.counts for each in measured]), octaves(counts)
    times = np.array([each.time for each in measured])
    rates = np.log([each.rate for each in measured])
    rates -= rates.mean()
    drift = _DRIFT**2 * np.exp(-np.abs(times[:, None] - times) / _DRIFT_TIME)
    prior = _smooth(places, places) + drift + _LEVEL**2
    noisy = [prior + noise**2 * np.eye(len(rates)) for noise in _NOISE]
    likeliest = max(noisy, key=lambda covariance: _log_likelihood(rates, covariance))
    between = _smooth(places, asked)
    solved = np.linalg.solve(likeliest, np.column_stack((rates, between)))
    return Belief(between.T @ solved[:, 0], _smooth(asked, asked) - between.T @ solved[:, 1:])


def octaves(counts: Sequence[tuple[float, ...]]) -> np.ndarray:
    """Logarithms to base 2 of n counts, [n, 3]."""
    return np.log2(np.array(counts, dtype=float))


def _log_likelihood(rates: np.ndarray, covariance: np.ndarray) -> float:
    """Of a Gaussian with mean 0, less a constant."""
    root = np.linalg.cholesky(covariance)
    white = np.linalg.solve(root, rates)
    return float(-0.5 * white @ white - np.log(np.diag(root)).sum())


def _smooth(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    squares = ((some[:, None] - others[None]) ** 2).sum(-1)
    return _SCALE**2 * np.exp(-squares / (2 * _OCTAVES**2))
