"""Place pods: filters, scores, and the reason for each choice. The public face is tonnage.scheduling.place.decide."""
