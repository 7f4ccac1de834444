"""A marketplace: merchants sell, customers order, a bank charges, and the rest happens in the background."""
