"""What programs and people call: Client and Operator, async and blocking."""
