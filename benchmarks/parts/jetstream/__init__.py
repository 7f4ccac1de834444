"""Figures of a store on NATS JetStream, beside one Postgres: speed, failover, recovery, several stores."""
