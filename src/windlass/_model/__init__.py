"""The nouns: frozen values that every layer speaks. They import nothing of ours and do nothing but be.

Frozen values cannot form cycles, so the garbage collector need not look at them (`gc=False`): a busy worker
makes hundreds of thousands of them a second.
"""
