"""Random draws that depend on (seed, op name, tick) and on nothing hidden; `exchange` is the way in."""
