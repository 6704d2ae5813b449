"""What several parts share: frame formats, keys, topics, scaled prices, vocabulary. Imports nothing of the product."""
