"""Connections of the caller's own, one file a driver: how a statement of ours is asked there.

What is asked, and in which order, is the same for all of them; that is in within.py.
"""
