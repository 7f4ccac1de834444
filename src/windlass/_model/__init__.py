"""The nouns: frozen values that every layer speaks. Of ours they import errors only, and do nothing but be.

Frozen values cannot form cycles, so the garbage collector need not look at them (`gc=False`): a busy worker
makes hundreds of thousands of them a second.
"""
