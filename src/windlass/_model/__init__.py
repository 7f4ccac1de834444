"""The nouns: frozen values that every layer uses. They import nothing of windlass but its errors.

Frozen values cannot form cycles, so they are hidden from the garbage collector (`gc=False`): a busy worker
makes hundreds of thousands of them a second.
"""
