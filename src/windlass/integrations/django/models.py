"""No models. Django sends `post_migrate`, by which the store is migrated, only to apps with this module."""
