"""Measurements: of cores alone, and of the whole stack under load. Nothing here is part of the product."""
