"""Lab 02: memory given out twice, lost, or looked up in the wrong place."""

FAULTS = {}
