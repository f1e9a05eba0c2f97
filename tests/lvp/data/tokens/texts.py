"""Random text for tests of tokens."""

import random


def some_text(words: int) -> str:
    """Returns `words` random words with non-ASCII letters, separated by spaces and line ends; always the same text."""
    chance = random.Random(5)
    stock = ["".join(chance.choices("etaoinshrdlué", k=chance.randint(1, 8))) for _ in range(400)]
    return "".join(chance.choice(stock) + chance.choice("    \n") for _ in range(words))
