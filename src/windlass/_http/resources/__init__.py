"""What the API has: each resource with its operations."""
