"""The HTTP API: producers, workers and operators in any language. (I1-I4)"""
