"""Gangs planned whole: seats for every pod that must be there, or none."""
