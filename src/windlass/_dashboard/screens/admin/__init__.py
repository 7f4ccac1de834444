"""The screens of those who run a server: the audit log, keys, health"""
