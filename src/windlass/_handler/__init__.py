"""The handler of a task type: its spec, its signature, its context."""
