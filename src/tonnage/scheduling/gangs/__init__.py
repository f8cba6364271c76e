"""Gangs planned whole: places for every pod that must be there, or none."""
