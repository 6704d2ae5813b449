"""All mutants."""

from __future__ import annotations

from typing import Final

from simulation.mutants.asking import ASKING
from simulation.mutants.computing import COMPUTING
from simulation.mutants.delivering import DELIVERING
from simulation.mutants.finalizing import FINALIZING
from simulation.mutants.matching import MATCHING
from simulation.mutants.moving import MOVING
from simulation.mutants.mutant import Mutant
from simulation.mutants.relaying import RELAYING

MUTANTS: Final[tuple[Mutant, ...]] = (*FINALIZING, *DELIVERING, *RELAYING, *COMPUTING, *MATCHING, *ASKING, *MOVING)
