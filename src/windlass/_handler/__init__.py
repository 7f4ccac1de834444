"""The handler of a task type: its declaration, its signature, its context."""
