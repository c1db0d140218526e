"""The REST API: one module per resource; a route parses, calls one operation, and shapes its answer."""
