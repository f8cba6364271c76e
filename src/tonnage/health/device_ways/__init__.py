"""Device plugin or ResourceClaims: which of them serves what workloads ask for, and from the one to the other."""
