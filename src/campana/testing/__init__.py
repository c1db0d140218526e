"""What tests need: a clock that a test moves, dice with a seed, channels that follow a script, a database without threads."""
