"""How one cell of a case comes about: the oracle, run on numbers that remember what they were made of."""
