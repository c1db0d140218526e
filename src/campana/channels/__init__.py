"""Channels: how a delivery leaves. Each knows its own wire and nothing of states, stores or retries."""
