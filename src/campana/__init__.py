"""Campana: delivers things at the right moment, and never twice."""
