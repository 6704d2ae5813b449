"""The product broken on purpose, one fault at a time: a simulation that lets one live proves nothing about it."""

from simulation.mutants.mutant import Mutant
from simulation.mutants.registry import MUTANTS

__all__ = ["MUTANTS", "Mutant"]
