"""Ways to reach an owner: each channel takes one delivery and says what came of it."""
