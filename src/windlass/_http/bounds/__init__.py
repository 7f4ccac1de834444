"""What callers may use of a server: the rates of keys, and the quotas of tenants."""
