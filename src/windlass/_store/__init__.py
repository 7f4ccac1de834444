"""The seam: what a store must do, as protocols, as messages, and as JSON."""
