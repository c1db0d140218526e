"""The faces that speak HTTP. Only here is FastAPI imported."""
