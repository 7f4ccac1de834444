"""The OpenAPI document and the reference page, generated from the operations."""
