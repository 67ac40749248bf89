"""The prediction server: HTTP at the edge, a pipeline of pure decisions, replicas behind it."""
