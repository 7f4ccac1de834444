"""Commands for the upkeep of a store; imported when they are run."""
