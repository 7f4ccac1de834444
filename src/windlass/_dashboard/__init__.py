"""The dashboard: pages over the operations of the HTTP API. It has no queries and no rules of its own"""
