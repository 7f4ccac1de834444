"""What tests of windlass, of stores and of programs that use them need; production code imports none."""
