"""The benches: what Campana does beside its peers and beside the limits of the machine, measured and checked."""
