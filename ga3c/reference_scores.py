"""Scores that others published, to compare with: a random player, a human tester, A3C and GA3C.

Random and human: Mnih et al., Human-level control through deep reinforcement learning, Nature 2015.
A3C (four days on a CPU, Mnih et al., 2016) and GA3C (one day on a GPU): Babaeizadeh et al., ICLR 2017,
Table 3.
"""

from typing import NamedTuple


class Reference(NamedTuple):
    """Mean scores of one game; None where the source does not report the game."""

    random: float
    human: float
    a3c: float | None = None
    ga3c: float | None = None


REFERENCE: dict[str, Reference] = {
    "Alien": Reference(227.8, 6875),
    "Amidar": Reference(5.8, 1676, a3c=264, ga3c=218),
    "Assault": Reference(222.4, 1496),
    "Asterix": Reference(210, 8503),
    "Asteroids": Reference(719.1, 13157),
    "Atlantis": Reference(12850, 29028),
    "BankHeist": Reference(14.2, 734.4),
    "BattleZone": Reference(2360, 37800),
    "BeamRider": Reference(363.9, 5775),
    "Bowling": Reference(23.1, 154.8),
    "Boxing": Reference(0.1, 4.3, a3c=60, ga3c=92),
    "Breakout": Reference(1.7, 31.8),
    "Centipede": Reference(2091, 11963, a3c=3756, ga3c=7386),
    "ChopperCommand": Reference(811, 9882),
    "CrazyClimber": Reference(10781, 35411),
    "DemonAttack": Reference(152.1, 3401),
    "DoubleDunk": Reference(-18.6, -15.5),
    "Enduro": Reference(0, 309.6),
    "FishingDerby": Reference(-91.7, 5.5),
    "Freeway": Reference(0, 29.6),
    "Frostbite": Reference(65.2, 4335),
    "Gopher": Reference(257.6, 2321),
    "Gravitar": Reference(173, 2672),
    "Hero": Reference(1027, 25763),
    "IceHockey": Reference(-11.2, 0.9),
    "Jamesbond": Reference(29, 406.7),
    "Kangaroo": Reference(52, 3035),
    "Krull": Reference(1598, 2395),
    "KungFuMaster": Reference(258.5, 22736),
    "MontezumaRevenge": Reference(0, 4367),
    "MsPacman": Reference(307.3, 15693, a3c=654, ga3c=1978),
    "NameThisGame": Reference(2292, 4076, a3c=10476, ga3c=5643),
    "Pong": Reference(-20.7, 9.3, a3c=6, ga3c=18),
    "PrivateEye": Reference(24.9, 69571),
    "Qbert": Reference(163.9, 13455, a3c=15149, ga3c=14966),
    "Riverraid": Reference(1339, 13513),
    "RoadRunner": Reference(11.5, 7845),
    "Robotank": Reference(2.2, 11.9),
    "Seaquest": Reference(68.4, 20182, a3c=2355, ga3c=1706),
    "SpaceInvaders": Reference(148, 1652),
    "StarGunner": Reference(664, 10250),
    "Tennis": Reference(-23.8, -8.9),
    "TimePilot": Reference(3568, 5925),
    "Tutankham": Reference(11.4, 167.6),
    "UpNDown": Reference(533.4, 9082, a3c=74706, ga3c=8623),
    "Venture": Reference(0, 1188),
    "VideoPinball": Reference(16257, 17298),
    "WizardOfWor": Reference(563.5, 4757),
    "Zaxxon": Reference(32.5, 9173),
}


def human_normalised(game: str, score: float) -> float | None:
    """The score in percent, where random play is 0 and the human tester 100.

    ``game`` is a canonical name such as MsPacman; None for a game without reference scores.
    """
    reference = REFERENCE.get(game)
    if reference is None:
        return None
    return 100 * (score - reference.random) / (reference.human - reference.random)
