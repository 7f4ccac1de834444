"""A shop that ships orders in the background."""
