"""What placements are worth: the recent mix of pods, fragments, prices of what is left of a device, and the scores."""
